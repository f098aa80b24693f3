"""The bar of an audit: attack, truth and charge in this order, and the alarm where an attack found more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsweep.accounting.audit_record import Attack, AuditFinding, AuditRecord, Data, NoiseFinding, NoiseTest, Scope
from dpsweep.reports.content.sections import Tone
from dpsweep.reports.exhibits.audit_bar import audit_exhibit

FINDING = AuditFinding(
    attack=Attack.GRADIENTS,
    scope=Scope.SEARCH,
    canaries=100,
    made=40,
    right=35,
    epsilon=1.5,
    claimed=3.0,
    claim_made=20,
    claim_right=15,
    p_value=0.4,
    halved_epsilon=2.0,
    halved_seen=0.75,
    unclipped_seen=1.0,
)
RECORD = AuditRecord(
    plan="p",
    confidence=0.95,
    charge=3.0,
    delta=1e-5,
    records=Data.GENERATED,
    trainings=2,
    findings=(FINDING, replace(FINDING, attack=Attack.LOSSES, epsilon=0.2, halved_seen=None)),
    floating_point=10,
)


def test_the_attack_is_a_part_of_the_charge() -> None:
    exhibit = audit_exhibit(RECORD)
    assert exhibit is not None
    assert exhibit.findings[0].startswith("attack 1.500 ≤ true epsilon ≤ charge 3.000")
    assert "contradicted the price with a probability of 75% for the whole search" in exhibit.findings[1]
    assert [(part.tone, part.share) for part in exhibit.bar] == [(Tone.OWN, 0.5), (Tone.LEFT, 0.5)]
    (sheet,) = exhibit.sheets
    assert [row[-1].text for row in sheet.rows] == ["75%", "unknown"]


@pytest.mark.parametrize("record", [replace(RECORD, charge=1.0), replace(RECORD, floating_point=None)])
def test_a_contradicted_price_is_said_to_be_one(record: AuditRecord) -> None:
    found = tuple(replace(finding, claimed=record.charge) for finding in record.findings)
    exhibit = audit_exhibit(replace(record, findings=found))
    assert exhibit is not None
    assert "THE PRICE IS CONTRADICTED" in " ".join(exhibit.findings)
    assert sum(part.share for part in exhibit.bar) == pytest.approx(1)
    assert (Tone.TROUBLE in {part.tone for part in exhibit.bar}) == (record.charge == 1)


NOISE = NoiseFinding(
    test=NoiseTest.NUMBERS, tested=650, draws=160, place="bias[3]", value=0.51, p_value=0.7, halved_seen=1.0
)


def test_the_tests_of_the_noise_have_a_table_and_an_alarm() -> None:
    right = audit_exhibit(replace(RECORD, noise=(NOISE,)))
    assert right is not None
    assert [item.text for item in right.sheets[1].rows[0]] == [
        *("each number", "650", "160", "0.510", "bias[3]", "0.7", "100%")
    ]
    assert "the declared variance" in right.findings[1]
    wrong = audit_exhibit(replace(RECORD, noise=(replace(NOISE, p_value=1e-9),)))
    assert wrong is not None
    assert "THE PRICE IS CONTRADICTED" in wrong.findings[1]
    assert wrong.findings[2] == "THE NOISE IS NOT THE DECLARED ONE: each number, 0.510 at bias[3]."


def test_without_an_audit_there_is_nothing_to_show() -> None:
    assert audit_exhibit(None) is None
    assert audit_exhibit(replace(RECORD, findings=())) is None
