"""Catalogue of all exhibits of a sweep's pages, in their order, each with its needs.

To add an exhibit, write a module beside this one that makes it, and add a line here. `exhibit.shown` excludes from
`release/` everything that the price of the sweep does not cover.
"""

from __future__ import annotations

from dpsweep.accounting.audit_record import read_audit
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.reports.content.audience import Needs
from dpsweep.reports.content.charges import Bill
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.audit_bar import audit_bar
from dpsweep.reports.exhibits.budget_by_method import spending
from dpsweep.reports.exhibits.collapse import collapse
from dpsweep.reports.exhibits.exhibit import DeclaredExhibit, Exhibit
from dpsweep.reports.exhibits.gradient_norms import gradient_norms
from dpsweep.reports.exhibits.loss_maps import bounding, how_often_best, training_losses
from dpsweep.reports.exhibits.other_rules import rivals
from dpsweep.reports.exhibits.privacy_curve import privacy
from dpsweep.reports.exhibits.search_difficulty import ease
from dpsweep.reports.exhibits.training_curves import course
from dpsweep.reports.exhibits.what_mattered import what_mattered


def _what_mattered(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.rule.draws_in_secret else what_mattered(sweep.table)


def _collapse(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.rule.draws_in_secret else collapse(sweep)


def _how_often_best(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.rule.draws_in_secret else how_often_best(sweep)


def _ease(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.rule.draws_in_secret else ease(sweep.table, sweep.measure)


def _spending(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.plan.public else spending(sweep)


def _privacy(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.plan.public else privacy(sweep.plan, len(bill.charges))


def _audit(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.plan.public else audit_bar(read_audit(SweepFolder(root=sweep.folder).audit, sweep.plan_id))


def _rivals(sweep: Sweep, bill: Bill) -> Exhibit | None:
    return None if sweep.plan.public else rivals(sweep.plan, bill.left[0] + bill.epsilon)


FINDINGS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=_what_mattered),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=_collapse),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=_how_often_best),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=_ease),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: training_losses(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: bounding(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: gradient_norms(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: course(sweep)),
)
"""Exhibits about results. Trials of a secret draw do not form a grid, so they have no maps, even for the curator."""

TERMS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.CURATOR, make=_spending),
    DeclaredExhibit(needs=Needs.NOTHING, make=_privacy),
    DeclaredExhibit(needs=Needs.NOTHING, make=_audit),
    DeclaredExhibit(needs=Needs.CURATOR, make=_rivals),
)
"""Exhibits about the price; data declared public have no price."""
