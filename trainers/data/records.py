"""Records as tensors, the public constants that turn them into a model's inputs, and the units that they belong to.

Selected records share the array of all features and have positions in it, so that a split copies none. The array lies
in memory or on disk; a batch reads its own rows alone.

A unit is a person (patient, user) with one record or several. The guarantee for a unit rests on three facts, which this
module and `split` ensure. A unit's records stay together in every sample and in the holdout. The contribution cap
selects a unit's records from these records alone. Nothing about a unit depends on another unit, so adding or removing
it changes no other unit's part, records or weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from dpsweep.accounting.codec import positive_int
from dpsweep.trainers.data.places import BLANK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    Index: TypeAlias = NDArray[np.int64] | NDArray[np.bool_] | slice

CONTRIBUTION_KEY = b"dpsweep contribution 1"
CONTRIBUTION_BYTES = 16

_BLOCK = 2**22
"""Numbers that are read at a time where all records are passed once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """The unit of each of n records.

    `names` are the units' distinct identifiers, as bytes; `of` [n] gives each record's index into them. Every unit
    has a record: a sampler would otherwise draw units that are not in the data set.
    """

    names: tuple[bytes, ...]
    of: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Expected names={len(self.names)} identifiers to be distinct.")
        if self.of.dtype != np.int64 or self.of.ndim != 1:
            raise ValueError(f"Expected of={self.of.dtype} {self.of.shape} to be int64 [n].")
        if not np.array_equal(np.unique(self.of), np.arange(len(self.names))):
            raise ValueError(f"Expected of to name each of the {len(self.names)} units, and no others.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def records_per_unit(self) -> NDArray[np.int64]:
        """The number of records of each unit."""
        return np.bincount(self.of, minlength=len(self))

    def units_of_selected_records(self, index: Index) -> Units:
        """The units of the records at `index`; units without a record there are left out."""
        kept, of = np.unique(self.of[index], return_inverse=True)
        return Units(names=tuple(self.names[unit] for unit in kept), of=of.astype(np.int64, copy=False))

    @cached_property
    def _records_by_unit(self) -> NDArray[np.int64]:
        """All records, unit after unit."""
        return np.argsort(self.of, kind="stable")

    def records_at_places(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The records of units at places [places], each unit's in their order: [slots, places], `BLANK` elsewhere.

        There are as many slots as the largest of these units has records, at least 1.
        """
        sizes = np.where(units == BLANK, 0, self.records_per_unit[units])
        slots = np.arange(max(1, int(sizes.max(initial=0))))[:, None]
        starts = np.cumsum(self.records_per_unit) - self.records_per_unit
        positions = np.where(slots < sizes, starts[units] + slots, 0)
        return np.where(slots < sizes, self._records_by_unit[positions], BLANK)


def assign_units_and_cap_records(records: Records, identifiers: Sequence[bytes], cap: int) -> Records:
    """The records with the units that `identifiers` [n] name, at most `cap` per unit; equal identifiers are one unit.

    Guarantee: a unit keeps the records whose contents have the smallest public keyed hashes. This choice is a function
    of the unit's own records alone, independent of their order and of all other units.
    """
    positive_int("cap", cap)
    places = {name: place for place, name in enumerate(dict.fromkeys(identifiers))}
    units = Units(names=tuple(places), of=np.array([places[name] for name in identifiers], dtype=np.int64))
    high, low = np.ascontiguousarray(records.keyed_hashes(CONTRIBUTION_KEY, CONTRIBUTION_BYTES)).view(">u8").T
    order = np.lexsort((low, high, units.of))
    sizes = np.bincount(units.of, minlength=len(units))
    rank = np.arange(len(records)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return replace(records, units=units).select(np.sort(order[rank < cap]))


DIGEST_BYTES = 32

IGNORED = -1
"""The label of a position of a sequence that has none."""


def next_token_targets(tokens: NDArray[np.float32], padding: int) -> NDArray[np.int64]:
    """The token after each [n, length]; `IGNORED` where only padding follows.

    >>> next_token_targets(np.array([[5, 6, 7, 0], [5, 0, 6, 0]], dtype=np.float32), 0).tolist()
    [[6, 7, -1, -1], [0, 6, -1, -1]]
    """
    follows = np.full(tokens.shape, IGNORED, dtype=np.int64)
    follows[:, :-1] = tokens[:, 1:]
    is_last_part = np.logical_and.accumulate((tokens == padding)[:, ::-1], axis=1)[:, ::-1]
    follows[:, :-1][is_last_part[:, 1:]] = IGNORED
    return follows


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The map x -> (x / scale - mean) / std by public constants, the same for every record."""

    scale: float = 1.0
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("scale", self.scale), ("std", self.std)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"Expected {name}={value} > 0 and finite.")
        if not math.isfinite(self.mean):
            raise ValueError(f"Expected mean={self.mean} finite.")


class ArrayOnDisk(Protocol):
    """The features of all records of a file, stored as `Records` would hold them, and read row by row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[m, *shape]."""

    @property
    def dtype(self) -> torch.dtype:
        """uint8 or float32, the type of the rows that are read."""

    def read_rows(self, positions: NDArray[np.int64]) -> torch.Tensor:
        """The rows at these positions [k, *shape], in their order."""

    def read_ahead(self, positions: NDArray[np.int64]) -> None:
        """Begins to read these rows, which are asked for next; does not wait for them."""

    def known_hashes(self, key: bytes) -> NDArray[np.uint8] | None:
        """The hashes by this public key of all records of the file [m, size], if they are known."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureRows:
    """The features of selected records: the rows of `array` [m, *shape] at `positions` [n], none of them copied."""

    array: torch.Tensor | ArrayOnDisk
    positions: NDArray[np.int64]

    @property
    def shape(self) -> torch.Size:
        """[n, *shape]."""
        import torch

        return torch.Size((len(self.positions), *self.array.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """The type of the array."""
        return self.array.dtype

    @property
    def is_on_disk(self) -> bool:
        """Whether rows are read from disk."""
        import torch

        return not isinstance(self.array, torch.Tensor)

    def gather(self, index: Index) -> torch.Tensor:
        """A copy of the rows at `index` of the selected ones; torch gathers fastest by positions."""
        import torch

        positions = np.ascontiguousarray(self.positions[index])
        if isinstance(self.array, torch.Tensor):
            return self.array.index_select(0, torch.from_numpy(positions).to(self.array.device))
        return self.array.read_rows(positions)

    def read_ahead(self, index: Index) -> None:
        """Begins to read the rows at `index` of the selected ones, if they are on disk."""
        import torch

        if not isinstance(self.array, torch.Tensor):
            self.array.read_ahead(self.positions[index])

    def known_hashes(self, key: bytes) -> NDArray[np.uint8] | None:
        """The hashes by this public key of the selected records [n, size], if the array on disk knows them."""
        import torch

        known = None if isinstance(self.array, torch.Tensor) else self.array.known_hashes(key)
        return None if known is None else np.asarray(known[self.positions])

    def select(self, index: Index) -> FeatureRows:
        """The rows at `index` of the selected ones."""
        return replace(self, positions=self.positions[index])

    def to(self, device: torch.device | str) -> torch.Tensor | FeatureRows:
        """The same rows on `device`; those of an array on disk, or on this device already, stay where they are."""
        import torch

        if not isinstance(self.array, torch.Tensor) or self.array.device == torch.device(device):
            return self
        return self.gather(slice(None)).to(device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The records of one part of a data set.

    Shapes: features [n, *shape] of uint8 or float32 as stored, or rows of such an array where records were selected;
    labels [n] of int64 for classes, of float32 for numbers, [n, k] of float32 for k labels of 0 or 1, or [n, *shape] of
    int64 with a label for each position; n may be 0. `units` is None if every record is its own unit. `stored` has the
    digests of the records that the features were computed from, uint8 [n, 32]; None if the features are the stored
    ones. `nonzero` is about how many inputs of a record are not 0, a public number that the data set declares where
    most inputs are 0; otherwise None.
    Guarantee: every input is a function of its own record and of public constants alone.
    """

    features: torch.Tensor | FeatureRows
    labels: torch.Tensor
    scaling: Scaling = Scaling()
    units: Units | None = None
    stored: NDArray[np.uint8] | None = None
    nonzero: int | None = None

    def __post_init__(self) -> None:
        if str(self.features.dtype) not in ("torch.uint8", "torch.float32"):
            raise ValueError(f"Expected features.dtype={self.features.dtype} in (torch.uint8, torch.float32).")
        if str(self.labels.dtype) not in ("torch.int64", "torch.float32"):
            raise ValueError(f"Expected labels.dtype={self.labels.dtype} in (torch.int64, torch.float32).")
        several = str(self.labels.dtype) == "torch.float32" and self.labels.ndim == 2
        if self.labels.shape[: 1 if several else None] not in (self.features.shape[:1], self.features.shape):
            raise ValueError(f"Expected labels.shape={tuple(self.labels.shape)} == ({self.features.shape[0]},).")
        if self.units is not None and len(self.units.of) != len(self):
            raise ValueError(f"Expected units.of={len(self.units.of)} entries for {len(self)} records.")
        if self.nonzero is not None and (str(self.features.dtype) != "torch.uint8" or self.scaling.mean != 0):
            raise ValueError(f"Expected nonzero={self.nonzero} to be None unless features are counts and a 0 stays 0.")
        if self.stored is not None and self.stored.shape != (len(self), DIGEST_BYTES):
            raise ValueError(f"Expected stored={self.stored.shape} to be [{len(self)}, {DIGEST_BYTES}].")

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record's inputs."""
        return tuple(self.features.shape[1:])

    @property
    def is_on_disk(self) -> bool:
        """Whether the features are read from disk, batch by batch."""
        return self._rows.is_on_disk

    @cached_property
    def _rows(self) -> FeatureRows:
        """The features as rows of an array, those of a tensor at all of its positions."""
        if isinstance(self.features, FeatureRows):
            return self.features
        return FeatureRows(array=self.features, positions=np.arange(len(self)))

    def stored_features(self, index: Index = slice(None)) -> torch.Tensor:
        """A copy of the features [k, *shape] of the records at `index`, as stored."""
        return self._rows.gather(index)

    def read_ahead(self, drawn: NDArray[np.int64]) -> None:
        """Begins to read the records of the drawn units, which are asked for next, if they are on disk."""
        records = self.records_at_places(drawn)
        self._rows.read_ahead(records[records != BLANK])

    def inputs(self, index: Index, device: torch.device | str) -> torch.Tensor:
        """The scaled float32 inputs [k, *shape] of the records at `index`, on `device`; k may be 0."""
        import torch

        inputs = self.stored_features(index).to(device=device, dtype=torch.float32)
        return inputs.div_(self.scaling.scale).sub_(self.scaling.mean).div_(self.scaling.std)

    def targets(self, index: Index, device: torch.device | str) -> torch.Tensor:
        """The labels [k] or [k, *shape] of the records at `index`, on `device`."""
        return self.labels[_index_for_torch(index)].to(device=device)

    def bytes_of_each_record(self) -> Iterator[bytes]:
        """Each record's label and stored features as little-endian bytes, or their digests; alike on every machine."""
        if self.stored is not None:
            return (digest.tobytes() for digest in self.stored)
        return self._label_and_feature_bytes_of_each_record()

    def _label_and_feature_bytes_of_each_record(self) -> Iterator[bytes]:
        for labels, features in self._labels_and_features_in_blocks():
            yield from (label.tobytes() + row.tobytes() for label, row in zip(labels, features, strict=True))

    def _labels_and_features_in_blocks(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.generic]]]:
        """The labels and stored features of all records, some at a time, as little-endian numbers."""
        size = max(1, _BLOCK // max(1, math.prod(self.input_shape)))
        for start in range(0, len(self), size):
            block = slice(start, start + size)
            yield tuple(  # type: ignore[misc]
                array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
                for array in (self.labels[block].cpu().numpy(), self._rows.gather(block).cpu().numpy())
            )

    def keyed_hashes(self, key: bytes, size: int) -> NDArray[np.uint8]:
        """The hash of each record's contents by a public key, uint8 [n, size].

        Those of records on disk are kept from the pass that checked the file, so that it is not read again.
        """
        if self.stored is None and (known := self._rows.known_hashes(key)) is not None:
            return known
        hashes = b"".join(
            blake2b(content, digest_size=size, key=key).digest() for content in self.bytes_of_each_record()
        )
        return np.frombuffer(hashes, dtype=np.uint8).reshape(len(self), size)

    def digest_of_each_record(self) -> NDArray[np.uint8]:
        """A digest of each record's contents, uint8 [n, 32]."""
        digests = b"".join(
            blake2b(content, digest_size=DIGEST_BYTES).digest() for content in self.bytes_of_each_record()
        )
        return np.frombuffer(digests, dtype=np.uint8).reshape(len(self), DIGEST_BYTES)

    @property
    def number_of_units(self) -> int:
        """The number of units that a sampler draws from."""
        return len(self) if self.units is None else len(self.units)

    def records_at_places(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The records of units at places [places]: [slots, places], with one slot if every record is its own unit."""
        return units[None] if self.units is None else self.units.records_at_places(units)

    def mean_quality_of_each_unit(self, qualities: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of each unit's records' `qualities` [n]."""
        if self.units is None:
            return qualities
        return np.bincount(self.units.of, qualities, minlength=len(self.units)) / self.units.records_per_unit

    @property
    def weight_of_each_record_in_unit(self) -> NDArray[np.float64]:
        """The weight of each record [n] in its unit; the weights of one unit add up to 1."""
        return np.ones(len(self)) if self.units is None else 1 / self.units.records_per_unit[self.units.of]

    def select(self, index: Index) -> Records:
        """The records at `index`, in its order, with their units; their features are not copied."""
        units = None if self.units is None else self.units.units_of_selected_records(index)
        stored = None if self.stored is None else self.stored[index]
        labels = self.labels[_index_for_torch(index)]
        return replace(self, features=self._rows.select(index), labels=labels, units=units, stored=stored)

    def to(self, device: torch.device | str) -> Records:
        """The same records, stored on `device`."""
        return replace(self, features=self.features.to(device), labels=self.labels.to(device))


def _index_for_torch(index: Index) -> torch.Tensor | slice:
    """The index in a form that torch accepts: masks and positions as tensors, a slice unchanged."""
    import torch

    return index if isinstance(index, slice) else torch.from_numpy(np.ascontiguousarray(index))
