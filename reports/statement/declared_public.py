"""The privacy statement of a search on data declared public: it protects nobody."""

from __future__ import annotations

from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import count, listed, number
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.statement.by_script import script_line
from dpsweep.reports.statement.rehearsal import rehearsal_line
from dpsweep.reports.statement.statement import write_statement
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line
from dpsweep.reports.statement.what_ran import charged

NOBODY = "This search protects nobody: its data were declared public."


def statement_of(context: Context) -> tuple[Line, ...]:
    """The lines of the privacy statement; data declared public have a statement of their own."""
    first = tuple(rehearsal_line(context))
    if not context.sweep.plan.public:
        return (*first, *write_statement(context))
    first = (*first, _claim(context), charged(context), *script_line(context))
    return (*first, _conduct(context), _scores(), _randomness(context), _trust())


def _claim(context: Context) -> Line:
    return Line(
        topic="Claim",
        text=f"{NOBODY} Epsilon is infinite, and nothing here may be called differentially private.",
        level=EvidenceLevel.STATED,
        evidence=context.curator(
            "The search is still charged, to an account that was opened for data declared public and for no others."
        ),
    )


def _conduct(context: Context) -> Line:
    facts, conducts = context.facts, set(context.sweep.all_runs["conduct"])
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in context.sweep.plan.trials})
    noise = listed([number(noise) for noise in noises])
    level, verdict = EvidenceLevel.CHECKED, "The runs match their declaration."
    if Conduct.OTHERWISE in conducts:
        level, verdict = EvidenceLevel.VIOLATED, "A run differs from its declaration."
    elif Conduct.UNKNOWN in conducts:
        level, verdict = EvidenceLevel.ASSUMED, "The runs match their declaration; a failed run left no report."
    return Line(
        topic="Sampling and noise",
        text=f"{_steps(facts['steps'])} a run, noise multiplier {noise}. {verdict}",
        level=level,
    )


def _steps(steps: Fact) -> str:
    return count(steps.value, "step") if isinstance(steps.value, int) else f"{steps.text} steps"


def _scores() -> Line:
    return Line(
        topic="Scores",
        text="Scores and training curves are exact: they are computed from the public records without noise.",
        level=EvidenceLevel.STATED,
        evidence=("Intervals are at 95 % and cover the finite number of records.",),
    )


def _randomness(context: Context) -> Line:
    source = "a recorded seed" if context.sweep.reproducible else "secret entropy of the operating system"
    return Line(topic="Randomness", text=f"Batches and noise come from {source}.", level=EvidenceLevel.STATED)


def _trust() -> Line:
    return Line(
        topic="Trust",
        text="The curator declared that the data are public (dataset.public); no program can check this.",
        level=EvidenceLevel.ASSUMED,
    )
