"""A page with several sweeps side by side, and their total price.

Rows are methods and columns are noise multipliers, as in the papers. The page is for the curator only. All maps have
one colour scale, and each sweep has its own best cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, replace_infinities_by_words, write_json
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import restrict_to_owner
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.validation import turn_read_errors_into_refusal
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Bill, read_bill, sum_in_exact_decimals
from dpsweep.reports.content.formatting import (
    ACCURACY,
    enumeration_text,
    method_label,
)
from dpsweep.reports.content.panels import build_map_panels, common_scale_of_panels
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.content.told_score import ToldScore, told_score_of_run
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.figures.page_figures import PageMaps, page_maps_of_panels
from dpsweep.reports.pages.curator_page import failure_sentences_by_picture
from dpsweep.reports.pages.page_memory import BESIDE, FAILED, NUMBERS
from dpsweep.reports.pages.templates import fill_template, write_file_in_one_rename, write_picture_files
from dpsweep.reports.statement.statement import cautions_on_large_epsilon_or_delta

EPSILON = "\N{GREEK SMALL LETTER EPSILON}"
COLUMNS = (
    *("plan", "data", "methods", "points", "rule", "epsilon", "delta"),
    *("best score", "best method", "95 % interval"),
)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The page: price and best score of each sweep, and their maps. `together` has each account's total price."""

    audience: Audience
    title: str
    together: tuple[str, ...]
    sweeps: Sheet
    maps: PageMaps | None
    failed_maps: tuple[str, ...]
    measure: str


def write_comparison_page(folders: Sequence[Path], ledger: Ledger, target: Path) -> Path:
    """Writes the page of these sweeps with its pictures into `target`, and returns the page's path.

    Raises `BadInput` if a folder is not a sweep or the ledger did not charge it.
    """
    with turn_read_errors_into_refusal("these sweeps"):
        sweeps = [table.read_sweep(folder, ledger) for folder in folders]
        bills = [read_bill(sweep) for sweep in sweeps]
    images = _draw_maps_of_sweeps(sweeps, bills)
    measure = enumeration_text(
        [*dict.fromkeys(f"{sweep.score_description} {sweep.score_scale.in_words}" for sweep in sweeps)]
    )
    page = Beside(
        audience=Audience.CURATOR,
        title=" beside ".join(dict.fromkeys(sweep.plan.account for sweep in sweeps)),
        together=tuple(_joint_price_sentences(sweeps, bills)),
        sweeps=Sheet.from_cells("The sweeps", COLUMNS, map(_row_of_sweep, sweeps, bills)),
        maps=page_maps_of_panels(images[0].panels if images else (), measure),
        failed_maps=tuple(failure_sentences_by_picture(images).values()),
        measure=measure,
    )
    make_folder_and_missing_parents(target)
    for picture in images:
        write_picture_files(picture, target)
    content = {
        "sweeps": page.sweeps.rows_as_dicts(),
        "together": list(page.together),
        FAILED: failure_sentences_by_picture(images),
    }
    write_json(target / NUMBERS[BESIDE], replace_infinities_by_words(content))
    write_file_in_one_rename(target / BESIDE, fill_template("beside.html.j2", page=page).encode())
    restrict_to_owner(target)
    return target / BESIDE


def _draw_maps_of_sweeps(sweeps: Sequence[Sweep], bills: Sequence[Bill]) -> tuple[Drawing, ...]:
    """A row for each method, a column for each sweep."""
    panels = [
        replace(
            panel,
            facet=(f"{sweep.plan.account}, search {EPSILON} {epsilon_text_rounded_up(bill.epsilon)}", *panel.facet),
        )
        for sweep, bill in zip(sweeps, bills, strict=True)
        for panel in build_map_panels(sweep.map_rows, sweep.swept_keys, sweep.rule.score_of_point, sweep.score_scale)
    ]
    methods = list(dict.fromkeys(panel.method for panel in panels))
    ordered = sorted(panels, key=lambda panel: methods.index(panel.method))
    scores = enumeration_text([*dict.fromkeys(sweep.score_description for sweep in sweeps)])
    return draw_joint_and_per_method_heatmaps(ordered, common_scale_of_panels(ordered).heading(scores))


def _joint_price_sentences(sweeps: Sequence[Sweep], bills: Sequence[Bill]) -> Iterator[str]:
    """The price of these sweeps in each account, by basic composition; data in two accounts are charged in both."""
    for account in dict.fromkeys(sweep.plan.account for sweep in sweeps):
        by_plan = {
            sweep.plan_id: bill for sweep, bill in zip(sweeps, bills, strict=True) if sweep.plan.account == account
        }
        epsilon = sum_in_exact_decimals(bill.epsilon for bill in by_plan.values())
        delta = sum_in_exact_decimals(bill.delta for bill in by_plan.values())
        subject = "this sweep" if len(by_plan) == 1 else f"these {len(by_plan)} sweeps together"
        if math.isinf(epsilon):
            yield f"{account} was declared public: its records are not protected."
            continue
        yield (
            f"{account} paid epsilon {epsilon_text_rounded_up(epsilon)} at delta {delta_text_rounded_up(delta)} for "
            f"{subject}."
        )
        plan = next(sweep.plan for sweep in sweeps if sweep.plan.account == account)
        charges = tuple(charge for bill in by_plan.values() for charge in bill.charges)
        last = next(reversed(by_plan.values()))
        yield from cautions_on_large_epsilon_or_delta(
            plan, replace(last, epsilon=epsilon, delta=delta, charges=charges)
        )


def _score_text(sweep: Sweep, told: ToldScore) -> str:
    """The score with its unit, and its name where it is no accuracy."""
    text = told.scale.with_unit(told.scale.text(told.value))
    return text if sweep.exported_metric == ACCURACY else f"{text} {sweep.score_label}"


def _row_of_sweep(sweep: Sweep, bill: Bill) -> tuple[Cell, ...]:
    methods, points = dict.fromkeys(trial.method for trial in sweep.plan.trials), len(sweep.plan.trials)
    best = None if sweep.winner_id is None else sweep.row_of_trial(sweep.winner_id)
    found: tuple[Cell, ...] = ("none", "", "")
    told = None if sweep.winner_id is None else told_score_of_run(sweep, sweep.winner_id)
    if best is not None and told is not None:
        found = (
            (_score_text(sweep, told), told.numbers[0]),
            method_label(str(best["method"])),
            told.interval_text.removesuffix(" %"),
        )
    return (
        *(sweep.plan_id, sweep.plan.account, enumeration_text([method_label(method) for method in methods])),
        *((str(points), points), sweep.rule.name, (epsilon_text_rounded_up(bill.epsilon), bill.epsilon)),
        *((delta_text_rounded_up(bill.delta), bill.delta), *found),
    )
