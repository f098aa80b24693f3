"""Frozen features on disk: computed once per record and extractor, and shared by the jobs and sweeps of one user.

Features are as sensitive as the records, so only their owner can read the folder. A shard holds the features of up to
`ROWS` consecutive records, and its name is a digest of these records: features of other records, or of changed ones,
are never taken for theirs. A computation that is killed continues at the first missing shard; two jobs divide the
missing shards between them.

Every record passes the extractor alone. So its features depend on no other record, not even in their last bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.json_files import remove_stale
from dpsweep.trainers.features.checks import check_features, same
from dpsweep.trainers.features.extracted import ROWS, SUFFIX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.features.extracted import Extracted

PROBES = f"probes{SUFFIX}"
TENSOR, RECORDS, SHA256 = "features", "records", "sha256"
PRIVATE, FOLDER = 0o600, 0o700


def _ignore(done: int, total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class FeatureCache:
    """Folders of features, one for each extractor and form of inputs; `root` is for its owner alone.

    `on_rows` receives the number of records done and their total after each shard; it may raise to end the computation.
    """

    root: Path
    device: str = "cpu"
    on_rows: Callable[[int, int], None] = field(default=_ignore, compare=False)

    def check(self, dataset: Extracted, probes: Tensor) -> None:
        """Refuse features on disk that are damaged, or of other records, or by other code than now computes `probes`.

        Errors: `BadInput`, one sentence that says what to delete.
        """
        folder = dataset.folder(self.root)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if _read(path) is None:
                raise BadInput(
                    f"Expected {path} to hold the features of the records that it is named after: it is damaged, or "
                    "from other data. Delete it, and its features are computed again."
                )
        before = _read(folder / PROBES)
        if before is not None and not same(before, probes, dataset.extractor.norm):
            raise BadInput(
                f"Expected {dataset.label} to compute the features in {folder}: its code has changed since. Delete "
                "this folder, and the features are computed again."
            )

    def features(self, dataset: Extracted, records: Records, digests: NDArray[np.uint8]) -> Tensor:
        """The features [n, size] of these records, which have these digests [n, 32]."""
        folder = dataset.folder(self.root)
        shards = [_Shard.of(folder, records, digests, first) for first in range(0, len(records), ROWS)]
        features = torch.empty(len(records), dataset.extractor.size)
        missing = [shard for shard in shards if not shard.read(features)]
        if not missing:
            return features
        keeps = _made_private(folder)
        if keeps and not (folder / PROBES).exists():
            with suppress(OSError):
                _write(folder / PROBES, check_features(dataset))
        module = dataset.module().to(self.device)
        done = len(records) - sum(shard.rows for shard in missing)
        self.on_rows(done, len(records))
        for shard in _in_turn(missing) if keeps else missing:
            with shard.lock if keeps else nullcontext():
                if not shard.read(features):
                    features[shard.place] = self._computed(module, records, shard.place)
                    with suppress(OSError):  # without room on the disk they are computed again next time
                        _write(shard.path, features[shard.place])
                        Path(shard.lock.lock_file).unlink()
            done += shard.rows
            self.on_rows(done, len(records))
        return features

    def _computed(self, module: nn.Module, records: Records, place: slice) -> Tensor:
        """The features of the records at a place, each computed alone."""
        with torch.inference_mode():
            inputs = records.inputs(place, self.device)
            rows: Tensor = torch.cat([module(one[None]) for one in inputs])
            return rows.cpu()


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """A file of features, the place of its records in the data set, and the lock of the job that computes it."""

    path: Path
    place: slice
    lock: FileLock

    @classmethod
    def of(cls, folder: Path, records: Records, digests: NDArray[np.uint8], first: int) -> _Shard:
        place = slice(first, min(first + ROWS, len(digests)))
        name = sha256(repr(records.scaling).encode() + digests[place].tobytes()).hexdigest()
        path = folder / f"{name}{SUFFIX}"
        return cls(path=path, place=place, lock=FileLock(path.with_suffix(".lock"), mode=PRIVATE))

    @property
    def rows(self) -> int:
        return int(self.place.stop - self.place.start)

    def read(self, features: Tensor) -> bool:
        """Copies the rows from the disk to their place in `features`, if they are there."""
        rows = _read(self.path)
        if rows is None or rows.shape != features[self.place].shape:
            return False
        features[self.place] = rows
        return True


def _in_turn(missing: list[_Shard]) -> Iterator[_Shard]:
    """The missing shards, those last that another job computes now."""
    later = []
    for shard in missing:
        try:
            shard.lock.acquire(timeout=0)
        except Timeout:
            later.append(shard)
            continue
        try:
            yield shard
        finally:
            shard.lock.release()
    yield from later


def _write(path: Path, rows: Tensor) -> None:
    """Writes a tensor by one atomic rename, readable by its owner alone."""
    remove_stale(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    rows = rows.contiguous()
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE), "wb") as stream:
            stream.write(save({TENSOR: rows}, {RECORDS: path.stem, SHA256: _digest(rows)}))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path) -> Tensor | None:
    """The rows of a file; None if it is missing, damaged, or under another name than it was written under."""
    try:
        with safe_open(path, "pt") as stored:
            metadata, rows = stored.metadata() or {}, stored.get_tensor(TENSOR)
    except (OSError, SafetensorError):
        return None
    return rows if metadata == {RECORDS: path.stem, SHA256: _digest(rows)} else None


def _digest(rows: Tensor) -> str:
    return sha256(rows.numpy().tobytes()).hexdigest()


def _made_private(folder: Path) -> bool:
    """Makes the folder for its owner alone; returns whether files can be kept in it."""
    with suppress(OSError):
        make_folder(folder)
    return os.access(folder, os.W_OK | os.X_OK)
