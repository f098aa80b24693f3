"""The check that a frozen extractor treats each record on its own, before a charge and on random inputs alone."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from dpsweep.trainers.features.extracted import Extracted
    from dpsweep.trainers.features.interface import InputForm

PROBES = 4
TOLERANCE = 1e-3
"""Relative to the norm of a row: float32 rounds differently in batches of other sizes."""

_SEED = 20140620


def check_features(dataset: Extracted) -> Tensor:
    """The features [4, size] of the probes.

    Errors: ValueError, one sentence, if the features of one input depend on the rest of a batch, on earlier batches or
    on torch's global generator, or are of another size than declared.
    """
    module, extractor = dataset.module(), dataset.extractor
    batch, before, state = probes_of(dataset.form), copy.deepcopy(module.state_dict()), torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        features = _features(module, batch)
        if features.shape[1] != extractor.size:
            raise ValueError(f"Expected features.size={extractor.size} == {features.shape[1]}, what is computed.")
        for others in (
            torch.cat([_features(module, one[None]) for one in batch]),
            _features(module, batch.flip(0)).flip(0),
            _features(module, batch),
        ):
            if not same(features, others, extractor.norm):
                raise ValueError(f"Expected {dataset.label} to give a record the same features in every batch.")
        if not torch.equal(state, torch.get_rng_state()):
            raise ValueError(f"Expected {dataset.label} to draw nothing from torch's global generator.")
    after = module.state_dict()
    if before.keys() != after.keys() or not all(torch.equal(after[name], old) for name, old in before.items()):
        raise ValueError(f"Expected {dataset.label} to keep no statistics of its inputs.")
    return features


def same(some: Tensor, others: Tensor, norm: float) -> bool:
    """Whether two arrays of features are equal but for rounding."""
    return some.shape == others.shape and torch.allclose(some, others, rtol=TOLERANCE, atol=TOLERANCE * norm)


def probes_of(form: InputForm) -> Tensor:
    """Random inputs [4, *form.shape] instead of records: token numbers of its vocabulary, or numbers in [0, 1]."""
    generator = torch.Generator().manual_seed(_SEED)
    shape = (PROBES, *form.shape)
    if form.preprocessing is not None and form.kind == "tokens":
        return torch.randint(form.preprocessing["words"], shape, generator=generator).float()
    return torch.rand(shape, generator=generator)


def _features(module: nn.Module, batch: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            features: Tensor = module(batch)
    except Exception as error:  # the user's own code may raise anything
        line = " ".join(str(error).split())
        raise ValueError(f"Expected an extractor of inputs of shape {list(batch.shape)}: {line}.") from error
    return features
