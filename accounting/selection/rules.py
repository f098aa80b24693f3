"""The selection rules: a plan and a charge are read with these alone, and nothing else is called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import signature
from random import Random
from typing import Annotated, Any, ClassVar

from dpsweep.accounting.codec import Delta, Positive, PositiveInt, Share, fraction, number_in, read_kind
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure, Draw, FinalRun, Search, SelectionRule


@dataclass(frozen=True, kw_only=True)
class Composition(SelectionRule):
    """Runs every declared point once, at the price of all of them, so all results may be released.

    *Guarantee*: points may be chosen by earlier results, since noise, sampling, steps and the number of runs are fixed
    beforehand. *Source*: adaptive composition of Renyi DP (Mironov 2017, Proposition 1) and of privacy-loss profiles.
    """

    name: ClassVar[str] = "composition"
    discloses: ClassVar[frozenset[Disclosure]] = frozenset(Disclosure)


@dataclass(frozen=True, kw_only=True)
class Public(Composition):
    """Runs the one point that won a sweep, `sweep` by its plan's id, whose data the curator asserts to be public.

    *Guarantee*: the price of what runs here, and nothing for the search.
    """

    name: ClassVar[str] = "public"
    sweep: str

    def __post_init__(self) -> None:
        if not isinstance(self.sweep, str) or not self.sweep.strip():
            raise ValueError(f"Expected sweep={self.sweep!r} to be the id of the public sweep's plan.")


@dataclass(frozen=True, kw_only=True)
class MedianOfRepeats(Composition):
    """A composition, won by the point with the best median score of its runs, of which each has `repeats` at least."""

    name: ClassVar[str] = "median of repeats"
    name_of_point_score: ClassVar[str] = "median"
    repeats: PositiveInt = 3

    def check_search(self, search: Search) -> None:
        """Refuses points that run less often."""
        super().check_search(search)
        if search.repeats < self.repeats:
            raise BadInput(f"Expected repeats={search.repeats} to be at least {self.repeats} under {self.name}.")


@dataclass(frozen=True, kw_only=True)
class NoisyMax(SelectionRule):
    """Runs every point once; held-out records pay for one noisy maximum, training records for all the runs.

    *Guarantee*: for the held-out records 1 / `noise_scale` (2 / `noise_scale` if a record is replaced), whatever the
    number of points. The handicaps of the draw are Gumbel noise with a scale of `noise_scale` correct predictions. The
    winner may be released, its score never. With public scores composition costs the same, so these plans do not run.
    *Source*: McSherry and Talwar 2007 (the exponential mechanism); Durfee and Rogers 2019, Lemma 4.2.
    """

    name: ClassVar[str] = "noisy_max"
    discloses: ClassVar[frozenset[Disclosure]] = frozenset({Disclosure.WINNER, Disclosure.NUMBER_OF_TRIES})
    draws_in_secret: ClassVar[bool] = True
    noise_scale: Positive

    def draw(self, n_points: int, rng: Random) -> Draw:
        """All points, each with its handicap."""
        whole = super().draw(n_points, rng)
        return replace(whole, handicaps=tuple(-self.noise_scale * math.log(rng.expovariate(1.0)) for _ in whole.tries))

    def _event_of_points(self, trials: Sequence[events.PlanEvent]) -> events.PlanEvent:
        event = super()._event_of_points(trials)
        return (
            event if event.validation is None else replace(event, validation=events.NoisyMaxDpEvent(self.noise_scale))
        )


class HiddenSearch(SelectionRule):
    """Only the winner of independent tries, uniform and with repeats, is released; how many there were is secret."""

    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER
    draws_in_secret: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class BestOfGrid(HiddenSearch):
    """The best of all points, each of which runs exactly once; their order and number are public.

    *Guarantee*: the composition of all runs, or the envelope bound (`selection_envelope.py`) of the dearest point.
    """

    name: ClassVar[str] = "best_of_grid"
    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER | {Disclosure.NUMBER_OF_TRIES}

    def search_event(self, n_points: int) -> events.SearchEvent:
        """The best of all points."""
        return events.SelectionDpEvent(events.NoOpDpEvent(), tries=EachPoint(count=n_points))


@dataclass(frozen=True, kw_only=True)
class PrivateSelection(HiddenSearch):
    """The best of K tries; K is truncated negative binomial: geometric at `eta` 1, logarithmic at 0.

    `mean`, E[K], or `gamma` fixes the law; the mean is the number of points if both are None; `limit` bounds K. At a
    fixed mean a smaller eta costs less, and tries good points less often.
    *Guarantee*: the envelope bound (`selection_envelope.py`), about 2 + eta times the epsilon of one run if that is
    pure, or Papernot and Steinke 2022 (Hyperparameter Tuning with Renyi Differential Privacy), Theorem 2.
    """

    name: ClassVar[str] = "private_selection"
    eta: Annotated[float, number_in("(-1, inf)")] = 1.0
    mean: Positive | None = None
    gamma: Share | None = None
    limit: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean is not None and self.gamma is not None:
            raise ValueError(f"Expected either mean={self.mean} or gamma={self.gamma}: one decides the other.")
        self.search_event(1)

    def search_event(self, n_points: int) -> events.SearchEvent:
        """The best of K tries."""
        if self.gamma is not None:
            law = NegativeBinomial(eta=float(self.eta), gamma=float(self.gamma))
        else:
            law = NegativeBinomial.with_mean(eta=self.eta, mean=n_points if self.mean is None else self.mean)
        return events.SelectionDpEvent(events.NoOpDpEvent(), tries=law, limit=self.limit)


@dataclass(frozen=True, kw_only=True)
class PoissonSelection(HiddenSearch):
    """The best of K tries; K is Poisson, with the least spread: the best chance at equal mean, and the highest price.

    `mean` and `limit` are as in `PrivateSelection`. That there is no winner, may be released.
    *Guarantee*: the envelope bound (`selection_envelope.py`), or Papernot and Steinke 2022, Theorem 6.
    """

    name: ClassVar[str] = "poisson_selection"
    mean: Positive | None = None
    limit: PositiveInt | None = None

    def search_event(self, n_points: int) -> events.SearchEvent:
        """The best of K tries; K may be 0."""
        law = Poisson(mean=float(n_points if self.mean is None else self.mean))
        return events.SelectionDpEvent(events.NoOpDpEvent(), tries=law, limit=self.limit)


@dataclass(frozen=True, kw_only=True)
class RandomStopping(HiddenSearch):
    """The best of a number of tries; a coin of probability `gamma` after each try, or a hard stop, ends the search.

    `gamma` None is one over the number of points. The hard stop takes the part `delta2` of the plan's `delta`, the best
    one if it is None. *Guarantee*: three times the epsilon of one run at a far smaller delta.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.4.
    """

    name: ClassVar[str] = "random_stopping"
    gamma: Share | None = None
    delta: Delta
    delta2: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta2 is not None:
            number_in(f"(0, {self.delta!r})")("delta2", self.delta2)

    def search_event(self, n_points: int) -> events.SearchEvent:
        """The best of the tries before the coin or the hard stop; the event sets the hard stop."""
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        delta2 = delta2_maximising_delta_of_one_run(self.delta, gamma) if self.delta2 is None else float(self.delta2)
        law = Stopping(gamma=gamma, limit=math.ceil(math.log(1 / delta2) / gamma))
        return events.RandomStoppingDpEvent(events.NoOpDpEvent(), tries=law, delta2=delta2)


def delta2_maximising_delta_of_one_run(delta: float, gamma: float) -> float:
    """Maximises one run's delta (delta - delta2) / T, T = ceil(ln(1/delta2)/gamma).

    With u = gamma T the maximum is at (1 + u) exp(-u) = delta; the best integer T is next to that.

    >>> round(delta2_maximising_delta_of_one_run(1e-5, 0.1), 8)
    6.8e-07
    """
    u = math.log(1 / delta)
    for _ in range(100):
        u = math.log((1 + u) / delta)
    stops = [stop for stop in (math.floor(u / gamma), math.ceil(u / gamma)) if math.exp(-gamma * stop) < delta]
    best = max(stops, key=lambda stop: (delta - math.exp(-gamma * stop)) / stop)
    return math.exp(-gamma * best) * (1 + 1e-12)  # more than its rounding


@dataclass(frozen=True, kw_only=True)
class Threshold(HiddenSearch):
    """The first try whose score reaches a public `threshold`; after each try a coin of probability `gamma` gives up.

    The threshold is not computed from these data. `gamma` None is one over the number of points; `limit` None is so
    many tries that the stop costs nothing beside the plan's `delta`. Results of tries after the winner are never
    released; that there is no winner may be. *Guarantee*: about twice the epsilon of one run.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.1.
    """

    name: ClassVar[str] = "threshold"
    gamma: Share | None = None
    limit: PositiveInt | None = None
    threshold: Share
    delta: Delta

    def search_event(self, n_points: int) -> events.SearchEvent:
        """The first try that reaches the threshold, among those before the coin or the hard stop."""
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        highest = 1 if gamma == 1 else math.ceil(math.log(1e-20 * self.delta) / math.log1p(-gamma))  # a tail of 1e-20
        return events.ThresholdDpEvent(events.NoOpDpEvent(), tries=Stopping(gamma=gamma, limit=self.limit or highest))

    def draw(self, n_points: int, rng: Random) -> Draw:
        """The tries, with the threshold."""
        return replace(super().draw(n_points, rng), threshold=float(self.threshold))


def _followed(rule: SelectionRule, final_run: FinalRun, name: str) -> SelectionRule:
    if not isinstance(rule, SelectionRule):
        raise TypeError(f"Expected rule={rule!r} to be a selection rule.")
    if rule.final_run is not None:
        raise BadInput(f"Expected final=true to be left out: {rule.name} has a final run already.")
    if Disclosure.WINNER_SCORE not in rule.discloses:
        raise BadInput(f"Expected final=true to be left out: {rule.name} pays for no score that is shown.")
    whole = copy(rule)
    vars(whole).update(final_run=final_run, name=name.format(rule.name))
    return whole


def DisjointParts(*, share: float = 0.2, carry: float = 0.75) -> SelectionRule:  # noqa: N802
    """A composition on a fixed `share` of the records, drawn by a public key, then the winning point on all others."""
    fraction("share", share)
    return _followed(Composition(), FinalRun(share=share, carry=carry), "disjoint parts")


def Final(*, rule: SelectionRule) -> SelectionRule:  # noqa: N802
    """A search by `rule`, then a run of the winning point on the same records, whose score no choice has biased."""
    return _followed(rule, FinalRun(), "{} + final run")


class TrainOn(StrEnum):
    """The records of the winner's final training run."""

    ALL = "all"
    REST = "rest"


def Subsampled(  # noqa: N802
    *, rule: SelectionRule, rate: float, train_on: TrainOn = TrainOn.REST, carry: float = 0.75
) -> SelectionRule:
    """A search by a rule that hides losers, on a secret random part of the records, then the winner's run on others.

    Each unit joins the part with probability `rate`, by a secret coin of its own; the final run reads all, or the rest.
    """
    fraction("rate", rate)
    run = FinalRun(share=rate, is_secret=True, reads_all=TrainOn(train_on) is TrainOn.ALL, carry=carry)
    whole = _followed(rule, run, "subsampled {}")
    if not rule.draws_in_secret:
        raise BadInput(f"Expected {rule.name} to hide its losers; what shows all costs less under tuning=disjoint.")
    return whole


RULES: Mapping[str, Any] = {
    "best_of_grid": BestOfGrid,
    "composition": Composition,
    "disjoint_parts": DisjointParts,
    "final": Final,
    "median_of_repeats": MedianOfRepeats,
    "noisy_max": NoisyMax,
    "poisson_selection": PoissonSelection,
    "private_selection": PrivateSelection,
    "public": Public,
    "random_stopping": RandomStopping,
    "subsampled": Subsampled,
    "threshold": Threshold,
}
"""The class of each tag, or what makes a rule of another; a tag means one for ever."""


def rule_from_config(form: Any) -> SelectionRule:
    """The rule of a stored form `{"kind": tag, **fields}`, where the field `rule` is one too; raises `BadInput`."""
    tag = form.get("kind") if isinstance(form, Mapping) else form
    try:
        inner = {"rule": rule_from_config(form["rule"])} if isinstance(form, Mapping) and "rule" in form else {}
        kind, fields = read_kind(RULES, "kind", form)
        if unknown := fields.keys() - signature(kind).parameters.keys():
            raise ValueError(f"Expected {min(unknown)} to be left out: {kind.__name__} has no such field")
        rule: SelectionRule = kind(**fields | inner)
        return rule
    except (ValueError, TypeError) as cause:
        raise BadInput(f"Expected tuning={tag!s:.200} to name a selection rule: {str(cause).rstrip('.')}.") from cause
