"""A line of the privacy statement, its evidence level, and the records it is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Bill, Fact
from dpsweep.reports.content.sweep_table import Sweep

CHANGES_BETWEEN_NEIGHBOURS: Mapping[Adjacency, str] = {
    Adjacency.ADD_OR_REMOVE_ONE: "is added or removed",
    Adjacency.REPLACE_ONE: "is replaced by any other",
}
"""What happens to one unit between two neighbouring data sets."""


class EvidenceLevel(StrEnum):
    """The support for a line of the statement."""

    CHECKED = "checked"
    ASSUMED = "assumed"
    STATED = "stated"
    VIOLATED = "violated"

    def make_statement_line(self, topic: str, text: str, *evidence: str) -> Line:
        """A line with this support."""
        return Line(topic=topic, text=text, level=self, evidence=evidence)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the statement, with its evidence."""

    topic: str
    text: str
    level: EvidenceLevel
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Context:
    """The records that the lines are written from."""

    sweep: Sweep
    bill: Bill
    facts: Mapping[str, Fact]
    audience: Audience

    def row_count_text(self, rows: int) -> str:
        """A number of rows of the sweep's table with their noun."""
        return f"{rows} {self.sweep.runs.noun if rows == 1 else self.sweep.runs.nouns}"

    def evidence_if_reader_is_curator(self, *evidence: str) -> tuple[str, ...]:
        """Evidence that only the curator's page shows."""
        return evidence if self.audience is Audience.CURATOR else ()


def contradicted_lines(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines that the records contradict."""
    return tuple(line for line in lines if line.level is EvidenceLevel.VIOLATED)
