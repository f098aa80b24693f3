"""What loggers have written, read back by each library's own code: names, values and facts of every run."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A run as a library returns it; `others` are names that the library adds on its own."""

    hyperparameters: Mapping[str, Any]
    scores: Mapping[str, float]
    facts: Mapping[str, str]
    others: frozenset[str] = frozenset()


def of_tensorboard(place: Path) -> Iterator[Stored]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    for folder in sorted(place.glob("sweeps/digits/*/tensorboard/*")):
        events = EventAccumulator(str(folder)).Reload()
        tags = events.Tags()
        (declared,) = (HParamsPluginData.FromString(one) for one in events.PluginTagToContent("hparams").values())
        texts = [tag for tag in tags["tensors"] if not tag.startswith("_hparams_")]
        values = declared.session_start_info.hparams
        yield Stored(
            hyperparameters={key: getattr(values[key], str(values[key].WhichOneof("kind"))) for key in values},
            scores={tag: events.Scalars(tag)[0].value for tag in tags["scalars"]},
            facts={tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in texts},
            others=frozenset(kind for kind in ("images", "audio", "histograms", "distributions") if tags[kind]),
        )


_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
(experiment,) = [one for one in client.search_experiments() if one.name != "Default"]
runs = [run.data for run in client.search_runs([experiment.experiment_id])]
print(json.dumps([experiment.name, [[run.params, run.metrics, run.tags] for run in runs]]))
"""


def of_mlflow(place: Path) -> Iterator[Stored]:
    name, runs = _in_python(_MLFLOW, place)
    assert name == "dpsweep/digits"
    for params, metrics, tags in runs:
        own = {key for key in tags if key.startswith("mlflow.")} | {"dpsweep.run"}
        facts = {key: value for key, value in tags.items() if key not in own}
        yield Stored(hyperparameters=params, scores=metrics, facts=facts, others=frozenset(own - {"dpsweep.run"}))


def of_wandb(place: Path) -> Iterator[Stored]:
    for file in sorted(place.glob("sweeps/digits/*/wandb/offline-run-*/*.wandb")):
        config, summary = _in_python(_WANDB.format(file=str(file)), place)
        yield Stored(
            hyperparameters={key: value for key, value in config.items() if not key.startswith(("dpsweep.", "_"))},
            scores={key: value for key, value in summary.items() if not key.startswith("_")},
            facts={key: value for key, value in config.items() if key.startswith("dpsweep.")},
            others=frozenset(key for key in {**config, **summary} if key.startswith("_")),
        )


_WANDB = """
import json
from tests.sweeper.loggers.readers import records
from wandb.proto.wandb_internal_pb2 import Record
config, summary = {{}}, {{}}
for content in records(open({file!r}, "rb").read()):
    record = Record.FromString(content)
    kind = record.WhichOneof("record_type")
    assert kind in ("header", "footer", "run", "history", "summary", "telemetry", "exit", "request", "final"), kind
    for item in record.run.config.update:
        config[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    for item in [*record.history.item, *record.summary.update]:
        summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
print(json.dumps([config, summary]))
"""


def records(content: bytes) -> Iterator[bytes]:
    """The records of a file in the form of LevelDB's log, as W&B writes it: 0.31 has no reader in Python any more."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        rest = 32768 - place % 32768
        if rest < 7:
            place += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def _in_python(program: str, folder: Path) -> Any:
    """What a program prints as JSON; the libraries warn on import, which would be an error here."""
    root = Path(__file__).parents[3]
    line = [sys.executable, "-c", f"import sys; sys.path.append({str(root)!r})\n{program}"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
