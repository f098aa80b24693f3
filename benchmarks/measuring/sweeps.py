"""Sweeps that studies make: each in a ledger of its own, told by exact scores on public records."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import shutil
import statistics
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = int(os.environ.get("WORKERS", "1"))
PRELOAD = [
    "__main__",
    "dpsweep.sweeper.commands.hydra_app",
    "dpsweep.sweeper.trial.run",
    "dpsweep.reports.content.sweep_table",
]


def swept(words: Sequence[str], folder: Path, verb: str = "sweep") -> Path:
    """The folder of a sweep, or of a plan, that the program makes with these words, in a ledger of its own."""
    from dpsweep.sweeper.commands.cli import main

    os.environ |= {"DPSWEEP_LEDGER": str(folder / "ledger.sqlite"), "DPSWEEP_KEY": str(folder / "key")}
    os.environ.setdefault("DPSWEEP_PRIVATE", str(Path(tempfile.gettempdir(), "dpsweep-searching")))  # shares features
    sys.argv = ["dpsweep", verb, *words, "page=false", f"hydra.sweep.dir={folder / 'sweep'}"]
    said, speeds = io.StringIO(), Path(tempfile.gettempdir(), "dpsweep-speeds.json")
    with contextlib.suppress(OSError):
        shutil.copy(speeds, folder / "speeds.json")  # beside the ledger: steps are not timed again for every sweep
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise RuntimeError(f"{' '.join(words)}: exit code {stop.code}: {said.getvalue()[-800:]}") from None
    with contextlib.suppress(OSError):
        Path(shutil.copy(folder / "speeds.json", f"{speeds}.{os.getpid()}")).replace(speeds)
    return folder / "sweep"


def one_run_noise(words: Sequence[str], epsilon: float) -> float:
    """The noise multiplier at which one run alone costs this epsilon, where searches have these words in common."""
    from dpsweep.accounting.records.plan import Plan

    one_run = (f"privacy.epsilon={epsilon:g}", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1")
    with tempfile.TemporaryDirectory() as place:
        plan = Plan.read(swept((*words, *one_run), Path(place), "plan") / "plan.json")
    return float(plan.trials[0].config["privacy"]["noise_multiplier"])


def asked(data: str, folder: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What all searches on a data set have in common."""
    own = () if data == "mnist_5k" else (f"data='{folder}'",)
    words = str(settings["words"].get(data, "")).split()
    return (f"dataset={data}", *own, *words, "budget.epsilon=1e6", "budget.delta=1e-3")


def accuracies(root: Path, folder: str, every: bool) -> dict[str, float]:
    """The accuracy of the model that is handed over, on public test records; with `every`, of all runs by their values.

    A data set without any is told by the records that its runs did not train on; where searches are scored by balanced
    accuracy, so is the model.
    """
    import torch

    from dpsweep.accounting.ledger.ledger import Ledger
    from dpsweep.accounting.records.sweep_folder import SweepFolder
    from dpsweep.accounting.searches.stored_draw import StoredDraw
    from dpsweep.reports.content.sweep_table import read_sweep
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.sweeper.trial.spec import declaration_from_config
    from dpsweep.trainers.declarations.scores import quality_per_record
    from dpsweep.trainers.models.weights import load_weights_into_model
    from dpsweep.trainers.training.run_records import RecordStore
    from tests.places import READER

    device = "cuda" if torch.cuda.is_available() else "cpu"
    sweep = read_sweep(root, Ledger(Path(os.environ["DPSWEEP_LEDGER"])))
    found = {}
    held_out = None
    for run in sweep.runs.search_and_final_run_records:
        if run.result is not None and (every or run.trial.id == sweep.winner_id):
            model = load_weights_into_model(make_model(run.trial.config, run.trial.id), root / "trials" / run.trial.id)
            source = {name: run.trial.config[name] for name in ("dataset", "features") if name in run.trial.config}
            declared = declaration_from_config(run.trial.config)
            records = public_test(json.dumps(source), folder)
            if records is None and held_out is None:
                draw = StoredDraw.read(SweepFolder(root=root).draw_path)
                store = RecordStore(folder=Path(folder), coins="" if draw is None else draw.coins)
                held_out = declared.records.open_split(READER, store).holdout
            unseen = held_out if records is None else records
            assert unseen is not None, "a sweep without public test records holds some out"
            quality = quality_per_record(model.to(device), unseen, device, declared.loss)
            balanced = declared.score.metric == "balanced_accuracy"
            value = mean_over_classes(quality, unseen.labels.numpy()) if balanced else float(quality.mean())
            found[str(sorted(run.trial.swept_values_and_repeat.items()))] = value
    return found


def mean_over_classes(quality: np.ndarray, labels: np.ndarray) -> float:
    """The mean over the classes of each one's mean quality: the balanced accuracy."""
    return statistics.fmean(float(quality[labels == label].mean()) for label in np.unique(labels))


@lru_cache(maxsize=1)
def public_test(config: str, folder: str) -> Any:
    """The public test records of a data set; those of MNIST, averaged likewise, for mnist_5k; None without any."""
    import torch

    from dpsweep.sweeper.trial.spec import dataset_from_config
    from dpsweep.trainers.data.records import Records, Scaling
    from dpsweep.trainers.data.sets.images import EmbeddedImages, parse_idx
    from dpsweep.trainers.features.cache import FeatureCache
    from dpsweep.trainers.features.extracted import Extracted

    dataset = dataset_from_config(json.loads(config))
    if dataset.test_records:
        test = dataset.load(Path(folder))[1]
        assert test is not None
        cache = FeatureCache(root=Path(os.environ["DPSWEEP_PRIVATE"], "frozen-features"))
        return dataset.replace_inputs_by_features(test, cache) if isinstance(dataset, Extracted) else test
    if not isinstance(dataset, EmbeddedImages):
        return None
    shapes = {"images-idx3": (28, 28), "labels-idx1": ()}
    images, labels = (
        parse_idx(gzip.decompress(Path(folder, "mnist", f"t10k-{part}-ubyte.gz").read_bytes()), part, shape)
        for part, shape in shapes.items()
    )
    pooled = images.reshape(-1, 1, 14, 2, 14, 2).mean((3, 5), dtype="float32")
    return Records(
        features=torch.from_numpy(pooled),
        labels=torch.from_numpy(labels.astype("int64")),
        scaling=Scaling(scale=dataset.scale, mean=dataset.mean, std=dataset.std),
    )


@contextlib.contextmanager
def workers() -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each, forked from a server that has the program's imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(WORKERS, mp_context=context, initializer=remember_prices) as pool:
        yield pool


def remember_prices() -> None:
    """Lets this process compute no price that was computed by the same accountants before: rounds ask for the same."""
    from dpsweep.accounting.pricing import panel

    sources = sorted(Path(panel.__file__).parents[1].rglob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    folder = Path(tempfile.gettempdir(), f"dpsweep-prices-{digest[:16]}")
    folder.mkdir(exist_ok=True)
    computed = panel.bounds_and_refusals

    def remembered(*asked: Any) -> Any:
        path = folder / hashlib.sha256(repr(asked).encode()).hexdigest()
        if path.exists():
            return pickle.loads(path.read_bytes())
        found = computed(*asked)
        draft = folder / f"{path.name}.{os.getpid()}"
        draft.write_bytes(pickle.dumps(found))
        draft.rename(path)
        return found

    setattr(panel, computed.__name__, remembered)


def write_as_they_come(waiting: Sequence[Future[dict[str, Any]]], results: Path) -> None:
    """Appends each result to a file of JSON lines; a sweep that failed is printed and left out."""
    with results.open("a") as out:
        for future in as_completed(waiting):
            try:
                print(json.dumps(future.result()), file=out, flush=True)
            except Exception:  # noqa: BLE001 - of one sweep; the others go on
                traceback.print_exc()


def lines(results: Path) -> list[dict[str, Any]]:
    """The results so far."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def margin(values: Sequence[float]) -> float:
    """Half of the width of the 95 % interval of the mean, by Student's t."""
    from scipy.stats import t as student

    return float(student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5)
