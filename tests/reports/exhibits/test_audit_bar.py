"""The bar of an audit: attack, truth and price in this order, and the alarm where something is not as declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsweep.accounting.audit.record import AuditRecord, Compared
from dpsweep.reports.content.sections import Tone
from dpsweep.reports.exhibits.audit_bar import audit_exhibit

SUMS = Compared(name="sums", compared=40, value=0.5, expected="<= 1")
NOISE = Compared(name="noise", compared=650, value=0.51, expected="1", place="bias[3]", p_value=0.7)
RECORD = AuditRecord(
    plan="p",
    charge=5.0,
    delta=1e-5,
    comparisons=(SUMS, NOISE),
    confidence=0.95,
    price=3.0,
    canaries=100,
    made=40,
    right=35,
    epsilon=1.5,
)


def test_the_attack_is_a_part_of_the_price_of_one_training() -> None:
    exhibit = audit_exhibit(RECORD)
    assert exhibit is not None
    assert exhibit.findings[0].startswith("One training: attack 1.500 ≤ true epsilon ≤ price 3.000")
    assert "as declared" in exhibit.findings[1]
    assert [(part.tone, part.share) for part in exhibit.bar] == [(Tone.OWN, 0.5), (Tone.LEFT, 0.5)]
    (sheet,) = exhibit.sheets
    assert [item.text for item in sheet.rows[1]] == ["noise", "650", "0.51", "bias[3]", "1", "0.7"]


@pytest.mark.parametrize(
    "change",
    [
        {"price": 1.0, "sure": 1.2, "sure_price": 1.1},
        {"comparisons": (replace(SUMS, holds=False), NOISE)},
        {"comparisons": (SUMS, replace(NOISE, p_value=1e-9))},
    ],
    ids=["attack", "sums", "noise"],
)
def test_what_is_not_as_declared_is_said(change: dict[str, object]) -> None:
    exhibit = audit_exhibit(replace(RECORD, **change))  # type: ignore[arg-type]
    assert exhibit is not None
    assert "NOT AS DECLARED" in " ".join(exhibit.findings)
    assert sum(part.share for part in exhibit.bar) == pytest.approx(1)
    assert (Tone.TROUBLE in {part.tone for part in exhibit.bar}) == ("price" in change)


def test_without_an_audit_there_is_nothing_to_show() -> None:
    assert audit_exhibit(None) is None
    assert audit_exhibit(replace(RECORD, comparisons=())) is None
