"""A point with its declarations: the facts about a run that accounting needs, as the trainers declare them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from dpsweep.accounting.accountants.interface import GaussianSteps, coarser
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.records.plan import Trial
from dpsweep.sweeper.planning.plan_settings import NOISE, Point, positive
from dpsweep.sweeper.trial.spec import Declaration, build, declare
from dpsweep.trainers.declarations.batch_sampling import step_events
from dpsweep.trainers.declarations.clip_schedules import BoundSchedule, noise_factors

KINDS = 64
"""The most kinds of step with which the search for a noise begins: as many as the PLD accountant tells apart."""


@dataclass(frozen=True, kw_only=True)
class DeclaredPoint:
    """A point, its declarations, its noise multiplier, None where planning solves for it, and its final run if any."""

    point: Point
    declaration: Declaration
    noise_multiplier: float | None
    final: DeclaredPoint | None = None

    @classmethod
    def of(cls, point: Point, *, needs_noise: bool) -> DeclaredPoint:
        """The declarations of a point; raises `BadInput` where its method or data do not allow its noise.

        `needs_noise` says that the noise must be given, because no price determines it.
        """
        declaration, value = declare(point.config), point.config["privacy"]["noise_multiplier"]
        open_noise = value is None and not needs_noise
        noise = None if open_noise else given_noise(value, declaration)
        final = None if point.final is None else cls.of(point.final, needs_noise=needs_noise)
        return cls(point=point, declaration=declaration, noise_multiplier=noise, final=final)

    @property
    def score_is_open(self) -> bool:
        """Whether planning solves for the noise of its score."""
        return self.point.config["score"].get("noise_std", 0) is None

    @cached_property
    def kind(self) -> Hashable:
        """The declarations that determine the event of its training, except for the noise."""
        one = self.declaration
        return one.sampler, one.train_records, one.clip_schedule, one.steps

    def training(self, noise_multiplier: float, steps: int | None = None) -> DpEvent:
        """The event of training at this noise, after the declared number of steps or after `steps`."""
        one = self.declaration if steps is None else replace(self.declaration, steps=steps)
        return one.training(noise_multiplier)

    def rough_training(self, noise_multiplier: float) -> DpEvent:
        """The event of training where a schedule's factors are rounded down to few: it costs no less."""
        one = self.declaration
        factors = _few_factors(one.clip_schedule, one.steps)
        if len(factors) == len(noise_factors(one.clip_schedule, one.steps)):
            return self.training(noise_multiplier)
        counts = step_events(
            one.sampler, factors, records=one.train_records, noise_multiplier=noise_multiplier, public=one.public
        )
        return events.compose(events.repeat(event, count) for event, count in counts.items())

    def after(self, steps: int) -> DeclaredPoint:
        """The same point with this number of steps and new declarations."""
        point = replace(self.point, config={**self.point.config, "steps": steps})
        final = None if self.final is None else self.final.after(steps)
        return replace(self, point=point, declaration=declare(point.config), final=final)

    def trial(self, noise_multiplier: float, score_noise: float | None) -> Trial:
        """The trial at the noise that it runs with, not at the target; without its final run.

        The noise of training is no part of a declaration, so the point's own holds for the trial as well.
        """
        point, noise = self.point, noise_multiplier
        privacy = {key: point.config["privacy"][key] for key in ("adjacency", "unit")} | {"noise_multiplier": noise}
        config: Mapping[str, Any] = {**point.config, "privacy": privacy}
        declared = self.declaration
        if score_noise is not None:
            config = {**config, "score": {**config["score"], "noise_std": score_noise}}
            declared = _with_score(declared, config["score"])
        axes = {**point.axes, NOISE: noise} if NOISE in point.axes else point.axes
        return Trial(method=point.method, axes=axes, config=config, event=declared.event(noise))


@lru_cache(maxsize=16)
def _few_factors(bounds: BoundSchedule, steps: int) -> Mapping[float, int]:
    """The steps at each factor on the noise multiplier, rounded down to `KINDS` factors as the accountants do."""
    factors = noise_factors(bounds, steps).items()
    alike = tuple(GaussianSteps(sample_rate=1.0, noise_multiplier=factor, count=many) for factor, many in factors)
    return {one.noise_multiplier: one.count for one in coarser(alike, KINDS)}


def _with_score(declaration: Declaration, config: Mapping[str, Any]) -> Declaration:
    """The declaration with another score, which is checked alone: the other parts stay as they were checked."""
    declared = replace(declaration, score=_score(json.dumps(config, sort_keys=True)))
    try:
        declared.score.check(declared.dataset.test_records, public=declared.public)
    except (TypeError, ValueError) as cause:
        raise BadInput(str(cause)) from cause
    return declared


@lru_cache(maxsize=64)
def _score(form: str) -> Any:
    """One object for all trials with this score, so that the events of their scores are one object as well."""
    return build(json.loads(form), "score")


def declared_anew(trial: Trial) -> DeclaredPoint:
    """The point of a trial; the noise of its score is left open if the score has one."""
    score = {**trial.config["score"], **({"noise_std": None} if "noise_std" in trial.config["score"] else {})}
    point = Point(method=trial.method, axes=trial.axes, config={**trial.config, "score": score})
    return DeclaredPoint(
        point=point,
        declaration=declare(trial.config),
        noise_multiplier=trial.config["privacy"]["noise_multiplier"],
        final=None if trial.final is None else declared_anew(trial.final),
    )


def given_noise(value: object, declared: Declaration) -> float:
    """A noise multiplier as the user gave it: above 0, unless the data are declared public."""
    trainer, public = declared.trainer, declared.public
    if trainer.noiseless and value not in (None, 0):
        raise BadInput(f"Expected {NOISE}={value} to be left out: {trainer.label} adds none.")
    if public and value is None and not trainer.noiseless:
        raise BadInput(
            f"Expected {NOISE} to be given with {trainer.label} and dataset.public=true: data declared public have no "
            "price that could choose it."
        )
    if value in (None, 0) and public:
        return 0.0
    if value == 0:
        raise BadInput(
            f"Expected {NOISE}=0 > 0: without noise nobody is protected, which only data that you declare public allow "
            "(dataset.public=true)."
        )
    return positive(NOISE, value)
