"""What pages say of each kind of search, and what they make of its runs: the one place that asks which kind it is.

Invariant: of a search that hides its losers nothing is said or drawn that depends on its tries, but for its winner.
Whether more of an allowed page may be passed on is another question, which `Reader` answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.records.plan import Plan, Proposed
from dpsweep.accounting.rule_words import expected_tries
from dpsweep.accounting.searches.interface import Runs
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.reports.content.formatting import count_text, enumeration_text


@dataclass(frozen=True, kw_only=True)
class ShownSearch:
    """The words for a search, and what its runs are good for.

    `compared` says whether runs are compared with one another, in maps and tables; of tries that nobody may see, the
    winner alone is looked at. `charged` is the statement's sentence on the charge, `starts` the curator's evidence of
    it, with `{charged}` and `{started}` to fill in, `charge` what a charge is for, with `{runs}`. `covered` says what
    the choice among the points read and what of it stays secret, `not_covered` what the claim assumes of the runs,
    `bounds` what the accountants' bounds are about.
    `chosen_among` says what the winner is the best of, empty without a choice. `among` precedes the number of points in
    a headline, `note` the table of runs. `outcome` says that a finished search has no winner, where its rule discloses
    that. `to_come` is the number of runs that are not known yet; `adds_up` says that the bill is the sum of its runs'
    shares. `points` is the number of declared points, each with `runs_each` runs.
    """

    compared: bool
    charged: str
    starts: str
    charge: str
    to_come: int
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    among: str = ""
    note: str = ""
    outcome: str = ""
    adds_up: bool = False
    chosen_among: str = ""
    points: int
    runs_each: int = 1

    def points_text(self, methods: list[str], over: str = "") -> str:
        """The number of points of these methods over some keys, and the runs of each if there are several."""
        again = f", {self.runs_each} runs each" if self.runs_each > 1 else ""
        return f"{count_text(self.points, 'point')} of {enumeration_text(methods)}{over}{again}"


def shown_search_of_plan(plan: Plan, rule: SelectionRule, runs: Runs, *, private_scores: bool) -> ShownSearch:
    """The search of a plan as pages show it; `private_scores` says that scores are noisy counts of private records."""
    if rule.draws_in_secret:
        return _shown_search_of_secret_tries(plan, rule, runs)
    shown = _shown_search_of_open_runs(plan, rule, runs)
    return (
        shown
        if plan.proposed is None
        else _shown_search_of_proposed_runs(shown, plan.proposed, len(runs.rows), private_scores)
    )


def _shown_search_of_open_runs(plan: Plan, rule: SelectionRule, runs: Runs) -> ShownSearch:
    """Every point of the plan as often as the plan says; every run is charged, and may be shown."""
    several = plan.least_runs_per_point > 1
    how = (
        f"their {plan.least_runs_per_point} runs each"
        if several
        else "their runs, where a point was proposed several times"
    )
    told = "" if rule.final_run else " The model is that of the winning point's first finished run."
    points = len(set(plan.point_index_of_each_trial))
    compared = f"Points were compared by the {rule.name_of_point_score} score of {how}.{told}"
    return ShownSearch(
        compared=True,
        charged="Every run was charged before it started, and stays charged whatever its outcome.",
        starts="Runs charged: {charged}, started: {started}.",
        charge="{runs}",
        to_come=_final_runs_to_come(rule, runs),
        covered=(compared,) if several or plan.proposed else (),
        adds_up=plan.priced_events == tuple(trial.event for trial in plan.trials),
        chosen_among=f"{count_text(points, 'point')} of {plan.least_runs_per_point} runs each"
        if several
        else _runs_to_choose_among(len(plan.trials)),
        points=points,
        runs_each=len(plan.trials) // points,
    )


def _shown_search_of_proposed_runs(
    shown: ShownSearch, proposed: Proposed, known: int, private_scores: bool
) -> ShownSearch:
    """Runs whose points a sampler proposes, of which so many are known."""
    dearest_point = "the most expensive point of its phase" if proposed.phases else "the most expensive point"
    scores = "noisy scores" if private_scores else "scores on public records"
    return replace(
        shown,
        to_come=shown.to_come + proposed.trials - known,
        among=f"{count_text(proposed.trials, 'run')} proposed among ",
        covered=(
            *shown.covered,
            f"{proposed.sampler_name} proposed the point of each run from the {scores} of earlier runs. The number of "
            f"runs, {proposed.trials}, was fixed beforehand, and each is charged like {dearest_point} (adaptive "
            "composition, Mironov 2017, Proposition 1; Zhu, Dong, Wang 2022, Theorem 10).",
            "If a point was run several times, the maps show the mean of its runs.",
        ),
        adds_up=False,
        chosen_among=_runs_to_choose_among(proposed.trials),
    )


def _shown_search_of_secret_tries(plan: Plan, rule: SelectionRule, runs: Runs) -> ShownSearch:
    """The tries of a secret draw, of which the winner alone is shown."""
    each_point = Disclosure.NUMBER_OF_TRIES in rule.discloses
    secret = "Every point is tried once; the scores of all but the winner are secret."
    if Disclosure.WINNER_SCORE not in rule.discloses:
        secret = "Every point is tried once; all scores are secret."
    elif not each_point:
        secret = "The number of tries, their points, and the scores of all but the winner are secret."
    points = len(set(plan.point_index_of_each_trial))
    both = "RDP bounds all runs together; PLD also bounds the winner alone, which costs less."
    no_winner = "The search has no winner. The reason is not shown: the price does not cover it."
    return ShownSearch(
        compared=False,
        charged="The search was charged before its first run, independently of the draw, and stays charged whatever "
        "its outcome.",
        starts="Searches charged: {charged}, tries started: {started}.",
        charge="the search",
        to_come=0 if runs.over else _final_runs_to_come(rule, runs),
        covered=(secret,),
        not_covered=("A killed try gets the worst score; every try is assumed to be equally likely to be killed.",),
        bounds=(both,) if each_point else (),
        note="The price covers the winner alone: do not pass on the other tries, their scores, their times or their "
        "number. Only the contents of release/ may be passed on.",
        outcome=no_winner if runs.over and runs.winner is None else "",
        chosen_among=f"{len(plan.trials)} tries"
        if each_point
        else f"a secret number of tries ({expected_tries(rule, len(plan.trials)):.3g} expected) of "
        f"{count_text(len(plan.trials), 'point')}",
        points=points,
    )


def _runs_to_choose_among(runs: int) -> str:
    return f"{runs} runs" if runs > 1 else ""


def _final_runs_to_come(rule: SelectionRule, runs: Runs) -> int:
    return int(rule.final_run is not None and runs.final is None)
