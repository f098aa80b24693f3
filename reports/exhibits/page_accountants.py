"""The accountants of a page's figures of prices: on a plan's own grid, or on a coarser one for many composed runs.

The distributions of a thousand runs on a plan's grid take seconds and hundreds of megabytes. On the coarser one every
bound is still an upper bound: higher by .002 % for 8000 steps at a sample rate of .25, by .09 % for 175,000 at .02.
"""

from __future__ import annotations

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.pricing.panel import Panel

FEW = 10
"""The largest number of composed runs on a plan's own grid."""

COARSE = 1e-3
"""The coarser grid's step, in nats."""


def pld_for(runs: int) -> Pld:
    """The accountant by privacy losses of so many composed runs."""
    return Pld() if runs <= FEW else Pld(interval=COARSE)


def panel_for(runs: int) -> Panel:
    """The accountants of so many composed runs."""
    return Panel(claimants=(pld_for(runs), Rdp()))
