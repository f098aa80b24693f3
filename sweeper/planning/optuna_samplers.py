"""Samplers that choose the next point of a grid to run: one of Optuna's, or a class with the two methods of `Chooser`.

A sampler never decides the number of runs. The sweep's folder stores the proposals and their results: every proposal
rebuilds a study from them in memory, so that an interrupted sweep continues as if it had not been interrupted.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Phase, Plan, Value
from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class
from dpsweep.sweeper.planning.plan_settings import Point
from dpsweep.sweeper.trial.spec import build_object_of_config_part

if TYPE_CHECKING:
    import optuna

METHOD = "method"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A run of a point, by its index in the plan: not ended yet, or ended with or without a score."""

    point: int
    ended: bool = False
    score: float | None = None


@runtime_checkable
class Chooser(Protocol):
    """Chooses the points of a plan's runs, one after another."""

    def split_runs_into_phases(self, trials: int, points: Sequence[Point]) -> tuple[Phase, ...]:
        """The phases of `trials` runs, none if every run may be of any point; `BadInput` for unsuitable points."""

    def choose_next_point_index(self, plan: Plan, seen: Sequence[Seen]) -> int:
        """The point of the next run after those in `seen`, by its index in the plan, among the points of its phase."""


def chooser_from_config(sampler: Mapping[str, Any], seed: int | None = None) -> Chooser:
    """The chooser that this configures: one of Optuna's samplers or a `Chooser`; raises `BadInput` otherwise."""
    import optuna

    if "seed" in sampler:
        raise BadInput(f"Expected search.seed={sampler['seed']} not to be there: seed= is for the sweep as a whole.")
    with _silence_optuna_warnings():
        chooser = build_object_of_config_part({**sampler, "seed": seed}, "search")
    if isinstance(chooser, optuna.samplers.BaseSampler):
        return ByOptuna(sampler=chooser)
    if isinstance(chooser, Chooser):
        return chooser
    raise BadInput(
        f"Expected search._target_={tag_or_path_of_class(sampler)} to be one of Optuna's samplers, or a Chooser."
    )


def propose_next_point_index(plan: Plan, seen: Sequence[Seen]) -> int:
    """The point that the plan's sampler proposes after these runs, by its index in the plan.

    The sampler reads only results that were paid for, so its randomness need not be secret; with the sweep's seed, the
    same runs give the same point.
    """
    seed = plan.trials[0].config.get("seed")
    own = None if seed is None else Random(f"{seed}, turn {len(seen)}").getrandbits(32)
    return chooser_from_config(plan.required_proposals.sampler, own).choose_next_point_index(plan, seen)


@dataclass(frozen=True, kw_only=True)
class ByOptuna:
    """Suggestions of one of Optuna's samplers, over the indices of the points' values."""

    sampler: optuna.samplers.BaseSampler

    def split_runs_into_phases(self, trials: int, points: Sequence[Point]) -> tuple[Phase, ...]:
        """No phases: every run may be of any point."""
        return ()

    def choose_next_point_index(self, plan: Plan, seen: Sequence[Seen]) -> int:
        """The suggested point, or the nearest point of the grid."""
        import optuna

        space = _Space.from_plan(plan)
        with _silence_optuna_warnings():
            study = optuna.create_study(direction="maximize", sampler=self.sampler)
            study.add_trials([space.optuna_trial_of_run(run) for run in seen])
            return space.suggest_point_index(study.ask())


@dataclass(frozen=True, kw_only=True)
class _Space:
    """A plan's points as samplers see them: a method, then the indices of its axes' values, numbers in ascending order.

    `axes` holds each method's values, `points` the indices of each point's values among them. Axes are conditional on
    the method: a learning rate of one method says nothing about another method's.
    """

    axes: Mapping[str, Mapping[str, tuple[Value, ...]]]
    points: tuple[tuple[str, Mapping[str, int]], ...]

    @classmethod
    def from_plan(cls, plan: Plan) -> _Space:
        """The space of a plan's points."""
        axes_by_method: dict[str, dict[str, dict[str, Value]]] = {}
        for trial in plan.trials:
            axes = axes_by_method.setdefault(trial.method, {})
            for key, value in trial.axes.items():
                axes.setdefault(key, {})[repr(value)] = value
        ordered = {
            method: {key: _ordered_values(values.values()) for key, values in axes.items()}
            for method, axes in axes_by_method.items()
        }
        places = {
            (method, key, repr(value)): place
            for method, axes in ordered.items()
            for key, values in axes.items()
            for place, value in enumerate(values)
        }
        points = (
            (trial.method, {key: places[trial.method, key, repr(value)] for key, value in trial.axes.items()})
            for trial in plan.trials
        )
        return cls(axes=ordered, points=tuple(points))

    def optuna_trial_of_run(self, run: Seen) -> optuna.trial.FrozenTrial:
        """A run as the Optuna trial that a sampler receives."""
        import optuna

        (method, places), states = self.points[run.point], optuna.trial.TrialState
        ended = states.FAIL if run.score is None else states.COMPLETE
        return optuna.trial.create_trial(
            state=ended if run.ended else states.RUNNING,
            value=run.score,
            params={METHOD: method} | {_parameter_name(method, key): place for key, place in places.items()},
            distributions={METHOD: optuna.distributions.CategoricalDistribution(tuple(self.axes))}
            | {_parameter_name(method, key): _index_distribution(values) for key, values in self.axes[method].items()},
        )

    def suggest_point_index(self, trial: optuna.Trial) -> int:
        """The point that a new trial suggests, or the nearest point of the grid."""
        own_method = trial.suggest_categorical(METHOD, tuple(self.axes))
        suggestion = {
            key: _suggest_index(trial, _parameter_name(own_method, key), values)
            for key, values in self.axes[own_method].items()
        }
        distances = {
            point: sum(abs(place - suggestion[key]) for key, place in places.items())
            for point, (method, places) in enumerate(self.points)
            if method == own_method
        }
        return min(distances, key=distances.__getitem__)


def _parameter_name(method: str, key: str) -> str:
    return f"{method} {key}"


def _ordered_values(values: Iterable[Value]) -> tuple[Value, ...]:
    """Numbers in ascending order, names in their given order."""
    ordered = tuple(values)
    return tuple(sorted(ordered, key=lambda value: float(value or 0))) if _are_numbers(ordered) else ordered


def _suggest_index(trial: optuna.Trial, name: str, values: Sequence[Value]) -> int:
    if _are_numbers(values):
        return trial.suggest_int(name, 0, len(values) - 1)
    return trial.suggest_categorical(name, range(len(values)))


def _index_distribution(values: Sequence[Value]) -> optuna.distributions.BaseDistribution:
    import optuna

    if _are_numbers(values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(values)))


def _are_numbers(values: Iterable[Value]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


@contextmanager
def _silence_optuna_warnings() -> Iterator[None]:
    """Silences Optuna's warnings about experimental features and about conditional axes."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
