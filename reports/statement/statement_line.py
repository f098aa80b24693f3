"""A line of a statement, how it is known, and what it is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.charges import Bill
from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import count
from dpsweep.reports.content.sweep_table import Sweep


class EvidenceLevel(StrEnum):
    """How a line of the statement is known."""

    CHECKED = "checked"
    ASSUMED = "assumed"
    STATED = "stated"
    VIOLATED = "violated"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the statement, with what speaks for it."""

    topic: str
    text: str
    standing: EvidenceLevel
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the lines are written from."""

    sweep: Sweep
    bill: Bill
    facts: Mapping[str, Fact]
    audience: Audience

    @property
    def drawn(self) -> bool:
        """Whether what ran are the tries of a secret draw."""
        return self.sweep.runs.drawn

    @property
    def row(self) -> str:
        """What a row of the sweep's table is."""
        return self.sweep.runs.noun

    def counted(self, many: int) -> str:
        """So many rows, in words."""
        return f"{many} tries" if self.row == "try" and many != 1 else count(many, self.row)

    def curator(self, *evidence: str) -> tuple[str, ...]:
        """Evidence that only the curator's page shows."""
        return evidence if self.audience is Audience.CURATOR else ()


def violations(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines that the records speak against."""
    return tuple(line for line in lines if line.standing is EvidenceLevel.VIOLATED)
