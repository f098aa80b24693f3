"""`dpsweep.plan`, `sweep`, `rehearse`, `results`, `report` and `release`: the verbs of the command line as functions.

A request comes from a list of overrides, as `dpsweep sweep` takes them, and from keywords beside it. The results of a
sweep are those that its rule discloses: a price, a table, a heatmap, the best trial, a release.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.rehearsal import account_without_rehearsal_prefix, is_rehearsal_plan, ledger_of_sweep_folder
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content import sweep_table
from dpsweep.reports.content.audience import Needs, Reader
from dpsweep.reports.content.facts import Bill, read_bill
from dpsweep.reports.content.sweep_table import Sweep, rows_scored_by, table_with_typed_columns
from dpsweep.reports.content.told_score import told_score_of_run
from dpsweep.sweeper.commands.hydra_app import CONF, hydra_arguments_from_command_line, refuse_reserved_keys_and_options
from dpsweep.sweeper.commands.hydra_internals import compose_for_sweep
from dpsweep.sweeper.commands.keywords import overrides_with_keywords
from dpsweep.sweeper.commands.readable_files import name_file_in_config_errors
from dpsweep.sweeper.coordinator.request import SweeperSettings, SweepRequest, Verb
from dpsweep.sweeper.coordinator.signals import AGAIN
from dpsweep.sweeper.coordinator.sweep_coordinator import SweepCoordinator
from dpsweep.sweeper.job.block_job import run_block
from dpsweep.sweeper.planning.unknown_keys import wrong_override_sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsweep.reports.statement.methods_text import MethodsText


@contextmanager
def compose_request_within_hydra(verb: Verb, overrides: Sequence[str]) -> Iterator[SweepRequest]:
    """The request of a verb with these overrides; Hydra is initialised within the block.

    Raises `BadInput` for an override that the configuration does not take.
    """
    refuse_reserved_keys_and_options(overrides)
    GlobalHydra.instance().clear()
    try:
        with name_file_in_config_errors():
            yield _sweep_request_from_overrides(verb, hydra_arguments_from_command_line(overrides))
    except (HydraException, OmegaConfBaseException) as cause:
        raise BadInput(wrong_override_sentence(cause, overrides) or str(cause).splitlines()[0]) from cause
    finally:
        GlobalHydra.instance().clear()


def _sweep_request_from_overrides(verb: Verb, words: Sequence[str]) -> SweepRequest:
    config, context = compose_for_sweep(CONF, words)
    own = config.hydra.sweeper
    settings = SweeperSettings(
        verb=verb, max_batch_size=own.max_batch_size, retry=own.retry, resume=own.resume, study=own.study
    )
    typed = list(map(str, config.hydra.overrides.task))
    return SweepRequest.from_config(config, typed, settings, context=context, task=run_block)


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
        what = (
            f"REHEARSAL of {account_without_rehearsal_prefix(plan)} on generated records"
            if self.rehearsal
            else f"sweep on {plan.account}"
        )
        return f"<{type(self).__name__}: {what}, in {self.folder}>"

    @property
    def rehearsal(self) -> bool:
        """Whether this is a rehearsal on generated records: then no number is about the data set that it stands for."""
        return is_rehearsal_plan(self._sweep.plan)

    @property
    def epsilon(self) -> float:
        """Upper bound on epsilon for all that was charged for this sweep, repeats included, at `delta`.

        Infinite where the records contradict the claim, by reproducible noise (`seed=`) or a run that differs from its
        charge, for data declared public, and for a rehearsal, which says nothing about real records.
        """
        from dpsweep.reports.pages.release import contradicted_public_lines

        void = self._sweep.plan.has_public_data or contradicted_public_lines(self._sweep, self._bill)
        return math.inf if void else self._bill.epsilon

    @property
    def delta(self) -> float:
        """The delta of all charges of this sweep."""
        return self._bill.delta

    @property
    def trials(self) -> pd.DataFrame:
        """A row for each run: method, hyperparameters, noise multiplier, state, and the score with its 95 % interval.

        Columns of numbers are of type float, with nan where a run has none. Scores are the noisy ones that were
        charged, or exact where the split is declared public. An error that noise drove below 0 is nan too, and
        `below_noise` is true. As in a release, the reasons why runs have no score are not shown.
        """
        from dpsweep.reports.pages.release import table_of_disclosed_runs

        self._require_rule_to_disclose(Needs.ALL_SCORES, "the trials")
        return table_with_typed_columns(table_of_disclosed_runs(self._sweep))

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The trial whose model is handed over: its method, hyperparameters and, where covered, its score.

        Of predicted numbers the score is an error in the unit of the target, such as `mean_absolute_error`; None if
        noise drove it below 0.

        The score is the one that chose, so it is partly luck; `<metric>_low` and `<metric>_high` are the ends of the 95
        % interval that holds whichever run had won, None where nothing covers the choice. Where a point has several
        `runs`, their mean, or what else the rule compares, chose; the interval is of the run whose model is handed
        over, which has `<metric>_of_model`. None as long as no trial has
        won; a rule that hides losers has a winner only once its search is over.
        """
        self._require_rule_to_disclose(Needs.WINNER, "the winner")
        open_search = not self._sweep.runs.over and not self._public_reader.may_see(Needs.ALL_SCORES)
        if open_search or self._sweep.winner_id is None:
            return None
        trial = self._sweep.trial_with_id(self._sweep.winner_id)
        point = {"method": trial.method, **trial.axes}
        if Disclosure.WINNER_SCORE not in self._sweep.disclosures:
            return point
        told, metric = told_score_of_run(self._sweep, trial.id), self._sweep.exported_metric
        if told is None:
            return point
        value, low, high = told.numbers
        score = {metric: value, f"{metric}_low": low, f"{metric}_high": high}
        if told.point is not None and told.runs > 1 and not told.card_part:
            chose = told.scale.exported_number(told.point.value)
            score |= {metric: chose, "runs": told.runs, f"{metric}_of_model": value}
        return point | score

    def heatmap(self, *, size: tuple[float, float] | None = None, metric: str | None = None, title: str = "") -> Figure:
        """The map of scores, a panel for each method, as a matplotlib figure of `size` inches, or as large as it needs.

        `metric` is the sweep's own one, or another one of the same counts, such as "sensitivity". Raises `BadInput`
        for one that the counts do not give, and under a rule whose price does not cover the scores of all runs.
        """
        self._require_rule_to_disclose(Needs.ALL_SCORES, "the map")
        from dpsweep.reports.content.panels import build_map_panels
        from dpsweep.reports.content.score_scale import PERCENT
        from dpsweep.reports.figures.heatmap import matplotlib_figure_for_notebooks

        own = metric in (None, self._sweep.metric, self._sweep.exported_metric)
        rows = rows_scored_by(self._sweep, self._sweep.metric if own else str(metric))
        figure = matplotlib_figure_for_notebooks(
            build_map_panels(
                rows,
                self._sweep.swept_keys,
                self._sweep.rule.name_of_point_score,
                self._sweep.score_scale if own else PERCENT,
            ),
            self._sweep.score_description if own else str(metric),
        )
        if size is not None:
            figure.set_size_inches(size)
        if self.rehearsal:
            title = f"REHEARSAL of {account_without_rehearsal_prefix(self._sweep.plan)} on generated records"
        if title:
            figure.text(0.5, 1.0, title, ha="center", va="bottom", parse_math=False)
        return figure

    def _repr_html_(self) -> str:
        """The claim, the winner and the map, for a notebook; what the rule does not disclose is left out."""
        reader = self._public_reader
        price = f"epsilon {epsilon_text_rounded_up(self.epsilon)} at delta {delta_text_rounded_up(self.delta)}"
        parts = [f"<p><b>{escape(repr(self))}</b><br>{price}</p>"]
        if reader.may_see(Needs.WINNER) and self.best is not None:
            trial = self._sweep.trial_with_id(str(self._sweep.winner_id))
            disclosed = Disclosure.WINNER_SCORE in self._sweep.disclosures
            told = told_score_of_run(self._sweep, trial.id) if disclosed else None
            point = ", ".join(map(str, (trial.method, *(f"{key} = {value}" for key, value in trial.axes.items()))))
            sentences = () if told is None else (told.interval_sentence(self._sweep.score_label), told.score_sentence)
            score = " ".join(filter(None, sentences))
            parts.append(f"<p>{escape(point)}<br>{escape(score)}</p>")
        if reader.may_see(Needs.ALL_SCORES):
            picture = b64encode(self.heatmap()._repr_png_()).decode()  # type: ignore[attr-defined]
            parts.append(f'<img alt="map of scores" src="data:image/png;base64,{picture}">')
        return "".join(parts)

    @property
    def methods(self) -> MethodsText:
        """A paragraph for a paper's methods section: `.text` in LaTeX, and `.bibtex` with the works that it cites.

        It describes the search and its price and says no more than a release. Raises `BadInput` where nothing is
        claimed: for data declared public, records that contradict the claim, and a search that is not over.
        """
        from dpsweep.reports.pages.release import methods_text_if_releasable

        written = methods_text_if_releasable(self._sweep, self._bill)
        if written is None:
            raise BadInput(f"Expected the sweep in {self.folder} to be a finished, private one: it claims nothing.")
        return written

    def release(self, formats: Sequence[str] = ()) -> Path:
        """Writes `release/`, which shows only what the rule discloses, and returns the path of its page.

        `formats` are those of `dpsweep release --for`: "registry", "tre", "hf", "cyclonedx", and those that other
        distributions have registered. Raises `BadInput` for another one, and writes nothing then.
        """
        from dpsweep.reports.disclosure.formats import formats_with_names
        from dpsweep.reports.pages.release import write_release

        return write_release(self.folder, ledger_of_sweep_folder(self.folder), formats_with_names(formats))

    def export(self) -> Path:
        """Writes `release/` again and `export/`, with the winner's weights and code, and returns the model card's path.

        Raises `BadInput` if nothing may be released or the rule names no winner.
        """
        from dpsweep.reports.disclosure.formats import formats_written_in_release
        from dpsweep.reports.pages.model_export import write_release_and_export

        formats = formats_written_in_release(self.folder / "release")
        return write_release_and_export(self.folder, ledger_of_sweep_folder(self.folder), formats)

    def report(self) -> Path:
        """Draws the curator's page, where it is not as it would be drawn now, and returns its path."""
        from dpsweep.reports.pages.page_memory import redraw_report_if_outdated

        return redraw_report_if_outdated(self.folder, ledger_of_sweep_folder(self.folder))

    @cached_property
    def _bill(self) -> Bill:
        return read_bill(self._sweep)

    @property
    def _public_reader(self) -> Reader:
        from dpsweep.reports.pages.release import public_reader

        return public_reader(self._sweep)

    def _require_rule_to_disclose(self, needs: Needs, what: str) -> None:
        if not self._public_reader.may_see(needs):
            rule = self._sweep.plan.rule.get("kind", "this rule")
            raise BadInput(
                f"Expected a rule whose price covers {what}: {rule} pays for less. Showing {needs.value} would cost "
                "privacy that was not charged. tuning=composition and tuning=disjoint cover the scores of all runs."
            )


@dataclass(frozen=True, kw_only=True)
class PlannedSweep:
    """The price of a search that has not run.

    With secret noise (without `seed=`) the whole search would satisfy (`epsilon`, `delta`)-differential privacy on the
    data set `account`; `epsilon` is an upper bound. `points` has a row for each trial: its method, its hyperparameters
    and its noise multiplier.
    """

    id: str
    account: str
    epsilon: float
    delta: float
    points: pd.DataFrame
    folder: Path


def plan(overrides: Sequence[str] = (), **keywords: Any) -> PlannedSweep:
    """The price of a sweep, as `dpsweep plan` finds it; writes nothing and charges nothing.

    `overrides` are words of the command line, such as `["dataset=digits", "trainer.lr=0.5,1,2"]`; keywords say the
    same in Python, such as `dataset="digits", lr=[0.5, 1, 2]`. A list is an axis, a tuple is one value that is a list,
    and a dotted key stands in a dictionary, such as `**{"adapter.rank": 4}`. Raises `BadInput` for a word or a keyword
    that the configuration does not take.
    """
    with compose_request_within_hydra(Verb.PLAN, overrides_with_keywords(overrides, keywords)) as request:
        priced = SweepCoordinator(request).compose_plan()
        folder = request.jobs.for_plan(priced.plan.id).sweep_folder_path
    rows = [
        {
            "method": trial.method,
            **trial.swept_values_and_repeat,
            "noise_multiplier": sweep_table.first_noise_multiplier(trial),
        }
        for trial in priced.plan.trials
    ]
    return PlannedSweep(
        id=priced.plan.id,
        account=priced.plan.account,
        epsilon=priced.quote.epsilon,
        delta=priced.plan.delta,
        points=pd.DataFrame(rows),
        folder=folder,
    )


def sweep(overrides: Sequence[str] = (), *, again: bool = False, **keywords: Any) -> SweepResults:
    """Prices, charges, trains and reports a grid, as `dpsweep sweep` does, and returns its results.

    Overrides and keywords are those of `plan`. The same ones again train only what is missing and charge nothing more.
    With `again`, killed runs are repeated on another charge; without any killed run, the whole sweep is.
    Raises `BadInput` for a wrong word and `BudgetRefused` where the account has less left, both before anything is
    charged; `KeyboardInterrupt` where the user stopped the sweep: what had started stays charged, and the same call
    goes on.
    """
    words = overrides_with_keywords(overrides, keywords)
    if not isinstance(again, bool):
        raise BadInput(f"Expected again={again!r} to be True or False: True may charge once more.")
    return _charge_and_run_sweep(Verb.SWEEP, [*words, AGAIN] if again else words)


def rehearse(overrides: Sequence[str] = (), **keywords: Any) -> SweepResults:
    """Does all that `sweep` does on generated records and a scratch budget: nothing real is read, charged or released.

    Shapes and sizes come from the configuration alone. The results say `rehearsal`.
    """
    return _charge_and_run_sweep(Verb.REHEARSE, overrides_with_keywords(overrides, keywords))


def _charge_and_run_sweep(verb: Verb, overrides: Sequence[str]) -> SweepResults:
    with compose_request_within_hydra(verb, overrides) as request:
        coordinator = SweepCoordinator(request)
        priced = coordinator.compose_plan()
        if coordinator.charge_and_run(priced) is ExitCode.STOPPED:
            raise KeyboardInterrupt
        folder = coordinator.folder_with_results(priced.plan)
    return results(folder)


def results(folder: Path | str) -> SweepResults:
    """The results of the sweep in a folder, as far as its rule discloses them.

    Raises `BadInput` if the folder holds no plan, or one that the ledger (`DPSWEEP_LEDGER`) has not charged.
    """
    return SweepResults(sweep_table.read_sweep(Path(folder), ledger_of_sweep_folder(Path(folder))))


def report(sweeps: Sequence[SweepResults | Path | str]) -> Path:
    """Draws the curator's page of each sweep, and one with all side by side, of which it returns the path.

    Sweeps are results or folders; of a single one the path is that of its own page. No sweep is called the best, since
    a choice among sweeps is a selection that none of them paid for.
    """
    from dpsweep.reports.pages.page_memory import report_sweeps

    return [*report_sweeps(_folders_of_sweeps(sweeps))][-1]


def release(sweeps: Sequence[SweepResults | Path | str], formats: Sequence[str] = ()) -> Path:
    """Releases each sweep, and all as one package, and returns the path of its page; of a single one, that of its own.

    `formats` are those of `SweepResults.release`. Raises `BadInput` for a sweep that has no release, with the reason.
    """
    from dpsweep.reports.disclosure.formats import formats_with_names
    from dpsweep.reports.pages.comparison import release_sweeps

    return [*release_sweeps(_folders_of_sweeps(sweeps), formats_with_names(formats))][-1]


def _folders_of_sweeps(sweeps: Sequence[SweepResults | Path | str]) -> list[Path]:
    if not sweeps:
        raise BadInput("Expected at least one sweep: results, or the folder of a sweep.")
    return [one.folder if isinstance(one, SweepResults) else Path(one) for one in sweeps]
