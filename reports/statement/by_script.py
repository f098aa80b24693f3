"""The lines of the statement on models that a script of the curator's own trained: what was checked, what was not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpsweep.reports.content.formatting import listed
from dpsweep.reports.content.user_script import scripts_of
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

NOT_CHECKED = (
    "declared by the script, not checked: that each {unit}'s gradient is clipped, that the noise was added and is "
    "secret, how batches were drawn, that a prediction depends on one {unit} alone, and that the {unit}s to be scored "
    "were not trained on"
)
CHECKED = (
    "Checked: the script's checksum, and the noise multiplier, the sampling rate and the number of steps that its "
    "accountant reported."
)
REPORTED = "The noise multiplier, the sampling rate and the steps are those that the script's accountant reported."
ASSUMED_PREDICTIONS = "Each prediction of the script is assumed to depend on one {unit} alone: it is not checked."


def script_line(context: Context) -> Iterator[Line]:
    """The line that names the scripts; none if dpsweep trained all models."""
    scripts = scripts_of(context.sweep.plan)
    if scripts:
        unit = context.sweep.plan.unit
        yield Line(
            topic="Script",
            text=f"The models were trained by {listed([script.label for script in scripts])}, which is no code of "
            f"dpsweep. {CHECKED} {NOT_CHECKED[0].upper()}{NOT_CHECKED[1:].format(unit=unit)}.",
            level=EvidenceLevel.ASSUMED,
            evidence=(
                "A script that lies to its accountant, or reads files on its own, is not caught.",
                "Modules that the script imports are not part of its checksum.",
                "The files that it hands over are passed on as they are: nothing is known of their content.",
                "The data that its initial weights were trained on, if any, are assumed to be public.",
            ),
        )


def as_reported(context: Context, line: Line, note: str) -> Line:
    """A checked line of a sweep by scripts: it rests on what they declare."""
    if not scripts_of(context.sweep.plan):
        return line
    level = EvidenceLevel.ASSUMED if line.level is EvidenceLevel.CHECKED else line.level
    return replace(line, level=level, evidence=(*line.evidence, note.format(unit=context.sweep.plan.unit)))


def randomness_of_script(context: Context) -> Line | None:
    """The line on a script's randomness; None if dpsweep drew all of it, or if it was declared reproducible."""
    if context.sweep.reproducible or not scripts_of(context.sweep.plan):
        return None
    return Line(
        topic="Randomness",
        text="The noise of scores comes from secret entropy of the operating system. The script draws that of batches "
        "and steps: declared secret, not checked.",
        level=EvidenceLevel.ASSUMED,
    )


def rounding_of_script(context: Context) -> Line | None:
    """The line on a script's floating-point noise; None if dpsweep drew all noise."""
    if context.sweep.plan.public or not scripts_of(context.sweep.plan):
        return None
    return Line(
        topic="Floating point",
        text="The script's Gaussian noise is assumed to be exact: how it is drawn and rounded is not checked.",
        level=EvidenceLevel.ASSUMED,
        evidence=("The low bits of float32 noise may reveal whether a record was present (Mironov 2012).",),
    )
