"""Catalogue of all exhibits of a sweep's pages, in their order, each with its needs.

To add an exhibit, write a module beside this one that makes it, and add a line here. `exhibit.shown` excludes from
`release/` everything that the price of the sweep does not cover.
"""

from __future__ import annotations

from dpsweep.accounting.audit.record import read_audit_of_plan_or_none
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.reports.content.audience import Needs, Reader
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.audit_bar import audit_exhibit
from dpsweep.reports.exhibits.exhibit import DeclaredExhibit, Exhibit, visible_exhibits
from dpsweep.reports.exhibits.prices import epsilon_by_delta_exhibit, rule_prices_exhibit, spending_exhibit
from dpsweep.reports.exhibits.search_difficulty import search_difficulty_exhibit
from dpsweep.reports.exhibits.training_measurements import (
    clipping_effect_exhibit,
    gradient_norms_exhibit,
    how_often_best_exhibit,
    training_curves_exhibit,
    training_losses_exhibit,
)
from dpsweep.reports.exhibits.what_mattered import score_by_lr_times_clip_exhibit, what_mattered_exhibit

FINDINGS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: what_mattered_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: score_by_lr_times_clip_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: how_often_best_exhibit(sweep)),
    DeclaredExhibit(
        needs=Needs.ALL_SCORES,
        make=lambda sweep, bill: search_difficulty_exhibit(
            sweep.compared_rows, sweep.score_description, sweep.score_scale
        ),
    ),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: training_losses_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: clipping_effect_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: gradient_norms_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: training_curves_exhibit(sweep)),
)
"""Exhibits about results; those that compare points read the grid, which the tries of a secret draw do not fill."""

TERMS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: spending_exhibit(sweep)),
    DeclaredExhibit(
        needs=Needs.NOTHING, make=lambda sweep, bill: epsilon_by_delta_exhibit(sweep.plan, len(bill.charges))
    ),
    DeclaredExhibit(
        needs=Needs.NOTHING,
        make=lambda sweep, bill: audit_exhibit(
            read_audit_of_plan_or_none(SweepFolder(root=sweep.folder).audit_record_path, sweep.plan_id)
        ),
    ),
    DeclaredExhibit(
        needs=Needs.CURATOR, make=lambda sweep, bill: rule_prices_exhibit(sweep.plan, bill.left[0] + bill.epsilon)
    ),
)
"""Exhibits about the price."""


def visible_findings_and_terms(
    sweep: Sweep, bill: Bill, reader: Reader
) -> tuple[tuple[Exhibit, ...], tuple[Exhibit, ...]]:
    """The exhibits about results and those about the price that this reader may see; public data have no price."""
    terms = () if sweep.plan.has_public_data else TERMS
    return visible_exhibits(FINDINGS, sweep, bill, reader), visible_exhibits(terms, sweep, bill, reader)
