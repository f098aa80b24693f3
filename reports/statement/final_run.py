"""The statement's line on the final run: the records that it read, and its share of the price."""

from __future__ import annotations

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.selection.disjoint_parts import DisjointParts
from dpsweep.accounting.selection.subsampled import Subsampled, TrainOn
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line


def final_apart(context: Context) -> bool:
    """Whether the final run reads records that the search does not read."""
    return context.sweep.plan.event.final is not None


def final_run(context: Context) -> tuple[Line, ...]:
    """The line on the final run; none under a rule without one."""
    plan, rule, unit = context.sweep.plan, context.sweep.rule, context.sweep.plan.unit
    if not plan.finals:
        return ()
    if isinstance(rule, Subsampled):
        return (_subsampled(rule, unit),)
    if not isinstance(rule, DisjointParts):
        return (
            Line(
                topic="Final run",
                text=f"The best point ran once more on the same {unit}s. Its price is part of the claim, and its score "
                "is not the best of several.",
                level=EvidenceLevel.CHECKED,
            ),
        )
    by = "its position" if plan.adjacency is Adjacency.REPLACE_ONE else f"the {unit} itself"
    search, final = (context.facts[f"{who}_epsilon"].text for who in ("search", "final"))
    return (
        Line(
            topic="Final run",
            text=f"The search read one part of the {unit}s, about {rule.share:.0%}; the best point then ran once more "
            f"on all others. The part of a {unit} depends on {by} and a public key alone.",
            level=EvidenceLevel.CHECKED,
            evidence=(
                f"The search costs epsilon {search}, the final run {final}; the claim is the larger, not the sum: "
                f"no {unit} is in both parts (adaptive parallel composition, McSherry 2009, Theorem 4).",
                "The final run's score is of its own held-out part: unlike the best score of the map, it is not the "
                "best of several.",
                f"The learning rate of the final run is the best one times (the ratio of noise per {unit}) to the "
                f"power {rule.carry:g}, as the plan declares.",
            ),
        ),
    )


def _subsampled(rule: Subsampled, unit: str) -> Line:
    last = f"all {unit}s" if rule.train_on is TrainOn.ALL else f"all other {unit}s"
    return Line(
        topic="Final run",
        text=f"The search read a secret random part of the {unit}s: each {unit} joined it with probability "
        f"{rule.rate:g}, by a coin of its own. The winner then ran once more, on {last}.",
        level=EvidenceLevel.CHECKED,
        evidence=(
            "The claim is the composition of the search, amplified by the sampling of its part, and of the final run "
            "(Balle, Barthe, Gaboardi 2018, Theorem 8; Koskela and Kulkarni 2023).",
            "The coins come from 256 secret random bits, which are drawn once, before the first run, and stay with the "
            "curator.",
            f"The learning rate of the final run is the winner's times (the ratio of noise per {unit}) to the power "
            f"{rule.carry:g}, as the plan declares.",
        ),
    )
