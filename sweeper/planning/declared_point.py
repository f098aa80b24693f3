"""A point with its declarations: the facts about a run that accounting needs, as the trainers declare them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.stored_names.stored_classes import KIND
from dpsweep.accounting.stored_names.tags import class_of_tag
from dpsweep.sweeper.planning.plan_settings import NOISE, RATE, Point, require_positive_number
from dpsweep.sweeper.trial.spec import Declaration, declaration_from_config, records_from_config
from dpsweep.trainers.declarations.cards import details_of_card, number_of_card_counts
from dpsweep.trainers.declarations.losses import default_rate_factor
from dpsweep.trainers.methods.rate_laws import DIGITS

LEAST_MEASURED_NOISE = 2.0
"""The noise multiplier at which a rate is taken without any: laws of rates were measured from there on."""


@dataclass(frozen=True, kw_only=True)
class DeclaredPoint:
    """A point, its declarations, and its noise multiplier, None where planning solves for it."""

    point: Point
    declaration: Declaration
    noise_multiplier: float | None

    @classmethod
    def from_point(cls, point: Point, *, needs_noise: bool) -> DeclaredPoint:
        """The declarations of a point; raises `BadInput` where its method or data do not allow its noise.

        `needs_noise` says that the noise must be given, because no price determines it.
        """
        declaration, value = declaration_from_config(point.config), point.config["privacy"]["noise_multiplier"]
        open_noise = value is None and not needs_noise
        noise = None if open_noise else checked_noise_multiplier_of_user(value, declaration)
        return cls(point=point, declaration=declaration, noise_multiplier=noise)

    @cached_property
    def final(self) -> DeclaredPoint | None:
        """The declared final run of the point, whose noise is open where the point's is; None if it has none."""
        final, needs_noise = self.point.final, self.noise_multiplier is not None
        return None if final is None else DeclaredPoint.from_point(final, needs_noise=needs_noise)

    @property
    def is_score_noise_open(self) -> bool:
        """Whether planning solves for the noise of its score."""
        return self.point.config["score"].get("noise_std", 0) is None

    @cached_property
    def training_event_key(self) -> Hashable:
        """The declarations that determine the event of its training, except for the noise."""
        one = self.declaration
        return one.sampler, one.nominal_training_units, one.clip_schedule, one.steps, one.weights

    def training_event(self, noise_multiplier: float, steps: int | None = None) -> DpEvent:
        """The event of training at this noise, after the declared number of steps or after `steps`."""
        one = self.declaration if steps is None else replace(self.declaration, steps=steps)
        return one.training_dp_event(noise_multiplier)

    @property
    def noisy_counts_of_score(self) -> int:
        """The number of noisy counts of its score."""
        return self.declaration.noisy_counts_of_score

    @property
    def noisy_counts_of_card(self) -> int:
        """The number of noisy counts of a card on its model."""
        one = self.declaration
        details = details_of_card(one.loss, one.score, one.dataset.classes, label_names=one.dataset.label_names)
        return number_of_card_counts(details, one.dataset.classes)

    def with_steps(self, steps: int) -> DeclaredPoint:
        """The same point with this number of steps and new declarations."""
        if self.declaration.noise is not None:
            raise BadInput("Expected solve=noise with correlated noise, whose coefficients belong to given steps.")
        point = self.point.with_settings(steps=steps)
        return replace(self, point=point, declaration=declaration_from_config(point.config))

    def trial_at_noise(self, noise_multiplier: float, score_noise: float | None) -> Trial:
        """The trial at the noise that it runs with, not at the target; without its final run.

        The noise of training is no part of a declaration, so the point's own holds for the trial as well.
        """
        point, noise = self.point, noise_multiplier
        privacy = {key: point.config["privacy"][key] for key in ("adjacency", "unit")} | {"noise_multiplier": noise}
        config: Mapping[str, Any] = {**point.config, "privacy": privacy}
        declared = self.declaration
        if score_noise is not None:
            config = {**config, "score": {**config["score"], "noise_std": score_noise}}
            declared = _declaration_with_score_replaced(declared, config)
        found = {NOISE: noise}
        if point.rate_factor is not None:
            found[RATE] = self._automatic_rate(noise)
            config = {**config, "trainer": {**config["trainer"], "lr": found[RATE]}}
        axes = {key: found.get(key, value) for key, value in point.axes.items()}
        return Trial(method=point.method, axes=axes, config=config, event=declared.training_and_scoring_dp_event(noise))

    def _automatic_rate(self, noise_multiplier: float) -> float:
        """The rate that the method's law finds at this noise, times the point's factor and that of class weights."""
        one, trainer = self.declaration, self.point.config["trainer"]
        method = class_of_tag(trainer[KIND], "trainer") if KIND in trainer else None
        law = getattr(method, "averaged_rate_law", None) if one.ema is not None else None
        law = law or getattr(method, "rate_law", None)
        if law is None:
            raise BadInput(
                f"Expected {RATE} to be a number with trainer={self.point.method}: nobody has measured how its best "
                "learning rate depends on the noise, so there is no automatic one."
            )
        noise_std = (noise_multiplier or LEAST_MEASURED_NOISE) * one.trainer.transform.norm_bound
        rate = law.rate(
            noise_std=noise_std, batch_size=one.sampler.batch_size, steps=one.steps, weights=max(1, one.weights)
        )
        rate *= default_rate_factor(one.loss)
        return float(f"{self.point.rate_factor * rate:.{DIGITS}g}")


def _declaration_with_score_replaced(declaration: Declaration, config: Mapping[str, Any]) -> Declaration:
    """The declaration with the score of a configuration, which is checked alone: the others stay as they were checked.

    Records are one object for all trials with this score, so that the events of their scores are one object as well.
    """
    declared = replace(declaration, records=records_from_config(config))
    try:
        declared.check_score()
    except (TypeError, ValueError) as cause:
        raise BadInput(str(cause)) from cause
    return declared


def declared_point_of_trial(trial: Trial) -> DeclaredPoint:
    """The point of a trial; the noise of its score is left open if the score has one."""
    return DeclaredPoint(
        point=_point_of_trial(trial),
        declaration=declaration_from_config(trial.config),
        noise_multiplier=trial.config["privacy"]["noise_multiplier"],
    )


def _point_of_trial(trial: Trial) -> Point:
    score = {**trial.config["score"], **({"noise_std": None} if "noise_std" in trial.config["score"] else {})}
    final = None if trial.final is None else _point_of_trial(trial.final)
    return Point(method=trial.method, axes=trial.axes, config={**trial.config, "score": score}, final=final)


def checked_noise_multiplier_of_user(value: object, declared: Declaration) -> float:
    """A noise multiplier as the user gave it: above 0, unless the data are declared public."""
    trainer, public = declared.trainer, declared.dataset.public
    if trainer.noiseless and value not in (None, 0):
        raise BadInput(f"Expected {NOISE}={value} to be left out: {trainer.label} adds none.")
    if public and value is None and not trainer.noiseless:
        raise BadInput(
            f"Expected {NOISE} to be given with {trainer.label} and dataset.public=true: data declared public have no "
            "price from which it could follow."
        )
    if value in (None, 0) and public:
        return 0.0
    if value == 0:
        raise BadInput(
            f"Expected {NOISE}=0 > 0: without noise nobody is protected, which only data that you declare public allow "
            "(dataset.public=true)."
        )
    return require_positive_number(NOISE, value)
