"""Answers of models and records whose metrics are known, for the tests of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from dpsweep.accounting.stored_names import tags
from dpsweep.trainers.data.records import Records, Units

NAMES = sorted(tag for tag, family in tags.FAMILY_OF.items() if family == "metric")


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def answering(outputs: np.ndarray, labels: np.ndarray) -> tuple[nn.Module, Records]:
    """A model that gives these outputs, and the records that it gives them for."""
    return nn.Identity(), Records(
        features=torch.as_tensor(outputs, dtype=torch.float32), labels=torch.as_tensor(labels, dtype=torch.int64)
    )


def scored(scores: np.ndarray, labels: np.ndarray) -> tuple[nn.Module, Records]:
    """A model that says that each record is positive with this probability."""
    return answering(np.stack([np.log1p(-scores), np.log(scores)], axis=1), labels)


class Rounding(nn.Module):
    """Rounds an output by its place in the pass, as kernels do, so that a prediction at a tie depends on the place."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        moved = torch.arange(len(values)) * 0.618 % 1 - 0.5
        return values + 1e-7 * moved[:, None] * torch.linspace(-1, 1, values.shape[1])


class Coupled:
    """A generator whose every draw begins anew, so that records that stay where they are draw what they drew before."""

    def __init__(self, seed: int, skip: int = 0) -> None:
        self.seed, self.skip = seed, skip

    def __getattr__(self, name: str) -> Any:
        fresh = np.random.Generator(np.random.Philox(self.seed))
        fresh.integers(64, size=self.skip)
        return getattr(fresh, name)


def tied(count: int, units: int = 0, classes: int = 2) -> Records:
    """Records whose predictions are all at a tie, each of them a unit, or of so many units of several records."""
    records = Records(features=torch.zeros(count, classes), labels=torch.arange(count) % classes)
    if not units:
        return records
    of = np.arange(count) * units // count
    return replace(records, units=Units(names=tuple(str(unit).encode() for unit in range(units)), of=of))


def neighbours(records: Records, *, first: bool) -> Iterator[tuple[Records, int]]:
    """The records without the first or last unit, and with it, each with the draws to skip for the others' places."""
    added = 1 if records.units is None else int(records.units.records_per_unit[0])
    yield records.select(slice(added, None) if first else slice(None, -added)), added if first else 0
    yield records, 0
