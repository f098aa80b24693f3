"""Frozen features on disk: computed once per record and extractor, and shared by the jobs and sweeps of one user.

Features are as sensitive as the records, so only their owner can read the folder. A shard holds the features of up to
`ROWS` consecutive records, and its name is a digest of these records: features of other records, or of changed ones,
are never taken for theirs. A computation that is killed continues at the first missing shard; two jobs divide the
missing shards between them.

Every record passes the extractor alone, in a buffer of its own: kernels round a row of a larger array by its memory
alignment. So its features depend on no other record, not even in their last bits. Before a charge, and on random inputs
alone, it is checked that an extractor treats each record on its own.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, mode_with_group
from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.arrays_on_disk import write_recomputable_file
from dpsweep.trainers.data.records import FeatureRows
from dpsweep.trainers.features.extracted import ROWS, SUFFIX
from dpsweep.trainers.user_modules import error_as_one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.features.extracted import Extracted
    from dpsweep.trainers.features.interface import InputForm

PROBES = 4
TOLERANCE = 1e-3
"""Relative to the norm of a row: float32 rounds differently in batches of other sizes."""

_SEED = 20140620


def checked_probe_features(dataset: Extracted) -> Tensor:
    """The features [4, size] of the probes.

    Errors: ValueError, one sentence, if the features of one input depend on the rest of a batch, on earlier batches or
    on torch's global generator, or are of another size than declared.
    """
    module, extractor = dataset.extractor_module(), dataset.extractor
    batch, before = random_probe_inputs(dataset.input_form), copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        features = _features_of_batch(module, batch)
        if features.shape[1] != extractor.size:
            raise ValueError(f"Expected features.size={extractor.size} == {features.shape[1]}, what is computed.")
        for others in (
            torch.cat([_features_of_batch(module, one[None]) for one in batch]),
            _features_of_batch(module, batch.flip(0)).flip(0),
            _features_of_batch(module, batch),
        ):
            if not are_features_close(features, others, extractor.norm):
                raise ValueError(
                    f"Expected {dataset.extractor_class_name} to give a record the same features in every batch."
                )
        if not torch.equal(state, torch.get_rng_state()):
            raise ValueError(f"Expected {dataset.extractor_class_name} to draw nothing from torch's global generator.")
    after = module.state_dict()
    if before.keys() != after.keys() or not all(torch.equal(after[name], old) for name, old in before.items()):
        raise ValueError(f"Expected {dataset.extractor_class_name} to keep no statistics of its inputs.")
    return features


def are_features_close(some: Tensor, others: Tensor, norm: float) -> bool:
    """Whether two arrays of features are equal but for rounding."""
    return some.shape == others.shape and torch.allclose(some, others, rtol=TOLERANCE, atol=TOLERANCE * norm)


def random_probe_inputs(form: InputForm) -> Tensor:
    """Random inputs [4, *form.shape] instead of records: token numbers of its vocabulary, or numbers in [0, 1]."""
    generator = torch.Generator().manual_seed(_SEED)
    shape = (PROBES, *form.shape)
    if form.preprocessing is not None and form.raw_record_kind == "tokens":
        return torch.randint(form.preprocessing["words"], shape, generator=generator).float()
    return torch.rand(shape, generator=generator)


def _features_of_batch(module: nn.Module, batch: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            features: Tensor = module(batch)
    except Exception as error:  # the user's own code may raise anything
        reason = error_as_one_line(error)
        raise ValueError(f"Expected an extractor of inputs of shape {list(batch.shape)}: {reason}.") from error
    return features


PROBES_FILE = f"probes{SUFFIX}"
TENSOR, RECORDS, SHA256 = "features", "records", "sha256"


@dataclass(frozen=True, kw_only=True)
class FeatureCache:
    """Folders of features, one for each extractor and form of inputs; `root` is for its owner alone.

    `on_rows` receives the number of records done and their total after each shard; it may raise to end the computation.
    """

    root: Path
    device: str = "cpu"
    on_rows: Callable[[int, int], None] = field(default=lambda done, total: None, compare=False)

    def check_stored_features(self, dataset: Extracted, probes: Tensor) -> None:
        """Refuse features on disk that are damaged, or of other records, or by other code than now computes `probes`.

        Errors: `BadInput`, one sentence that says what to delete.
        """
        folder = dataset.features_folder(self.root)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if _read_rows_or_none(path) is None:
                raise BadInput(
                    f"Expected {path} to hold the features of the records that it is named after: it is damaged, or "
                    "from other data. Delete it, and its features are computed again."
                )
        before = _read_rows_or_none(folder / PROBES_FILE)
        if before is not None and not are_features_close(before, probes, dataset.extractor.norm):
            raise BadInput(
                f"Expected {dataset.extractor_class_name} to compute the features in {folder}: its code has changed "
                "since. Delete "
                "this folder, and the features are computed again."
            )

    def load_or_compute_features(
        self, dataset: Extracted, records: Records, digests: NDArray[np.uint8]
    ) -> Tensor | FeatureRows:
        """The features [n, size] of these records, which have these digests [n, 32].

        Those of records on disk stay on disk, in the files of this cache; raises OSError if there is no room for them.
        """
        folder = dataset.features_folder(self.root)
        shards = [
            _Shard.for_rows_starting_at(folder, records, digests, first) for first in range(0, len(records), ROWS)
        ]
        shape = (len(records), dataset.extractor.size)
        features = None if records.is_on_disk else torch.empty(shape)
        self._fill_from_shards(dataset, records, shards, features)
        if features is not None:
            return features
        array = FeaturesOnDisk(paths=tuple(shard.path for shard in shards), shape=shape, rows=ROWS)
        return FeatureRows(array=array, positions=np.arange(len(records)))

    def _fill_from_shards(
        self, dataset: Extracted, records: Records, shards: list[_Shard], features: Tensor | None
    ) -> None:
        """Reads the shards into `features` [n, size], or checks them alone, and computes those that are missing.

        Errors: OSError if there is no room for a shard, and `features` is None, so that they have no other place.
        """
        folder, size = dataset.features_folder(self.root), dataset.extractor.size
        missing = [shard for shard in shards if not shard.try_to_read_rows_into(features, size)]
        if not missing:
            return
        with suppress(OSError):
            make_folder_and_missing_parents(folder)
        keeps = os.access(folder, os.W_OK | os.X_OK)
        if keeps and not (folder / PROBES_FILE).exists():
            with suppress(OSError):
                _write_rows(folder / PROBES_FILE, checked_probe_features(dataset))
        module = dataset.extractor_module().to(self.device)
        done = len(records) - sum(shard.number_of_rows for shard in missing)
        self.on_rows(done, len(records))
        for shard in _order_unlocked_shards_first(missing) if keeps else missing:
            with shard.lock if keeps else nullcontext():
                if not shard.try_to_read_rows_into(features, size):
                    rows = self._compute_features_of_slice(module, records, shard.place)
                    if features is not None:
                        features[shard.place] = rows
                    with nullcontext() if features is None else suppress(OSError):
                        _write_rows(shard.path, rows)
                        Path(shard.lock.lock_file).unlink(missing_ok=True)
            done += shard.number_of_rows
            self.on_rows(done, len(records))

    def _compute_features_of_slice(self, module: nn.Module, records: Records, place: slice) -> Tensor:
        """The features of the records at a place, each computed alone from a fresh copy."""
        with torch.inference_mode():
            inputs = records.inputs(place, self.device)
            rows: Tensor = torch.cat([module(one.clone()[None]) for one in inputs])
            return rows.cpu()


@dataclass(frozen=True, kw_only=True, eq=False)
class FeaturesOnDisk:
    """The features [n, size] in shards of so many `rows`; each batch opens the shards that it reads."""

    paths: tuple[Path, ...]
    shape: tuple[int, ...]
    rows: int
    dtype: torch.dtype = torch.float32

    def read_rows(self, positions: NDArray[np.int64]) -> Tensor:
        """The rows at these positions [k, size], in their order."""
        features = torch.empty(len(positions), self.shape[1])
        order = np.argsort(positions, kind="stable")
        shards, firsts = np.unique(positions[order] // self.rows, return_index=True)
        ends = np.append(firsts, len(order))[1:]
        for shard, first, end in zip(shards.tolist(), firsts, ends, strict=True):
            with safe_open(self.paths[shard], "pt") as stored:
                slices = stored.get_slice(TENSOR)
                for place in order[first:end].tolist():
                    row = int(positions[place]) - shard * self.rows
                    features[place] = slices[row : row + 1][0]
        return features

    def read_ahead(self, positions: NDArray[np.int64]) -> None:
        """Does nothing: features are small beside the work of computing them."""

    def known_hashes(self, key: bytes) -> NDArray[np.uint8] | None:
        """None: the digests of the records decide their parts."""


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """A file of features, the place of its records in the data set, and the lock of the job that computes it."""

    path: Path
    place: slice
    lock: FileLock

    @classmethod
    def for_rows_starting_at(cls, folder: Path, records: Records, digests: NDArray[np.uint8], first: int) -> _Shard:
        place = slice(first, min(first + ROWS, len(digests)))
        name = sha256(repr(records.scaling).encode() + digests[place].tobytes()).hexdigest()
        path = folder / f"{name}{SUFFIX}"
        return cls(path=path, place=place, lock=FileLock(path.with_suffix(".lock"), mode=mode_with_group(path)))

    @property
    def number_of_rows(self) -> int:
        return int(self.place.stop - self.place.start)

    def try_to_read_rows_into(self, features: Tensor | None, size: int) -> bool:
        """Whether rows of this size are on the disk; they are copied to their place in `features`, if there are any."""
        rows = _read_rows_or_none(self.path)
        if rows is None or rows.shape != (self.number_of_rows, size):
            return False
        if features is not None:
            features[self.place] = rows
        return True


def _order_unlocked_shards_first(missing: list[_Shard]) -> Iterator[_Shard]:
    """The missing shards, those last that another job computes now."""
    later = []
    for shard in missing:
        try:
            with shard.lock.acquire(timeout=0):
                yield shard
        except Timeout:
            later.append(shard)
    yield from later


def _write_rows(path: Path, rows: Tensor) -> None:
    """Writes a tensor by one atomic rename, readable by its owner alone."""
    rows = rows.contiguous()
    write_recomputable_file(path, save({TENSOR: rows}, {RECORDS: path.stem, SHA256: _sha256_of_rows(rows)}))


def _read_rows_or_none(path: Path) -> Tensor | None:
    """The rows of a file; None if it is missing, damaged, or under another name than it was written under."""
    try:
        with safe_open(path, "pt") as stored:
            metadata, rows = stored.metadata() or {}, stored.get_tensor(TENSOR)
    except (OSError, SafetensorError):
        return None
    return rows if metadata == {RECORDS: path.stem, SHA256: _sha256_of_rows(rows)} else None


def _sha256_of_rows(rows: Tensor) -> str:
    return sha256(rows.numpy().tobytes()).hexdigest()
