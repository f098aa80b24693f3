"""The statement's lines on charges, sampling and randomness: the runs compared with declaration and ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import count
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

SHARED = (
    "Runs on the same subsamples are priced as one mechanism with the sum of their precisions (1 / noise variance); "
    "priced as independent runs, they would seem cheaper than they are."
)


def charged(context: Context) -> Line:
    """The line on charges: no run started without one."""
    table = context.sweep.all_runs
    uncharged = [
        str(row["trial"])
        for row in table.to_dict("records")
        if row["attempts_started"] > row["attempts_charged"]
        or (row["trial"] in context.sweep.results and not row["attempts_started"])
    ]
    if uncharged:
        return Line(
            topic="Charges",
            text=f"{context.counted(len(uncharged))} ran without a charge: the claim does not hold.",
            level=EvidenceLevel.VIOLATED,
            evidence=context.curator(*uncharged),
        )
    facts = context.facts
    runs_charged, runs_started = facts["runs_charged"].text, facts["runs_started"].text
    return Line(
        topic="Charges",
        text=(
            "The search was charged before its first run, independently of the draw, and stays charged whatever its "
            "outcome."
            if context.draws_in_secret
            else "Every run was charged before it started, and stays charged whatever its outcome."
        ),
        level=EvidenceLevel.CHECKED,
        evidence=context.curator(
            f"Searches charged: {runs_charged}, tries started: {runs_started}."
            if context.draws_in_secret
            else f"Runs charged: {runs_charged}, started: {runs_started}.",
            f"The ledger's hash chain of {context.sweep.entries} lines verifies.",
        ),
    )


def sampling(context: Context) -> Line:
    """The line on sampling and noise: each step as declared, and as the runs report it."""
    conducts, shared = Counter(context.sweep.all_runs["conduct"]), context.sweep.plan.shared
    reports = [f"{context.counted(conducts[conduct])}: {conduct.value}." for conduct in Conduct if conducts[conduct]]
    level, verdict = EvidenceLevel.CHECKED, "The runs match their charge."
    if conducts[Conduct.OTHERWISE]:
        level, verdict = EvidenceLevel.VIOLATED, "A run differs from its charge."
    elif context.audience is Audience.PUBLIC:
        verdict = "Every run that reported its steps matches its charge."
    elif conducts[Conduct.UNKNOWN]:
        level, verdict = EvidenceLevel.ASSUMED, "The runs match their charge; a failed run left no report."
    return Line(
        topic="Sampling and noise",
        text=f"{declared(context)} {verdict}",
        level=level,
        evidence=(*((SHARED,) if shared else ()), *context.curator(*reports)),
    )


def declared(context: Context) -> str:
    """What the runs were declared to do: batches, noise and steps."""
    facts, unit, batches = context.facts, context.sweep.plan.unit, _batches(context)
    if batches:
        return (
            f"Each step takes {batches} and adds Gaussian noise of multiplier {facts['noise_multiplier'].text}"
            f"{_bounds(facts)}; {facts['steps'].text} steps a run{_lost(facts)}."
        )
    if "minimised_noise" in facts:
        return (
            f"Each run minimises a strongly convex loss over all training {unit}s and adds Gaussian noise once to the "
            f"minimiser; the noise's standard deviation is {facts['minimised_noise'].text} times the largest distance "
            f"that one {unit} can move the minimiser."
        )
    return "The runs are described by their events in the plan."


def _batches(context: Context) -> str:
    """How a step draws its batch; empty for events without a sampler."""
    facts, unit = context.facts, context.sweep.plan.unit
    batches = []
    if "sample_rate" in facts:
        same = ", the same ones for all runs," if context.sweep.plan.shared else ""
        batches.append(f"every training {unit} independently with probability {facts['sample_rate'].text}{same}")
    if "batches" in facts:
        batches.append(f"exactly {facts['batches'].text} training {unit}s, drawn without replacement,")
    if "epochs" in facts:
        batches.append(
            f"its share of the training {unit}s (each {unit} is in one of every {facts['epochs'].text} steps)"
        )
    if "allocations" in facts:
        batches.append(
            f"its share of the training {unit}s (each {unit} is in a secret, random one of every "
            f"{facts['allocations'].text} steps)"
        )
    return " or ".join(batches)


def _bounds(facts: Mapping[str, Fact]) -> str:
    """The schedule of the clip norm that the noise multiplier refers to."""
    return f", relative to a clip norm by schedule ({facts['bounds'].text})" if "bounds" in facts else ""


def _lost(facts: Mapping[str, Fact]) -> str:
    """The steps that are charged so that a killed run can continue from a checkpoint."""
    return f", and up to {facts['lost_steps'].text} more if a crash repeats them" if "lost_steps" in facts else ""


def randomness(context: Context) -> Line:
    """The line on randomness; a run with a known seed is not a private release."""
    if context.sweep.reproducible:
        return Line(
            topic="Randomness",
            text="Declared reproducible: NOT a private release. A reader who knows the seed can remove the noise.",
            level=EvidenceLevel.VIOLATED,
        )
    results = len(context.sweep.results)
    return Line(
        topic="Randomness",
        text="Sampling and noise come from secret entropy of the operating system, which is not recorded.",
        level=EvidenceLevel.CHECKED,
        evidence=context.curator(f"Checked in {count(results, 'result')}."),
    )
