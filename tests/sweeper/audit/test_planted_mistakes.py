"""Audits of a small plan by right code, and by code with each of the mistakes that break a price.

Coins, noise and batches of the planted cases are the same in every run: these tests say what an audit finds, not how
often. How often a right program is accused is the other test's statement, with secret noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from dpsweep.accounting.audit_record import Attack, AuditRecord, NoiseTest
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.audit.audit import run_audit
from dpsweep.sweeper.coordinator.request import AuditSettings
from dpsweep.sweeper.trial.session import Machine
from tests.margins import FALSE_ALARM
from tests.sweeper import planted_mistakes as planted
from tests.sweeper.planted_mistakes import Planted

MACHINE = Machine(device="cpu", threads=1, chunk=None, data=None)
WORDS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=0.1", "privacy.epsilon=1", "steps=10"),
    *("sampler.batch_size=200", "engine=vmap"),
)
MANY = AuditSettings(gradients=8000, records=0, trainings=4)
GRADIENTS = AuditSettings(gradients=2000, records=0, trainings=2)
RECORDS = AuditSettings(gradients=0, records=100, trainings=4)
BOTH = AuditSettings(gradients=3000, records=100, trainings=2)

FOUND: Sequence[tuple[Planted, AuditSettings, Attack | NoiseTest | None]] = (
    (planted.nothing_clipped, GRADIENTS, Attack.GRADIENTS),
    (planted.nothing_clipped, RECORDS, Attack.RECORDS),
    (planted.clipped_by_batch, RECORDS, Attack.RECORDS),
    (planted.noise_halved, MANY, Attack.GRADIENTS),
    (planted.noise_halved, GRADIENTS, NoiseTest.NUMBERS),
    (planted.std_halved, GRADIENTS, NoiseTest.NUMBERS),
    (planted.noise_halved_in_ten_numbers, GRADIENTS, NoiseTest.NUMBERS),
    (planted.noise_halved_in_ten_numbers, GRADIENTS, NoiseTest.TENSORS),
    (planted.no_noise_in_one_number, GRADIENTS, NoiseTest.NUMBERS),
    (planted.one_draw_for_two_numbers, GRADIENTS, NoiseTest.PAIRS),
    (planted.each_draw_for_two_steps, GRADIENTS, NoiseTest.STEPS),
    (planted.public_seed, GRADIENTS, NoiseTest.STEPS),
    (planted.noise_of_one_rank, GRADIENTS, Attack.GRADIENTS),
    (planted.divided_by_the_drawn_size, GRADIENTS, None),
    (planted.every_record_in_every_batch, GRADIENTS, Attack.GRADIENTS),
    (planted.same_noise_at_every_step, GRADIENTS, Attack.STEPS),
    (planted.momentum_before_clipping, RECORDS, Attack.RECORDS),
    (planted.public_seed, GRADIENTS, Attack.TRAININGS),
    (planted.noise_off_the_lattice, GRADIENTS, None),
)
"""Mistakes that an audit finds, with its size and the attack that finds them; None: the form of the noisy numbers."""

WITHOUT_POWER = {
    planted.batches_from_a_permutation: "the attacker does not know in which step of an epoch a record is, and the sum "
    "over the steps has it as often as with Poisson's batches",
    planted.empty_batches_skipped: "with thousands of canaries no batch is empty",
    planted.shared_batches: "only what all runs say together of one batch tells that it was shared; no attack here "
    "compares the steps of several runs",
}
"""Mistakes that no attack of an audit finds, and why."""

OUT_OF_REACH = {
    "BatchNorm": "refused before it trains (tests/trainers/models/test_checks.py)",
    "a score that leaks": "canaries are among the training records, and scores read others",
    "a second winner": "an audit asks the rule who wins, and does not read release/",
    "resumed with old noise": "every training of an audit runs in one session",
}
"""Mistakes in code that an audit does not run; other tests hold them off."""


@pytest.fixture
def audit_of(compose_priced: Callable[[Sequence[str]], PricedPlan]) -> Callable[[AuditSettings], AuditRecord]:
    priced = compose_priced(WORDS)
    rng = np.random.Generator(np.random.Philox(3))
    return lambda settings: run_audit(priced, settings, MACHINE, rng)


@pytest.mark.parametrize(("mistake", "settings", "attack"), FOUND, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_is_found(
    mistake: Planted,
    settings: AuditSettings,
    attack: Attack | NoiseTest | None,
    audit_of: Callable[[AuditSettings], AuditRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted.repeatable(monkeypatch)
    mistake(monkeypatch)
    record = audit_of(settings)
    assert record.is_charge_or_noise_refuted
    if attack is None:
        assert record.floating_point is None
    elif isinstance(attack, NoiseTest):
        assert attack in {finding.test for finding in record.noise_findings_refuting_declaration}
    else:
        assert attack in {finding.attack for finding in record.attack_findings_refuting_charge}


@pytest.mark.parametrize("settings", [MANY, RECORDS, BOTH], ids=["gradients", "records", "both"])
def test_the_right_program_is_not_accused(
    settings: AuditSettings, audit_of: Callable[[AuditSettings], AuditRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.repeatable(monkeypatch)
    record = audit_of(settings)
    assert not record.is_charge_or_noise_refuted
    assert record.epsilon <= record.charge
    trainings = settings.trainings * -(-settings.gradients // 650)
    assert record.floating_point == 10 * trainings * 650
    assert {finding.test for finding in record.noise} == (set(NoiseTest) if settings.gradients else set())
    assert all(finding.draws >= 20 * trainings for finding in record.noise), "one training and one search of one point"


CORRELATED = (
    *("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=0.1", "privacy.epsilon=1", "steps=12"),
    *("sampler=cyclic_poisson", "sampler.batch_size=200", "noise=bsr", "noise.bands=4", "engine=vmap"),
)
FOUND_OF_CORRELATED: Sequence[tuple[Planted, Attack | NoiseTest | None]] = (
    (planted.noise_of_the_wrong_row, NoiseTest.STEPS),
    (planted.banded_inverse, NoiseTest.STEPS),
    (planted.rows_without_a_matrix, NoiseTest.STEPS),
    (planted.noise_off_the_lattice, None),
    (planted.parts_drawn_anew, Attack.GRADIENTS),
)


@pytest.mark.parametrize(("mistake", "attack"), FOUND_OF_CORRELATED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_in_correlated_noise_is_found(
    mistake: Planted,
    attack: Attack | NoiseTest | None,
    compose_priced: Callable[[Sequence[str]], PricedPlan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted.repeatable(monkeypatch)
    mistake(monkeypatch)
    record = run_audit(compose_priced(CORRELATED), GRADIENTS, MACHINE, np.random.Generator(np.random.Philox(3)))
    assert record.is_charge_or_noise_refuted
    if attack is None:
        assert record.floating_point is None
    elif isinstance(attack, NoiseTest):
        assert attack in {finding.test for finding in record.noise_findings_refuting_declaration}
    else:
        assert attack in {finding.attack for finding in record.attack_findings_refuting_charge}


@pytest.mark.parametrize("adjacency", ["add_or_remove_one", "replace_one"])
def test_the_right_correlated_noise_is_not_accused(
    adjacency: str, compose_priced: Callable[[Sequence[str]], PricedPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.repeatable(monkeypatch)
    words = *CORRELATED, f"privacy.adjacency={adjacency}"
    record = run_audit(compose_priced(words), GRADIENTS, MACHINE, np.random.Generator(np.random.Philox(3)))
    assert not record.is_charge_or_noise_refuted
    assert record.floating_point == 12 * GRADIENTS.trainings * -(-GRADIENTS.gradients // 650) * 650
    assert 0.1 < record.epsilon <= record.charge


@pytest.mark.parametrize("mistake", WITHOUT_POWER, ids=lambda mistake: mistake.__name__)
def test_some_mistakes_are_not_found(
    mistake: Planted, audit_of: Callable[[AuditSettings], AuditRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, an audit has become better: the mistake belongs to those that are found, here and in the docs."""
    planted.repeatable(monkeypatch)
    mistake(monkeypatch)
    assert not audit_of(BOTH).is_charge_or_noise_refuted


SMALL = AuditSettings(gradients=200, records=0, trainings=1, confidence=0.8)
TIMES = 200


@pytest.mark.long
@pytest.mark.randomized(
    draws="secret coins, noise and batches of 200 audits",
    bound="binomial quantile: each audit contradicts a right price with a probability of at most 1 - confidence",
    false_alarm=FALSE_ALARM,
)
def test_of_200_audits_of_the_right_program_no_more_contradict_than_their_confidence_allows(
    compose_priced: Callable[[Sequence[str]], PricedPlan],
) -> None:
    priced = compose_priced((*WORDS, "steps=2"))
    rng = np.random.default_rng()
    once = partial(run_audit, priced, SMALL, MACHINE, rng)
    accused = sum(once().is_charge_or_noise_refuted for _ in range(TIMES))
    assert accused <= binom.isf(FALSE_ALARM, TIMES, 1 - SMALL.confidence)


@pytest.mark.long
def test_the_stated_power_is_that_of_audits_of_a_program_with_half_the_noise(
    compose_priced: Callable[[Sequence[str]], PricedPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.repeatable(monkeypatch)
    planted.noise_halved(monkeypatch)
    priced, rng = compose_priced(WORDS), np.random.Generator(np.random.Philox(4))
    settings = AuditSettings(gradients=3000, records=0, trainings=4)
    records = [run_audit(priced, settings, MACHINE, rng) for _ in range(TIMES // 8)]
    found = [finding for record in records for finding in record.findings if finding.attack is Attack.GRADIENTS]
    stated, bound = found[0].halved_seen, found[0].halved_epsilon
    assert stated is not None
    assert bound is not None
    seen = np.mean([finding.refutes_charged_epsilon(records[0].false_alarm_of_each_attack_test) for finding in found])
    assert 0.25 < stated < 0.75
    assert seen == pytest.approx(stated, abs=0.25), "both are estimates, from 40 and from 50 audits"
    assert np.median([finding.epsilon for finding in found]) == pytest.approx(bound, rel=0.15)
