"""What an audit of the plan compared, and attack <= truth <= price of one training as one bar."""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.audit.record import FALSE_ALARM, AuditRecord, Compared
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.reports.content.sections import Segment, Tone
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit

SOURCE = "audit.json, written by `dpsweep audit`"
NOTE = (
    "The methods of this sweep were trained and scored on generated records, and what they released was computed "
    "again: sums by a loop over single records, batches and noise by their laws. Nothing here depends on the data. "
    "It finds mistakes in a program, and proves no price."
)
COLUMNS = ("compared", "numbers", "farthest", "where", "expected", "p-value")


def audit_exhibit(record: AuditRecord | None) -> Exhibit | None:
    """The section on an audit; None without one."""
    if record is None or not record.comparisons:
        return None
    return Exhibit(
        key="audit",
        title="What an audit found",
        note=NOTE,
        source=SOURCE,
        findings=tuple(_sentences(record)),
        bar=tuple(_bar(record)) if record.canaries else (),
        sheets=(Sheet.from_cells("Comparisons of the audit", COLUMNS, map(_row, record.comparisons)),),
    )


def _sentences(record: AuditRecord) -> Iterator[str]:
    if record.canaries:
        yield (
            f"One training: attack {epsilon_text_rounded_down(record.epsilon)} ≤ true epsilon ≤ price "
            f"{epsilon_text_rounded_up(record.price)}, at delta {delta_text_rounded_up(record.delta)}. The attack's "
            f"bound holds with {record.confidence:.0%} confidence."
        )
    yield from (f"NOT AS DECLARED: {sentence}. Do not rely on the price." for sentence in record.contradictions)
    if not record.contradictions:
        yield f"Everything below is as declared; a right program fails with a probability below {FALSE_ALARM:.0e}."
    yield from record.notes


def _bar(record: AuditRecord) -> Iterator[Segment]:
    """From 0 to the price of one training, or to the attack if it found more."""
    whole = max(record.price, record.epsilon)
    share = min(record.epsilon, record.price) / whole if whole else 0.0
    attack, price = epsilon_text_rounded_down(record.epsilon), epsilon_text_rounded_up(record.price)
    if record.epsilon > record.price:
        yield Segment(name="price", tone=Tone.OWN, start=0.0, share=share, text=price)
        yield Segment(name="an attack found", tone=Tone.TROUBLE, start=share, share=1 - share, text=attack)
        return
    yield Segment(name="an attack proves", tone=Tone.OWN, start=0.0, share=share, text=attack)
    truth = "the truth lies between it and the price of one training"
    yield Segment(name=truth, tone=Tone.LEFT, start=share, share=1 - share, text=price)


def _row(one: Compared) -> tuple[Cell, ...]:
    p_value = ("exact", None) if one.p_value is None else (f"{one.p_value:.2g}", one.p_value)
    return (
        *(one.name, (str(one.compared), one.compared), (f"{one.value:.4g}", one.value)),
        *(one.place, one.expected, p_value),
    )
