"""What one access is, read off its event: a Gaussian step, a batch of fixed size, an epoch."""

from __future__ import annotations

from dpsweep.accounting.events.types import (
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    StatedGaussianDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency


def as_gaussian_step(event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or, at rate 1, not; else None.

    The noise is relative to what one record adds, whatever `adjacency`: where replacement is known to change a sum by
    no more than that, the noise counts twice. An access that protects nobody is one without noise, (1.0, 0.0).
    """
    if type(event) is NonPrivateDpEvent:
        return 1.0, 0.0
    if type(event) in (GaussianDpEvent, EpochDpEvent):
        return 1.0, float(event.noise_multiplier)
    if type(event) is StatedGaussianDpEvent and event.adjacency in (None, adjacency):
        return 1.0, event.noise_multiplier * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
    if type(event) is PoissonSampledDpEvent and type(event.event) is GaussianDpEvent:
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def as_epoch(event: DpEvent) -> tuple[int, float] | None:
    """(steps, noise_multiplier) of an epoch in which every record takes part once; else None."""
    return (event.steps, event.noise_multiplier) if type(event) is EpochDpEvent else None


def is_output_perturbation(event: DpEvent) -> bool:
    """Whether this is noise on a finished model, whose sensitivity was proved for neighbours of one kind."""
    return type(event) is StatedGaussianDpEvent and event.adjacency is not None


def as_fixed_size_step(event: DpEvent) -> tuple[int, int, float] | None:
    """(batch_size, records, noise_multiplier) of a Gaussian step on a batch without replacement; else None."""
    if type(event) is SampledWithoutReplacementDpEvent and type(event.event) is GaussianDpEvent:
        return int(event.sample_size), int(event.source_dataset_size), float(event.event.noise_multiplier)
    return None
