"""Catalogue of all exhibits of a sweep's pages, in their order, each with its needs.

To add an exhibit, write a module beside this one that makes it, and add a line here. `exhibit.shown` excludes from
`release/` everything that the price of the sweep does not cover.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsweep.accounting.audit_record import read_audit
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.reports.content.audience import Needs
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.audit_bar import audit_bar
from dpsweep.reports.exhibits.exhibit import DeclaredExhibit, Exhibit
from dpsweep.reports.exhibits.prices import privacy, rule_prices_exhibit, spending_exhibit
from dpsweep.reports.exhibits.search_difficulty import ease
from dpsweep.reports.exhibits.training_measurements import (
    bounding,
    gradient_norms,
    how_often_best,
    training_curves_exhibit,
    training_losses,
)
from dpsweep.reports.exhibits.what_mattered import collapse_exhibit, what_mattered


def _of_price(make: Callable[[Sweep, Bill], Exhibit | None]) -> Callable[[Sweep, Bill], Exhibit | None]:
    """Data declared public have no price."""
    return lambda sweep, bill: None if sweep.plan.public else make(sweep, bill)


FINDINGS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: what_mattered(sweep.grid)),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: collapse_exhibit(sweep)),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: how_often_best(sweep)),
    DeclaredExhibit(needs=Needs.ALL_SCORES, make=lambda sweep, bill: ease(sweep.grid, sweep.measure)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: training_losses(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: bounding(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: gradient_norms(sweep)),
    DeclaredExhibit(needs=Needs.CURATOR, make=lambda sweep, bill: training_curves_exhibit(sweep)),
)
"""Exhibits about results; those that compare points read the grid, which the tries of a secret draw do not fill."""

TERMS: tuple[DeclaredExhibit, ...] = (
    DeclaredExhibit(needs=Needs.CURATOR, make=_of_price(lambda sweep, bill: spending_exhibit(sweep))),
    DeclaredExhibit(needs=Needs.NOTHING, make=_of_price(lambda sweep, bill: privacy(sweep.plan, len(bill.charges)))),
    DeclaredExhibit(
        needs=Needs.NOTHING,
        make=_of_price(lambda sweep, bill: audit_bar(read_audit(SweepFolder(root=sweep.folder).audit, sweep.plan_id))),
    ),
    DeclaredExhibit(
        needs=Needs.CURATOR,
        make=_of_price(lambda sweep, bill: rule_prices_exhibit(sweep.plan, bill.left[0] + bill.epsilon)),
    ),
)
"""Exhibits about the price."""
