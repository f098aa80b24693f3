"""Records as tensors, and the public constants that turn them into a model's inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Index: TypeAlias = NDArray[np.int64] | NDArray[np.bool_] | slice


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The records of one part of a data set.

    Shapes: features [n, *shape] of uint8 or float32 as stored, labels [n] of int64; n may be 0.
    Guarantee: every input is a function of its own record and of public constants alone.
    """

    features: torch.Tensor
    labels: torch.Tensor
    scaling: Scaling = Scaling()

    def __post_init__(self) -> None:
        if str(self.features.dtype) not in ("torch.uint8", "torch.float32"):
            raise ValueError(f"Expected features.dtype={self.features.dtype} in (torch.uint8, torch.float32).")
        if str(self.labels.dtype) != "torch.int64":
            raise ValueError(f"Expected labels.dtype={self.labels.dtype} == torch.int64.")
        if self.labels.shape != self.features.shape[:1]:
            raise ValueError(f"Expected labels.shape={tuple(self.labels.shape)} == ({len(self.features)},).")

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def inputs(self, index: Index, device: torch.device | str) -> torch.Tensor:
        """The scaled float32 inputs [k, *shape] of the records at `index`, on `device`; k may be 0."""
        import torch

        raw = self.features[_native(index)].to(device=device, dtype=torch.float32)
        return raw.div(self.scaling.scale).sub_(self.scaling.mean).div_(self.scaling.std)

    def targets(self, index: Index, device: torch.device | str) -> torch.Tensor:
        """The int64 labels [k] of the records at `index`, on `device`."""
        return self.labels[_native(index)].to(device=device)

    def select(self, index: Index) -> Records:
        """The records at `index`, in its order."""
        native = _native(index)
        return replace(self, features=self.features[native], labels=self.labels[native])

    def to(self, device: torch.device | str) -> Records:
        """The same records, stored on `device`."""
        return replace(self, features=self.features.to(device), labels=self.labels.to(device))


def _native(index: Index) -> torch.Tensor | slice:
    """The index as torch takes it: numpy's masks and positions, or a slice."""
    import torch

    return index if isinstance(index, slice) else torch.from_numpy(np.ascontiguousarray(index))
