"""The statement's line on a rehearsal, which contradicts every claim: no real record was read."""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.rehearsal import is_rehearsal, subject_of
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line


def rehearsal_line(context: Context) -> Iterator[Line]:
    """The line that nothing here is about the data set; none for a sweep."""
    plan = context.sweep.plan
    if is_rehearsal(plan):
        yield Line(
            topic="Rehearsal",
            text=f"A REHEARSAL on generated records: no record of {subject_of(plan)} was read and none of its budget "
            "was charged. No number here is about it, and nothing of this may be passed on.",
            level=EvidenceLevel.VIOLATED,
        )
