"""Answers of models and records whose metrics are known, for the tests of metrics."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dpsweep.accounting.stored_names import tags
from dpsweep.trainers.data.records import Records

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
