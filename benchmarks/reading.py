"""How long official files take to be verified and read, against reading their bytes alone; a batch against its copy.

DPSWEEP_DATA=/folder/with/official/files python benchmarks/reading.py [mnist cifar10 ...]
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.hydra_app import CONF

ROUNDS, BATCH = 5, 1000


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(work: Callable[[], Any], against: Callable[[], Any]) -> str:
    """The median of both and of their ratios, measured by turns."""
    pairs = [(seconds(work), seconds(against)) for _ in range(ROUNDS)]
    mine, theirs = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return f"{mine:.1f} ms against {theirs:.1f} ms, ratio {statistics.median(one / other for one, other in pairs):.1f}"


def measure(name: str, folder: Path) -> None:
    dataset = instantiate(OmegaConf.load(CONF / "dataset" / f"{name}.yaml").dataset)
    try:
        dataset.locate(folder)
    except BadInput as absent:
        print(f"{name}: {absent}")
        return
    names = tuple(Path(file).name for file in dataset.files.contents)
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name.startswith(names)]
    private, _ = dataset.load(folder)
    drawn = np.random.default_rng(0).choice(len(private), BATCH, replace=False)
    rows = private.features[drawn].float()
    print(f"{name}, verify: {ratio(lambda: dataset.verify(folder), lambda: [path.read_bytes() for path in paths])}")
    print(f"{name}, load: {ratio(lambda: dataset.load(folder), lambda: [path.read_bytes() for path in paths])}")
    print(f"{name}, batch of {BATCH}: {ratio(lambda: private.inputs(drawn, 'cpu'), rows.clone)}")


if __name__ == "__main__":
    if "DPSWEEP_DATA" in os.environ:
        for asked in sys.argv[1:] or ["mnist"]:
            measure(asked, Path(os.environ["DPSWEEP_DATA"]))
    else:
        print("Nothing is measured: DPSWEEP_DATA names no folder with the official files.")
