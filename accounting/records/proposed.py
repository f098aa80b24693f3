"""The declaration of proposed runs: their number, and the points that each of them may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from dpsweep.accounting.codec import OMITTED, Count, Stored
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.numbers import is_whole
from dpsweep.accounting.stored_names.format_defaults import part_defaults, without_defaults
from dpsweep.accounting.stored_names.stored_classes import class_name, identity, stored_form

MOST = 10**6
"""Largest number of runs that a sampler may propose."""


@dataclass(frozen=True, kw_only=True)
class Phase(Stored):
    """A number of consecutive proposed runs with one noise multiplier, which is None until it is calibrated."""

    trials: Count
    noise_multiplier: float | None


@dataclass(frozen=True, kw_only=True)
class Proposed(Stored):
    """A fixed number of runs whose points a sampler proposes, each from the scores of earlier runs.

    `sampler` is its configuration, `{"kind": tag, **fields}`, or `{"_target_": "module.Class", **fields}` for a class
    of Optuna or of the user. Without `phases`, every run may have any point.
    """

    trials: int
    sampler: Mapping[str, Any]
    phases: Annotated[tuple[Phase, ...], OMITTED] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", stored_form(self.sampler, "search"))
        if not is_whole(self.trials, 1):
            raise BadInput(f"Expected search.trials={self.trials!r} to be an integer >= 1.")
        if self.trials > MOST:
            raise BadInput(f"Expected search.trials={self.trials} <= {MOST}.")
        if self.phases and sum(phase.trials for phase in self.phases) != self.trials:
            raise BadInput(f"Expected search.trials={self.trials} to be those of its phases together.")

    def turns(self, noises: Sequence[float | None]) -> tuple[Sequence[int], ...]:
        """The points (by index) that each turn may have; `noises` are the points' noise multipliers."""
        if not self.phases:
            return (range(len(noises)),) * self.trials
        places = {
            phase: tuple(place for place, noise in enumerate(noises) if noise == phase.noise_multiplier)
            for phase in self.phases
        }
        return tuple(places[phase] for phase in self.phases for _ in range(phase.trials))

    def at_noise(self, noise: float) -> Proposed:
        """A copy with this noise multiplier in every phase that has none."""
        phases = (replace(phase, noise_multiplier=phase.noise_multiplier or noise) for phase in self.phases)
        return replace(self, phases=tuple(phases))

    def identity(self) -> dict[str, Any]:
        """The part of a plan's identity."""
        form = self.to_json() | {"sampler": identity(self.sampler, "search")}
        return without_defaults(form, part_defaults("proposed"))

    @property
    def sampler_name(self) -> str:
        """The name of the sampler's class."""
        return class_name(self.sampler)
