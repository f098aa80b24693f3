"""How long official files take to be verified and read, against reading their bytes alone; a batch against its copy.

    python benchmarks/reading.py [--toy] [--data FOLDER] [--names mnist cifar10 ...]

FOLDER holds the official files (default: DPSWEEP_DATA). The toy run reads generated files in MNIST's format.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring.aims import Aim
from measuring.clock import wall_seconds
from measuring.generated_mnist import RECORDS, write_mnist
from measuring.script import start
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.trial.spec import build_object_of_config_part

GENERATED = "generated"


@dataclass(frozen=True, kw_only=True)
class Size:
    rounds: int = 5
    batch: int = 1000
    names: tuple[str, ...] = ("mnist",)
    data: str = os.environ.get("DPSWEEP_DATA", "")


def ratio(work: Callable[[], object], against: Callable[[], object], rounds: int) -> str:
    """The median of both and of their ratios, measured by turns."""
    pairs = [(wall_seconds(work), wall_seconds(against)) for _ in range(rounds)]
    mine, theirs = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return f"{mine:.1f} ms against {theirs:.1f} ms, ratio {statistics.median(one / other for one, other in pairs):.1f}"


def measure(name: str, folder: Path, size: Size, checksums: dict[str, str]) -> None:
    declared = OmegaConf.load(CONF / "dataset" / f"{name}.yaml").dataset
    if checksums:
        declared.files.contents, declared.records = checksums, RECORDS
    plain: Any = OmegaConf.to_container(declared, resolve=True)
    dataset = build_object_of_config_part(plain, "dataset")
    try:
        dataset.locate(folder)
    except BadInput as absent:
        print(f"{name}: {absent}")
        return
    names = tuple(Path(file).name for file in dataset.files.contents)
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name.startswith(names)]

    def read() -> list[bytes]:
        return [path.read_bytes() for path in paths]

    private, _ = dataset.load(folder)
    drawn = np.random.default_rng(0).choice(len(private), size.batch, replace=False)
    rows = private.stored_features(drawn).float()
    print(f"{name}, verify: {ratio(lambda: dataset.verify(folder), read, size.rounds)}")
    print(f"{name}, load: {ratio(lambda: dataset.load(folder), read, size.rounds)}")
    print(f"{name}, batch of {size.batch}: {ratio(lambda: private.inputs(drawn, 'cpu'), rows.clone, size.rounds)}")


def main(size: Size) -> list[Aim]:
    if size.data == GENERATED:
        with tempfile.TemporaryDirectory() as place:
            made = write_mnist(Path(place))
            measure("mnist", made.folder, size, dict(made.checksums))
    elif size.data:
        for name in size.names:
            measure(name, Path(size.data), size, {})
    else:
        print("skipped: neither --data nor DPSWEEP_DATA names a folder with the official files")
    return []


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, batch=10, data=GENERATED), about=__doc__)
