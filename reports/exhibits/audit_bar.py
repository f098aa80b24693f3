"""What an audit of the plan found: attack <= truth <= charge as one bar, and how much the audit's silence means."""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.audit_record import AUDIT_FILE, Attack, AuditFinding, AuditRecord, NoiseFinding, Scope
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.reports.content.sections import Segment, Tone
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit

SOURCE = f"{AUDIT_FILE}, written by `dpsweep audit`"
NOTE = (
    "Secret coins decided which canaries were trained on: guesses that are better than the price allows refute it. The "
    "canaries lay among generated records, so nothing here depends on the data set. An attack proves a lower bound "
    "alone: another attack may find more."
)
COLUMNS = ("attack", "sees", "right guesses", "guesses", "epsilon, at least", "price", "power")

NOISE_COLUMNS = (
    *("test", "tested", "draws of each", "farthest from the declared", "where"),
    *("p-value", "power against half the noise"),
)


def audit_exhibit(record: AuditRecord | None) -> Exhibit | None:
    """The section on an audit; None without one."""
    if record is None or not record.findings:
        return None
    sheets = [Sheet.from_cells("Attacks of the audit", COLUMNS, map(_attack_row, record.findings))]
    if record.noise:
        sheets.append(Sheet.from_cells("Released noise", NOISE_COLUMNS, map(_noise_row, record.noise)))
    return Exhibit(
        key="audit",
        title="What an audit found",
        note=NOTE,
        source=SOURCE,
        findings=tuple(_audit_finding_sentences(record)),
        bar=tuple(_audit_bar_segments(record)),
        sheets=tuple(sheets),
    )


def _audit_finding_sentences(record: AuditRecord) -> Iterator[str]:
    yield (
        f"attack {epsilon_text_rounded_down(record.epsilon)} ≤ true epsilon ≤ charge "
        f"{epsilon_text_rounded_up(record.charge)}, at delta "
        f"{delta_text_rounded_up(record.delta)}. The attack's bound holds with {record.confidence:.0%} confidence."
    )
    if record.is_charge_or_noise_refuted:
        yield "THE PRICE IS CONTRADICTED by this audit: do not rely on it."
    for wrong in record.noise_findings_refuting_declaration:
        yield f"THE NOISE IS NOT THE DECLARED ONE: {wrong.test}, {wrong.value:.3f} at {wrong.place}."
    if record.noise and not record.noise_findings_refuting_declaration:
        yield "The released noise of every number has the declared variance, and no two of them have correlated noise."
    powers = {finding.scope: finding.halved_seen for finding in record.findings if finding.attack is Attack.GRADIENTS}
    names = {Scope.SEARCH: "the whole search", Scope.TRAINING: "one training"}
    known = [f"{power:.0%} for {names[scope]}" for scope, power in powers.items() if power is not None]
    if known:
        yield (
            "Had the noise been half the declared, such an audit would have contradicted the price with a probability "
            f"of {' and '.join(known)}."
        )


def _audit_bar_segments(record: AuditRecord) -> Iterator[Segment]:
    """From 0 to the charge, or to the attack if it found more."""
    whole = max(record.charge, record.epsilon)
    share = min(record.epsilon, record.charge) / whole if whole else 0.0
    attack, charge = epsilon_text_rounded_down(record.epsilon), epsilon_text_rounded_up(record.charge)
    if record.epsilon > record.charge:
        yield Segment(name="charge", tone=Tone.OWN, start=0.0, share=share, text=charge)
        yield Segment(name="an attack found", tone=Tone.TROUBLE, start=share, share=1 - share, text=attack)
        return
    yield Segment(name="an attack proves", tone=Tone.OWN, start=0.0, share=share, text=attack)
    yield Segment(
        name="the truth lies between it and the charge of", tone=Tone.LEFT, start=share, share=1 - share, text=charge
    )


def _attack_row(finding: AuditFinding) -> tuple[Cell, ...]:
    power = finding.halved_seen
    return (
        *(finding.attack.value, finding.scope.value, (str(finding.right), finding.right)),
        *((str(finding.made), finding.made), (epsilon_text_rounded_down(finding.epsilon), finding.epsilon)),
        *(
            (epsilon_text_rounded_up(finding.claimed), finding.claimed),
            ("unknown" if power is None else f"{power:.0%}", power),
        ),
    )


def _noise_row(finding: NoiseFinding) -> tuple[Cell, ...]:
    power = finding.halved_seen
    return (
        *(finding.test.value, (str(finding.tested), finding.tested), (str(finding.draws), finding.draws)),
        *((f"{finding.value:.3f}", finding.value), finding.place, (f"{finding.p_value:.2g}", finding.p_value)),
        ("none" if power is None else f"{power:.0%}", power),
    )
