"""Audits of scripts of the user's own, by what `dpsweep.attempt` hands back; coins and noise repeat here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from dpsweep.accounting.audit_record import Attack, AuditRecord, Scope
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.audit.audit import run_audit
from dpsweep.sweeper.coordinator.request import AuditSettings
from dpsweep.sweeper.trial.session import Machine
from tests.sweeper.trial.scripts import SWEEP, TRAIN

SETTINGS = AuditSettings(gradients=10, records=100, trainings=3)
CLIPS = "np.minimum(1, a.clip_norm / np.maximum(norms, 1e-12))"
Compose = Callable[[Sequence[str]], PricedPlan]


@pytest.fixture
def audit_of(compose_priced: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AuditRecord]:
    monkeypatch.chdir(tmp_path)

    def audit_of(*words: str, clips: bool = True, settings: AuditSettings = SETTINGS) -> AuditRecord:
        assert CLIPS in TRAIN
        repeats = TRAIN.replace("default_rng()", "default_rng(7)")
        Path("train.py").write_text(repeats if clips else repeats.replace(CLIPS, "np.ones(len(norms))"))
        machine = Machine(device="cpu", threads=1, chunk=None, data=None)
        priced = compose_priced((*SWEEP, *words))
        return run_audit(priced, settings, machine, np.random.Generator(np.random.Philox(3)))

    return audit_of


def test_a_script_is_attacked_by_its_predictions(audit_of: Callable[..., AuditRecord], tmp_path: Path) -> None:
    record = audit_of()
    (finding,) = record.findings
    assert (finding.attack, finding.scope, finding.canaries) == (Attack.LOSSES, Scope.TRAINING, 300)
    assert not record.is_charge_or_noise_refuted
    assert any("nobody sees its steps" in note for note in record.notes)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"], "nothing is left of the records"


def test_a_script_that_does_not_clip_is_found(audit_of: Callable[..., AuditRecord]) -> None:
    assert audit_of("trainer.clip_norm=0.1", clips=False).is_charge_or_noise_refuted
    assert not audit_of("trainer.clip_norm=0.1").is_charge_or_noise_refuted


def test_a_script_that_reports_another_run_ends_the_audit(audit_of: Callable[..., AuditRecord]) -> None:
    with pytest.raises(ContractBroken, match="The script differs from its charge"):
        audit_of("+trainer.hyperparameters.fault=rate")
    with pytest.raises(ContractBroken, match="ended without a report"):
        audit_of("+trainer.hyperparameters.fault=never")


def test_without_canaries_that_are_records_nothing_of_a_script_is_seen(audit_of: Callable[..., AuditRecord]) -> None:
    with pytest.raises(BadInput, match="only its predictions of canaries can be attacked"):
        audit_of(settings=AuditSettings(records=0))
