"""What ran, against what was declared and charged: the lines on charges, sampling and randomness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import count
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

SHARED = (
    "Runs on the same subsamples are priced as one mechanism whose precision is the sum of theirs; as independent ones "
    "they would seem cheaper than they are."
)


def charged(context: Context) -> Line:
    """That nothing ran without a charge."""
    table = context.sweep.table
    bare = [
        str(row["trial"])
        for _, row in table.iterrows()
        if row["attempts_started"] > row["attempts_charged"]
        or (row["trial"] in context.sweep.results and not row["attempts_started"])
    ]
    if bare:
        return Line(
            topic="Charges",
            text=f"{context.counted(len(bare))} ran without a charge: the claim does not hold.",
            standing=EvidenceLevel.VIOLATED,
            evidence=context.curator(*bare),
        )
    facts = context.facts
    charged, started = facts["runs_charged"].text, facts["runs_started"].text
    return Line(
        topic="Charges",
        text=(
            "The search was charged before its first run, whatever would be drawn, and stays charged whatever became "
            "of it."
            if context.drawn
            else "Every run was charged before it started, and stays charged whatever became of it."
        ),
        standing=EvidenceLevel.CHECKED,
        evidence=context.curator(
            f"Searches charged: {charged}, tries begun: {started}."
            if context.drawn
            else f"Runs charged: {charged}, started: {started}.",
            f"The ledger's chain verifies, {context.sweep.entries} lines long.",
        ),
    )


def sampling(context: Context) -> Line:
    """Whom each step took and what noise it had, as declared and as the runs tell."""
    facts, conducts = context.facts, Counter(context.sweep.table["conduct"])
    shared, taken = context.sweep.plan.shared, _taken(context)
    if taken:
        declared = (
            f"Each step takes {taken} and adds Gaussian noise of multiplier {facts['noise_multiplier'].text}"
            f"{_bounds(facts)}; {facts['steps'].text} steps a run{_lost(facts)}."
        )
    elif "minimised_noise" in facts:
        declared = (
            f"Each run minimises a strongly convex loss over all training {context.sweep.plan.unit}s and adds Gaussian "
            f"noise once to where the least is, of {facts['minimised_noise'].text} times what one "
            f"{context.sweep.plan.unit} can move it."
        )
    else:
        declared = "The runs are described by their events in the plan."
    told = [f"{context.counted(conducts[conduct])}: {conduct.value}." for conduct in Conduct if conducts[conduct]]
    standing, verdict = EvidenceLevel.CHECKED, "What ran is what was charged."
    if conducts[Conduct.OTHERWISE]:
        standing, verdict = EvidenceLevel.VIOLATED, "Something else ran than was charged."
    elif context.audience is Audience.PUBLIC:
        verdict = "Every run that could say what it did, did what was charged."
    elif conducts[Conduct.UNKNOWN]:
        standing, verdict = EvidenceLevel.ASSUMED, "What ran is what was charged; a failed run could not say."
    return Line(
        topic="Sampling and noise",
        text=f"{declared} {verdict}",
        standing=standing,
        evidence=(*((SHARED,) if shared else ()), *context.curator(*told)),
    )


def _taken(context: Context) -> str:
    """Whom a step takes; nothing where the events have no such word."""
    facts, unit = context.facts, context.sweep.plan.unit
    taken = []
    if "sample_rate" in facts:
        alike = ", the same ones for all runs," if context.sweep.plan.shared else ""
        taken.append(f"every training {unit} independently with probability {facts['sample_rate'].text}{alike}")
    if "batches" in facts:
        taken.append(f"exactly {facts['batches'].text} training {unit}s, drawn without replacement,")
    if "epochs" in facts:
        taken.append(f"the training {unit}s that fall to it, each in one of every {facts['epochs'].text} steps,")
    return " or ".join(taken)


def _bounds(facts: Mapping[str, Fact]) -> str:
    """How the clip norm, which the noise is relative to, changes over a run."""
    return f", relative to a clip norm by schedule ({facts['bounds'].text})" if "bounds" in facts else ""


def _lost(facts: Mapping[str, Fact]) -> str:
    """What is paid for so that a run that was killed may go on from a checkpoint."""
    return f", and up to {facts['lost_steps'].text} more that a crash makes run twice" if "lost_steps" in facts else ""


def randomness(context: Context) -> Line:
    """Where batches and noise came from; a seed is no private release."""
    if context.sweep.reproducible:
        return Line(
            topic="Randomness",
            text="Declared reproducible: NOT a private release. Whoever knows the seed can remove the noise.",
            standing=EvidenceLevel.VIOLATED,
        )
    results = len(context.sweep.results)
    return Line(
        topic="Randomness",
        text="Sampling and noise come from secret entropy of the operating system, which is not recorded.",
        standing=EvidenceLevel.CHECKED,
        evidence=context.curator(f"So say {results} of {count(results, 'result')}."),
    )
