"""Recognition of single events: Gaussian steps, fixed-size batches, epochs and output perturbation."""

from __future__ import annotations

from dpsweep.accounting.events.types import (
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    SampledWithoutReplacementDpEvent,
    StatedGaussianDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency

EPOCHS = (EpochDpEvent, RandomAllocationDpEvent)
"""Events of several steps at once."""


def as_gaussian_step(event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or with rate 1; else None.

    The noise multiplier is relative to the norm bound of one record, for every `adjacency`. If replacement is known to
    change the sum by no more than this bound, the noise multiplier counts twice. A non-private access is (1.0, 0.0).
    """
    if type(event) is NonPrivateDpEvent:
        return 1.0, 0.0
    if isinstance(event, (GaussianDpEvent, EpochDpEvent)):
        return 1.0, float(event.noise_multiplier)
    if type(event) is StatedGaussianDpEvent and event.adjacency in (None, adjacency):
        return 1.0, event.noise_multiplier * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
    if type(event) is PoissonSampledDpEvent and type(event.event) is GaussianDpEvent:
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def as_epoch(event: DpEvent) -> tuple[int, float] | None:
    """(steps, noise_multiplier) of an epoch in which every record takes part once; else None."""
    return (event.steps, event.noise_multiplier) if isinstance(event, EPOCHS) else None


def is_allocation(event: DpEvent) -> bool:
    """Whether the event is an epoch in which every record takes part in a secret, random step."""
    return isinstance(event, RandomAllocationDpEvent)


def output_noise(event: DpEvent) -> float | None:
    """The noise multiplier of noise on a finished model, whose sensitivity was proved for one adjacency; else None."""
    return event.noise_multiplier if isinstance(event, StatedGaussianDpEvent) and event.adjacency is not None else None


def as_fixed_size_step(event: DpEvent) -> tuple[int, int, float] | None:
    """(batch_size, records, noise_multiplier) of a Gaussian step on a batch without replacement; else None."""
    if type(event) is SampledWithoutReplacementDpEvent and type(event.event) is GaussianDpEvent:
        return int(event.sample_size), int(event.source_dataset_size), float(event.event.noise_multiplier)
    return None
