"""The results of a sweep as its rule discloses them: a price, a table, a heatmap, the best trial, a release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.rehearsal import is_rehearsal, ledger_of, subject_of
from dpsweep.reports.content.audience import Needs, Reader
from dpsweep.reports.content.charges import Bill, read_bill
from dpsweep.reports.content.sweep_table import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsweep.reports.statement.methods_text import MethodsText


@dataclass(frozen=True)
class SweepResults:
    """A finished or interrupted sweep, read from its folder and its ledger.

    What the rule of the search does not disclose raises `BadInput` with the reason, here as in a release.
    """

    _sweep: Sweep

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return self._sweep.folder

    def __repr__(self) -> str:
        """The account, or the one that a rehearsal stands for, and the folder."""
        plan = self._sweep.plan
        what = f"REHEARSAL of {subject_of(plan)} on generated records" if self.rehearsal else f"sweep on {plan.account}"
        return f"<{type(self).__name__}: {what}, in {self.folder}>"

    @property
    def rehearsal(self) -> bool:
        """Whether this is a rehearsal on generated records: then no number is about the data set that it stands for."""
        return is_rehearsal(self._sweep.plan)

    @property
    def epsilon(self) -> float:
        """Upper bound on epsilon for all that was charged for this sweep, repeats included, at `delta`.

        Infinite where the records contradict the claim, by reproducible noise (`seed=`) or a run that differs from its
        charge, for data declared public, and for a rehearsal, which says nothing about real records.
        """
        from dpsweep.reports.pages.release import contradictions

        void = self._sweep.plan.public or contradictions(self._sweep, self._bill)
        return math.inf if void else self._bill.epsilon

    @property
    def delta(self) -> float:
        """The delta of all charges of this sweep."""
        return self._bill.delta

    @property
    def trials(self) -> pd.DataFrame:
        """A row for each run: method, hyperparameters, noise multiplier, state, and the score with its 95 % interval.

        Scores are the noisy ones that were charged, or exact where the split is declared public. As in a release, the
        reasons why runs have no score are not shown.
        """
        from dpsweep.reports.pages.release import covered_records

        self._require(Needs.ALL_SCORES, "the trials")
        return covered_records(self._sweep)

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The trial whose model is handed over: its method, hyperparameters and, where covered, its score.

        None as long as no trial has won; a rule that hides losers has a winner only once its search is over.
        """
        self._require(Needs.WINNER, "the winner")
        open_search = not self._sweep.runs.over and not self._reader.may_see(Needs.ALL_SCORES)
        if open_search or self._sweep.winner is None:
            return None
        trial = self._sweep.trial(self._sweep.winner)
        point = {"method": trial.method, **trial.axes}
        if not self._reader.may_see(Needs.WINNER_SCORE):
            return point
        return point | {self._sweep.metric: self._sweep.row(trial.id)["accuracy"]}

    def heatmap(self) -> Figure:
        """The map of scores, a panel for each method, as a matplotlib figure."""
        self._require(Needs.ALL_SCORES, "the map")
        from dpsweep.reports.content.panels import arrange
        from dpsweep.reports.figures.table_heatmap import drawn

        figure = drawn(
            arrange(self._sweep.cells, self._sweep.axes, self._sweep.rule.score_of_point), self._sweep.measure
        )
        if self.rehearsal:
            figure.text(
                0.5, 1.0, f"REHEARSAL of {subject_of(self._sweep.plan)} on generated records", ha="center", va="bottom"
            )
        return figure

    @property
    def methods(self) -> MethodsText:
        """A paragraph for a paper's methods section: `.text` in LaTeX, and `.bibtex` with the works that it cites.

        It describes the search and its price and says no more than a release. Raises `BadInput` where nothing is
        claimed: for data declared public, records that contradict the claim, and a search that is not over.
        """
        from dpsweep.reports.pages.release import methods_of

        written = methods_of(self._sweep, self._bill)
        if written is None:
            raise BadInput(f"Expected the sweep in {self.folder} to be a finished, private one: it claims nothing.")
        return written

    def release(self, formats: Sequence[str] = ()) -> Path:
        """Writes `release/`, which shows only what the rule discloses, and returns the path of its page.

        `formats` are those of `dpsweep release --for`: "registry", "tre", "hf", "cyclonedx". Raises `BadInput` for
        another one, and writes nothing then.
        """
        from dpsweep.reports.disclosure.formats import formats_of
        from dpsweep.reports.pages.release import write_release

        return write_release(self.folder, ledger_of(self.folder), formats_of(formats))

    def report(self) -> Path:
        """Draws the curator's page, where it is not as it would be drawn now, and returns its path."""
        from dpsweep.reports.pages.page_memory import current_report

        return current_report(self.folder, ledger_of(self.folder))

    @cached_property
    def _bill(self) -> Bill:
        return read_bill(self._sweep)

    @property
    def _reader(self) -> Reader:
        from dpsweep.reports.pages.release import reader_of

        return reader_of(self._sweep)

    def _require(self, needs: Needs, what: str) -> None:
        if not self._reader.may_see(needs):
            rule = self._sweep.plan.rule.get("kind", "this rule")
            raise BadInput(
                f"Expected a rule whose price covers {what}: {rule} pays for less. Showing {needs.value} would cost "
                "privacy that was not charged. tuning=composition and tuning=disjoint cover the scores of all runs."
            )
