"""The statement of a search on data that were declared public: that it protects nobody, and on whose word."""

from __future__ import annotations

from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import count, listed, number
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.statement.statement import write_statement
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line
from dpsweep.reports.statement.what_ran import charged

NOBODY = "This search protects nobody: its data were declared public."


def statement_of(context: Context) -> tuple[Line, ...]:
    """What the price of a search covers, or, where its data were declared public, that there is none to speak of."""
    if not context.sweep.plan.public:
        return write_statement(context)
    return (_claim(context), charged(context), _conduct(context), _scores(), _randomness(context), _trust())


def _claim(context: Context) -> Line:
    return Line(
        topic="Claim",
        text=f"{NOBODY} Epsilon is infinite, and nothing here may be called differentially private.",
        standing=EvidenceLevel.STATED,
        evidence=context.curator(
            "It is charged all the same, to an account that was opened for data declared public and serves no others."
        ),
    )


def _conduct(context: Context) -> Line:
    facts, conducts = context.facts, set(context.sweep.table["conduct"])
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in context.sweep.plan.trials})
    noise = listed([number(noise) for noise in noises])
    standing, verdict = EvidenceLevel.CHECKED, "What ran is what was declared."
    if Conduct.OTHERWISE in conducts:
        standing, verdict = EvidenceLevel.VIOLATED, "Something else ran than was declared."
    elif Conduct.UNKNOWN in conducts:
        standing, verdict = EvidenceLevel.ASSUMED, "What ran is what was declared; a failed run could not say."
    return Line(
        topic="Sampling and noise",
        text=f"{_steps(facts['steps'])} a run, noise multiplier {noise}. {verdict}",
        standing=standing,
    )


def _steps(steps: Fact) -> str:
    return count(steps.value, "step") if isinstance(steps.value, int) else f"{steps.text} steps"


def _scores() -> Line:
    return Line(
        topic="Scores",
        text="Scores, and what is told of the course of a run, are exact and read from the public records themselves.",
        standing=EvidenceLevel.STATED,
        evidence=("Intervals are at 95 % and cover the finite number of records.",),
    )


def _randomness(context: Context) -> Line:
    told = "a seed that is recorded" if context.sweep.reproducible else "secret entropy of the operating system"
    return Line(topic="Randomness", text=f"Batches and noise come from {told}.", standing=EvidenceLevel.STATED)


def _trust() -> Line:
    return Line(
        topic="Trust",
        text="That the data are public is the word of whoever declared it (dataset.public); no program can check it.",
        standing=EvidenceLevel.ASSUMED,
    )
