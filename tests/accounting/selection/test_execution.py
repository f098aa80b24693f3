"""What may run for a plan's price, and which try of a draw wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.searches.every_point import EveryPoint
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import (
    StoredDraw,
    require_draw_paid_by_plan,
    trials_of_draw,
)
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure, Draw
from dpsweep.accounting.selection.rules import (
    RULES,
    BestOfGrid,
    Composition,
    NoisyMax,
    PrivateSelection,
    rule_from_config,
)
from dpsweep.accounting.stored_names import tags

THREE, FIVE = NegativeBinomial.with_mean(eta=1.0, mean=3.0), Poisson(mean=5.0)
SELECTION = {"kind": "private_selection", "mean": 3.0}
NOISY = {"kind": "noisy_max", "noise_scale": 9.0}
GRID_WINNER = {"kind": "best_of_grid"}
THRESHOLD = {"kind": "threshold", "threshold": 0.9, "delta": 1e-5}


def points(scored: bool = True) -> list[Trial]:
    return [
        Trial(
            method="dpsgd",
            axes={"trainer.lr": lr},
            config={"lr": lr},
            event=PlanEvent(
                training=events.repeat(events.poisson_gaussian(sample_rate=0.1, noise_multiplier=noise), 10),
                validation=events.gaussian(noise_multiplier=9.0) if scored else None,
            ),
        )
        for lr, noise in ((0.1, 2.0), (0.2, 2.0), (0.3, 3.0))
    ]


def plan_of(rule: Mapping[str, Any], event: PlanEvent, trials: Sequence[Trial]) -> Plan:
    return Plan(
        account="digits",
        budget=Guarantee(epsilon=9.0, delta=1e-4),
        delta=1e-5,
        rule=rule,
        blocks=tuple(Block(trials=(trial,)) for trial in trials),
        event=event,
    )


@dataclass(frozen=True, kw_only=True)
class Declared(Composition):
    """A composition that runs no plan."""

    def runs(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Plans are only priced."""
        return False


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(cast("dict[str, Any]", RULES), "declared", Declared)
    monkeypatch.setitem(tags.FAMILY_OF, "declared", "rule")
    return {"kind": "declared"}


def searched(trials: Sequence[Trial], of: Sequence[Trial], tries: Any = THREE, scores: Any = THREE) -> PlanEvent:
    """The best of tries, each of them one `of` these points by chance."""

    def best(ran: Sequence[DpEvent], law: Any) -> DpEvent:
        return events.best_of_tries(events.mixture(ran), law)

    scored = [trial.event.validation for trial in of if trial.event.validation is not None]
    return PlanEvent(
        training=best([trial.event.training for trial in of], tries),
        validation=best(scored, scores) if scored else None,
    )


def test_a_search_for_the_best_of_random_tries_runs_its_draw() -> None:
    for scored in (True, False):
        trials = points(scored)
        assert search_class_for_plan(plan_of(SELECTION, searched(trials, trials), trials)) is SecretDraw


def test_what_is_priced_otherwise_than_it_would_run_does_not_run() -> None:
    trials, public = points(), points(scored=False)
    good = searched(trials, trials)
    for event in (
        searched(trials, trials[:2]),
        searched(trials, trials, tries=FIVE, scores=FIVE),
        searched(trials, trials, tries=THREE, scores=FIVE),
        PlanEvent(training=good.training, validation=trials[0].event.validation),
        PlanEvent(training=good.training),
        PlanEvent(training=events.repeat(good.training, 2), validation=good.validation),
        PlanEvent(
            training=events.compose([good.training, trials[0].event.training]),
            validation=good.validation,
        ),
        PlanEvent(
            training=events.poisson_sampled(good.training, sample_rate=0.1),
            validation=good.validation,
        ),
        PlanEvent(training=events.no_access()),
        searched(public, public),
        Composition().event([trial.event for trial in trials]),
    ):
        with pytest.raises(BadInput, match="but not run"):
            search_class_for_plan(plan_of(SELECTION, event, trials))


def test_only_what_the_rule_declares_runs(declared: dict[str, Any]) -> None:
    trials = points()
    composed = Composition().event([trial.event for trial in trials])
    assert search_class_for_plan(plan_of({"kind": "composition"}, composed, trials)) is EveryPoint
    with pytest.raises(BadInput, match="but not run"):
        search_class_for_plan(plan_of(declared, composed, trials))


@pytest.mark.parametrize("rule", [SELECTION, GRID_WINNER, NOISY])
def test_a_search_that_hides_losers_runs_on_no_shared_subsamples(rule: Mapping[str, Any]) -> None:
    """Its runs together would be one event, and the search would be priced as one of a single point."""
    trials = points()
    plan = plan_of(rule, PlanEvent(training=events.no_access()), trials)
    shared = replace(plan, blocks=(Block(trials=tuple(trials), shared=True),))
    paid = replace(shared, event=rule_from_config(rule).event(shared.priced_events))
    with pytest.raises(BadInput, match="subsample=shared"):
        search_class_for_plan(paid)
    with pytest.raises(BadInput, match="to be paid for"):
        require_draw_paid_by_plan(paid, rule_from_config(rule).draw(len(trials), Random(1)))


def test_a_search_that_hides_losers_has_no_spare_attempts() -> None:
    trials = points()
    plan = replace(plan_of(SELECTION, PlanEvent(training=events.no_access()), trials), spares=1)
    with pytest.raises(BadInput, match="spare_attempts=1 to be 0"):
        search_class_for_plan(replace(plan, event=rule_from_config(SELECTION).event(plan.priced_events)))


def test_a_plan_without_points_does_not_run() -> None:
    for rule in (SELECTION, NOISY, {"kind": "composition"}):
        with pytest.raises(BadInput, match="to have a point"):
            search_class_for_plan(plan_of(rule, PlanEvent(training=events.no_access()), []))


def test_the_last_digits_of_a_law_may_be_those_of_another_machine() -> None:
    trials = points()
    for law, runs in ((THREE, True), (NegativeBinomial.with_mean(eta=1.0, mean=3.00001), False)):
        other = replace(law, gamma=math.nextafter(law.gamma, 1.0))
        plan = plan_of(SELECTION, searched(trials, trials, tries=other, scores=other), trials)
        if runs:
            assert search_class_for_plan(plan) is SecretDraw
        else:
            with pytest.raises(BadInput, match="but not run"):
                search_class_for_plan(plan)


def test_a_rule_that_draws_and_shows_how_often_does_not_run() -> None:
    class Telling(PrivateSelection):
        """Tells the number of its tries, which its price does not cover."""

        discloses = THE_WINNER | {Disclosure.NUMBER_OF_TRIES}

    events_of = [trial.event for trial in points()]
    assert not Telling(mean=3.0).runs(Telling(mean=3.0).event(events_of), events_of)
    assert PrivateSelection(mean=3.0).runs(Telling(mean=3.0).event(events_of), events_of)


def test_a_rule_that_runs_every_point_runs_no_search() -> None:
    trials = points()
    with pytest.raises(BadInput, match="but not run"):
        search_class_for_plan(plan_of({"kind": "composition"}, searched(trials, trials), trials))


def test_the_best_of_the_grid_is_paid_for_by_as_many_runs_of_the_dearest_point() -> None:
    events_of = [trial.event for trial in points()]
    rule = BestOfGrid()
    runs = [event.training for event in events_of]

    def paid(run: DpEvent, law: Any) -> bool:
        search = PlanEvent(training=events.best_of_tries(run, law), validation=rule.event(events_of).validation)
        return rule.runs(search, events_of)

    assert paid(events.worst_of_events(runs), EachPoint(count=3))
    assert not paid(events.mixture(runs), EachPoint(count=3)), "no point is drawn"
    assert not paid(events.worst_of_events(runs), EachPoint(count=2))
    assert not paid(events.worst_of_events(runs), THREE), "another search than that of the held-out records"
    drawn = PlanEvent(
        training=events.best_of_tries(events.worst_of_events(runs), THREE),
        validation=searched(points(), points()).validation,
    )
    assert not rule.runs(drawn, events_of), "its points are drawn, and its number of tries is secret"


@pytest.mark.parametrize("scored", [True, False])
def test_a_noisy_maximum_runs_where_scores_need_its_noise(scored: bool) -> None:
    trials, rule = points(scored), NoisyMax(noise_scale=9.0)
    event = rule.event([trial.event for trial in trials])
    assert rule.runs(event, [trial.event for trial in trials]) is scored


@pytest.mark.parametrize(
    ("rule", "draw", "reason"),
    [
        (SELECTION, Draw(tries=(0, 3)), "pays for"),
        (SELECTION, Draw(tries=(0,), handicaps=(1.0,)), "pays for"),
        (SELECTION, Draw(tries=(0,), threshold=0.5), "pays for"),
        (THRESHOLD, Draw(tries=(0,)), "pays for"),
        ({**SELECTION, "limit": 2}, Draw(tries=(0, 0, 0)), "pays for"),
        (GRID_WINNER, Draw(tries=(0, 1, 1)), "pays for"),
        (GRID_WINNER, Draw(tries=(0, 1)), "pays for"),
        (NOISY, Draw(tries=(0, 1, 2)), "pays for"),
        (NOISY, Draw(tries=(0, 1, 2), handicaps=(1.0, math.inf, 2.0)), "pays for"),
        (NOISY, Draw(tries=(0, 1), handicaps=(1.0, 2.0)), "pays for"),
        (NOISY, Draw(tries=(0, 1, 2), handicaps=(1.0, 1.0, 2.0), threshold=0.5), "pays for"),
        ({**THRESHOLD, "limit": 2}, Draw(tries=(0, 0, 0), threshold=0.9), "pays for"),
    ],
)
def test_a_draw_that_the_plan_does_not_pay_for_is_refused(rule: Mapping[str, Any], draw: Draw, reason: str) -> None:
    trials = points()
    plan = plan_of(rule, rule_from_config(rule).event([trial.event for trial in trials]), trials)
    honest = rule_from_config(rule).draw(len(trials), Random(1))
    assert require_draw_paid_by_plan(plan, honest) == honest
    with pytest.raises(BadInput, match=reason):
        require_draw_paid_by_plan(plan, draw)
    with pytest.raises(BadInput, match=reason):
        trials_of_draw(plan, draw)


def test_tries_of_one_point_are_runs_of_their_own_and_no_points() -> None:
    trials = points()
    plan = plan_of(SELECTION, searched(trials, trials), trials)
    tries = trials_of_draw(plan, Draw(tries=(2, 2, 0)))
    assert [one.axes["trainer.lr"] for one in tries] == [0.3, 0.3, 0.1]
    assert [one.event for one in tries] == [trials[2].event, trials[2].event, trials[0].event]
    assert len({trial.id for trial in (*tries, *trials)}) == 6


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"plan": "a", "attempt": 1}'])
def test_a_damaged_draw_is_refused_and_never_made_anew(tmp_path: Path, content: str) -> None:
    trials, path = points(), tmp_path / "draw.json"
    path.write_text(content)
    with pytest.raises(BadInput, match="whole and readable"):
        StoredDraw.read_for_plan(path, plan_of(SELECTION, searched(trials, trials), trials).id)


@given(
    tries=st.lists(st.integers(0, 9), max_size=6).map(tuple),
    threshold=st.none() | st.floats(0.1, 1.0),
    handicaps=st.just(()) | st.just((0.25, -3.0)),
)
def test_a_draw_comes_back_from_its_file(
    tmp_path_factory: pytest.TempPathFactory,
    tries: tuple[int, ...],
    threshold: float | None,
    handicaps: tuple[float, ...],
) -> None:
    path = tmp_path_factory.mktemp("draw") / "draw.json"
    stored = StoredDraw(plan="p", attempt=3, draw=Draw(tries=tries, threshold=threshold, handicaps=handicaps))
    stored.write(path)
    assert StoredDraw.read(path) == stored


@given(
    scores=st.lists(st.none() | st.sampled_from([0.2, 0.5, 0.9]), max_size=6),
    threshold=st.none() | st.sampled_from([0.5, 1.0]),
    ended=st.sets(st.integers(0, 5)),
)
def test_once_a_draw_is_over_no_score_to_come_changes_its_winner(
    scores: list[float | None], threshold: float | None, ended: set[int]
) -> None:
    draw = Draw(tries=(0,) * len(scores), threshold=threshold)
    complete = dict(enumerate(scores))
    so_far = {place: score for place, score in complete.items() if place in ended}
    assert draw.over(complete)
    if draw.over(so_far):
        assert draw.index_of_winning_try(so_far) == draw.index_of_winning_try(complete)
    elif threshold is None:
        assert draw.index_of_winning_try(complete | dict.fromkeys(complete.keys() - ended, 1.0)) not in ended
    good = [place for place, score in complete.items() if score is not None and score >= (threshold or 0.0)]
    expected = (
        good[:1] if threshold is not None else [p for p in good if complete[p] == max(complete[g] or 0 for g in good)]
    )
    assert draw.index_of_winning_try(complete) == (expected[0] if expected else None)


def test_handicaps_are_added_to_numbers_of_right_predictions() -> None:
    draw = Draw(tries=(0, 1, 2), handicaps=(2.5, -1.0, 9.0))
    assert draw.index_of_winning_try({0: 70.0, 1: 72.0, 2: None}) == 0
    assert draw.index_of_winning_try({0: 70.0, 1: 75.0, 2: None}) == 1
    assert draw.index_of_winning_try({0: None, 1: None, 2: None}) is None
