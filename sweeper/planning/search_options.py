"""Options of a search: proposals, phases, shared subsamples, spare attempts, open numbers of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import noise_text_rounded_up
from dpsweep.accounting.printing import has_only_visible_characters
from dpsweep.accounting.records.plan import Proposed, Trial
from dpsweep.sweeper.planning.optuna_samplers import chooser_from_config
from dpsweep.sweeper.planning.plan_settings import NOISE, RATE, PlanSettings, Point

INDEPENDENT, SHARED = "independent", "shared"
WHEN_BUDGET_SPENT = "when_budget_spent"


ABOUT = 300
"""The most letters of a text on whose data these are."""


def repeats_per_point(settings: PlanSettings) -> int:
    """The runs of each point: as many as the user says, or as the rule's configuration does (`tuning.repeats`)."""
    asked = settings.tuning.get("repeats", 1) if settings.repeats is None else settings.repeats
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise BadInput(f"Expected repeats={asked!r} to be an integer >= 1.")
    return asked


def sampler_run_count_and_phases_or_none(
    search: Mapping[str, Any], repeats: int, points: Sequence[Point]
) -> Proposed | None:
    """How many runs a sampler proposes, which sampler, and in which phases; None without a sampler."""
    if "_target_" not in search:
        if strange := [key for key in search if key != "pruner"]:
            raise BadInput(f"Expected search.{strange[0]} to come with a sampler, as in search=tpe.")
        return None
    if repeats != 1:
        raise BadInput(
            f"Expected {repeats} runs of each point to be one where a sampler proposes points, which repeats what it "
            "likes: leave out repeats, and a rule that needs them."
        )
    sampler = {key: value for key, value in search.items() if key not in ("trials", "pruner")}
    plain = Proposed(trials=search.get("trials", 0), sampler=sampler)
    return replace(plain, phases=chooser_from_config(sampler).split_runs_into_phases(plain.trials, points))


def points_repeated_at_noise_of_each_phase(points: Sequence[Point], proposed: Proposed | None) -> Iterator[Point]:
    """The points; with phases, each point once at the noise multiplier of every phase."""
    if proposed is None or not proposed.phases:
        yield from points
        return
    if any(point.config["privacy"]["noise_multiplier"] is not None for point in points):
        raise BadInput(f"Expected {NOISE} to be left out: {proposed.sampler_name} says the noise of its runs.")
    if any(point.rate_factor is not None for point in points):
        raise BadInput(f"Expected {RATE} to be numbers: {proposed.sampler_name} finds how the rate follows the noise.")
    for phase in proposed.phases:
        for point in points:
            privacy = {**point.config["privacy"], "noise_multiplier": phase.noise_multiplier}
            yield replace(point.with_settings(privacy=privacy), axes={**point.axes, NOISE: phase.noise_multiplier})


def proposals_with_solved_noise(
    proposed: Proposed | None, points: Sequence[Point], trials: Sequence[Trial]
) -> Proposed | None:
    """The proposals with the noise multiplier that these points left open and that was solved for these trials.

    Raises `BadInput` unless it is below all given noise multipliers: the runs at those must be the cheaper ones.
    """
    if proposed is None or not proposed.phases:
        return proposed
    solved = [trial.config["privacy"]["noise_multiplier"] for trial in trials]
    noise = next(own for own, fixed in zip(solved, given_noises_or_none(points), strict=True) if fixed is None)
    if any(fixed is not None and fixed <= noise for fixed in given_noises_or_none(points)):
        raise BadInput(
            f"Expected search.noise_multipliers to be above {noise_text_rounded_up(noise)}, which the last run has for "
            "privacy.epsilon: those before it are to be cheaper. More noise for them leaves it more of the budget."
        )
    return proposed.with_missing_noise_filled(noise)


def require_valid_spare_attempts(value: object) -> int:
    """The number of spare attempts that the plan pays for in advance."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"Expected plan.spare_attempts={value!r} to be an integer >= 0.")
    return value


def require_valid_about_text(value: object) -> str:
    """What the user says of whose data these are: one line of visible text; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, str) or not has_only_visible_characters(value) or not 0 < len(value.strip()) <= ABOUT:
        raise BadInput(f"Expected about={value!r} to be null, or one line of visible text of at most {ABOUT} letters.")
    return value.strip()


def do_points_share_subsamples(subsample: object, checkpoint_every: object) -> bool:
    """Whether all points use the same subsamples; refuses checkpoints then, since some runs could resume alone."""
    if subsample not in (INDEPENDENT, SHARED):
        raise BadInput(f"Expected subsample={subsample} to be {INDEPENDENT} or {SHARED}.")
    if subsample == SHARED and checkpoint_every is not None:
        raise BadInput(
            f"Expected checkpoint.every={checkpoint_every} to be null with subsample=shared: after a crash some "
            "runs would go on from another step than the rest, on subsamples of their own, and that is not paid for."
        )
    return subsample == SHARED


def are_steps_solved_for(points: Sequence[Point], solve: object) -> bool:
    """Whether planning solves for the steps; then `BadInput` unless all steps are open and `solve` is noise."""
    open_steps = [point.config["steps"] == WHEN_BUDGET_SPENT for point in points]
    if any(open_steps) and not all(open_steps):
        raise BadInput(f"Expected steps={WHEN_BUDGET_SPENT} to be the only value of steps in a sweep.")
    if any(open_steps) and solve != "noise":
        raise BadInput(f"Expected solve={solve} to be left out with steps={WHEN_BUDGET_SPENT}, which finds the steps.")
    return any(open_steps)


def given_noises_or_none(points: Sequence[Point]) -> list[float | None]:
    """Each point's noise multiplier as it was given, None where it is open."""
    return [point.config["privacy"]["noise_multiplier"] for point in points]
