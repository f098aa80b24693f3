"""Turns: how many runs a sampler may propose, and which points each of them may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import canonical, class_name, stored
from dpsweep.accounting.numbers import is_whole

MOST = 10**6
"""Runs that a sampler may propose."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """So many proposed runs in a row that take the points of one noise multiplier; None while that one is open."""

    trials: int
    noise_multiplier: float | None


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """Runs whose points a sampler proposes, each from the scores of those before: their number, fixed beforehand.

    `sampler` is its configuration, `{"kind": tag, **fields}`, or `{"_target_": "module.Class", **fields}` for one of
    Optuna's or of the user's. Without `phases`, every run may be of any point.
    """

    trials: int
    sampler: Mapping[str, Any]
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", stored(self.sampler, "search"))
        if not is_whole(self.trials, 1):
            raise BadInput(f"Expected search.trials={self.trials!r} to be an integer >= 1.")
        if self.trials > MOST:
            raise BadInput(f"Expected search.trials={self.trials} <= {MOST}.")
        if self.phases and sum(phase.trials for phase in self.phases) != self.trials:
            raise BadInput(f"Expected search.trials={self.trials} to be those of its phases together.")

    def turns(self, noises: Sequence[float | None]) -> tuple[Sequence[int], ...]:
        """The points that each turn may take, by their places, where these are the points' noise multipliers."""
        if not self.phases:
            return (range(len(noises)),) * self.trials
        places = {
            phase: tuple(place for place, noise in enumerate(noises) if noise == phase.noise_multiplier)
            for phase in self.phases
        }
        return tuple(places[phase] for phase in self.phases for _ in range(phase.trials))

    def at_noise(self, noise: float) -> Proposed:
        """With this in place of the noise multiplier that was open."""
        phases = (replace(phase, noise_multiplier=phase.noise_multiplier or noise) for phase in self.phases)
        return replace(self, phases=tuple(phases))

    def to_json(self) -> dict[str, Any]:
        """Plain values; where there are no phases, they leave no trace."""
        form = asdict(self)
        return form if self.phases else {key: value for key, value in form.items() if key != "phases"}

    def identity(self) -> dict[str, Any]:
        """What a plan's identity is made of."""
        return self.to_json() | {"sampler": canonical(self.sampler, "search")}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Proposed:
        """Reads `to_json`'s form."""
        return cls(**{**form, "phases": tuple(Phase(**phase) for phase in form.get("phases", ()))})

    @property
    def sampler_name(self) -> str:
        """What the sampler is called."""
        return class_name(self.sampler)
