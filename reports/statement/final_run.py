"""The statement's line on the final run: the records that it read, and its share of the price."""

from __future__ import annotations

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line


def final_apart(context: Context) -> bool:
    """Whether the final run reads records that the search does not read."""
    return context.sweep.plan.event.final is not None


def final_run(context: Context) -> tuple[Line, ...]:
    """The line on the final run; none under a rule without one."""
    plan, run = context.sweep.plan, context.sweep.rule.final_run
    if run is None or not plan.finals:
        return ()
    words = {
        "unit": plan.unit,
        "key": "its position" if plan.adjacency is Adjacency.REPLACE_ONE else f"the {plan.unit} itself",
    }
    return (
        Line(
            topic="Final run",
            text=run.statement.format(**words),
            level=EvidenceLevel.CHECKED,
            evidence=(*_costs_apart(context), *(sentence.format(**words) for sentence in run.evidence)),
        ),
    )


def _costs_apart(context: Context) -> tuple[str, ...]:
    """What either part of the records pays; empty if one price covers both."""
    if not final_apart(context):
        return ()
    search, final = (context.facts[f"{who}_epsilon"].text for who in ("search", "final"))
    return (
        f"The search costs epsilon {search}, the final run {final}; the claim is the larger, not the sum: no "
        f"{context.sweep.plan.unit} is in both parts (adaptive parallel composition, McSherry 2009, Theorem 4).",
    )
