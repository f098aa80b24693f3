"""Audits of small plans by right code, and by code with each of the mistakes that break a price.

Coins, noise and batches of all cases are the same in every run: these tests say what an audit finds, not how often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dpsweep.accounting.audit.record import AuditRecord
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.audit.audit import run_audit
from dpsweep.sweeper.coordinator.request import AuditSettings
from dpsweep.sweeper.trial.session import Machine
from tests.sweeper import planted_mistakes as planted
from tests.sweeper.digits_sweeps import LIGHT
from tests.sweeper.planted_mistakes import Planted

Compose = Callable[[Sequence[str]], PricedPlan]

MACHINE = Machine(device="cpu", threads=1, chunk=None, data=None)
SMALL = AuditSettings(steps=20, canaries=0)
PLAN = ("dataset=digits", "privacy.epsilon=4", "steps=10", "sampler.batch_size=100", *LIGHT)
CLIPPED = (*PLAN, "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=0.1")
CORRELATED = (*CLIPPED, "steps=12", "sampler=cyclic_poisson", "noise=bsr", "noise.bands=4")
ENGINES = {"stacked": "engine=auto", **{name: f"engine={name}" for name in ("fused", "opacus", "vmap")}}

PUBLIC = (*CLIPPED[:1], *CLIPPED[2:], "dataset.public=true", "score=training")

SUMS, MOVES, BATCHES = "sums against a float64 loop", "sums with another unit", "batches"
SCORE, NO_TRAINING = "score against a loop", "score without training records"
NUMBERS, TENSORS, STEPS = "noise of each number", "noise of each tensor", "noise repeated over steps"
ALONG, OTHERS, PAIRS = "noise along the sums", "noise along another run's noise", "noise of pairs"
LATTICE, COUNTS, COUNT_PAIRS = "noise on its lattice", "score noise of each tensor", "score noise of pairs"

FOUND: Sequence[tuple[Planted, str, str]] = (
    (planted.nothing_clipped, "opacus", MOVES),
    (planted.bound_doubled, "opacus", SUMS),
    (planted.clipped_by_batch, "vmap", SUMS),
    (planted.mostly_clipped_by_batch, "opacus", SUMS),
    (planted.momentum_before_clipping, "opacus", SUMS),
    (planted.weights_of_batch_labels, "stacked", SUMS),
    (planted.bounded_weights_of_batch_labels, "vmap", SUMS),
    (planted.noise_halved, "stacked", NUMBERS),
    (planted.std_halved, "stacked", TENSORS),
    (planted.noise_halved_in_ten_numbers, "stacked", TENSORS),
    (planted.no_noise_in_one_number, "stacked", NUMBERS),
    (planted.one_draw_for_two_numbers, "stacked", PAIRS),
    (planted.each_draw_for_two_steps, "stacked", STEPS),
    (planted.same_noise_at_every_step, "stacked", STEPS),
    (planted.public_seed, "stacked", STEPS),
    (planted.noise_of_one_rank, "stacked", NUMBERS),
    (planted.noise_off_the_lattice, "stacked", LATTICE),
    (planted.divided_by_the_drawn_size, "stacked", LATTICE),
    (planted.every_record_in_every_batch, "stacked", BATCHES),
    (planted.rate_doubled, "stacked", BATCHES),
    (planted.batches_from_a_permutation, "stacked", BATCHES),
    (planted.shared_batches, "stacked", BATCHES),
    (planted.score_noise_halved, "stacked", COUNTS),
    (planted.score_noise_repeated, "stacked", COUNT_PAIRS),
    (planted.score_of_training_records, "stacked", SCORE),
    (planted.score_of_weighted_training_records, "stacked", NO_TRAINING),
    (planted.score_counts_twice, "stacked", SCORE),
)
"""Mistakes that an audit finds, the engine that makes them, and a comparison that finds them."""

FOUND_OF_CORRELATED: Sequence[tuple[Planted, str]] = (
    (planted.noise_of_the_wrong_row, STEPS),
    (planted.banded_inverse, STEPS),
    (planted.rows_without_a_matrix, STEPS),
    (planted.noise_off_the_lattice, LATTICE),
    (planted.parts_drawn_anew, BATCHES),
)


@pytest.fixture
def audit_of(compose_priced: Compose, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AuditRecord]:
    planted.repeatable(monkeypatch)

    def audit_of(
        words: Sequence[str], mistake: Planted = planted.no_mistake, settings: AuditSettings = SMALL
    ) -> AuditRecord:
        priced = compose_priced(words)
        mistake(monkeypatch)
        return run_audit(priced, settings, MACHINE, np.random.Generator(np.random.Philox(3)))

    return audit_of


def names_of(record: AuditRecord) -> set[str]:
    """The comparisons that contradict the declaration."""
    return {sentence.split(":")[0] for sentence in record.contradictions}


@pytest.mark.parametrize(("mistake", "engine", "finds"), FOUND, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_is_found(
    mistake: Planted, engine: str, finds: str, audit_of: Callable[..., AuditRecord]
) -> None:
    assert finds in names_of(audit_of((*CLIPPED, ENGINES[engine]), mistake))


@pytest.mark.parametrize(("mistake", "finds"), FOUND_OF_CORRELATED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_in_correlated_noise_is_found(
    mistake: Planted, finds: str, audit_of: Callable[..., AuditRecord]
) -> None:
    assert finds in names_of(audit_of(CORRELATED, mistake))


METHODS = {
    "dpsgd": ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=0.1,1"),
    "dpnsgd": ("trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=0.01"),
    "dpadam": ("trainer=dpadam", "trainer.lr=0.1", "trainer.clip_norm=0.1"),
}
HIDDEN = ("tuning=private_selection", "tuning.mean=3")
QUICK = AuditSettings(steps=10, canaries=0)


CLEAN = [
    pytest.param(method, engine, rule, marks=[pytest.mark.long] if rule and engine != "stacked" else [])
    for method in METHODS
    for engine in ENGINES
    for rule in ((), HIDDEN)
]
"""Every method, engine and rule; under a rule that hides its losers the runs are the same."""


@pytest.mark.parametrize(("method", "engine", "rule"), CLEAN)
def test_the_right_program_is_not_accused(
    method: str, engine: str, rule: Sequence[str], audit_of: Callable[..., AuditRecord]
) -> None:
    record = audit_of((*PLAN, *METHODS[method], ENGINES[engine], *rule), settings=QUICK)
    assert not record.contradictions
    assert {SUMS, MOVES, BATCHES, LATTICE, NUMBERS, ALONG, OTHERS, PAIRS, SCORE} <= {
        one.name for one in record.comparisons
    }


@pytest.mark.parametrize(
    "words",
    [
        CORRELATED,
        (*CLIPPED, "sampler=fixed_size", "privacy.adjacency=replace_one"),
        (*CLIPPED, "sampler=shuffle", "steps=30"),
        (*CLIPPED, "sampler=random_allocation", "sampler.batch_size=200", "steps=8"),
        (*PLAN, *METHODS["dpsgd"], "subsample=shared"),
        (*CLIPPED, "model=logistic,mlp", "score.metric=balanced_accuracy"),
        (*CLIPPED, "clip_schedule=linear", "sampler.batch_size=1437", "ema=0.9"),
        (*PLAN, "trainer=adadp", "trainer.lr=0.1", "trainer.clip_norm=1"),
        (*PUBLIC, "privacy.noise_multiplier=1"),
        (*PLAN, *METHODS["dpnsgd"], "loss.class_weights=[1,1,1,1,1,1,1,1,1,9]"),
        (*CLIPPED, "loss.class_weights=[1,1,1,1,1,1,1,1,1,9]", "engine=opacus"),
    ],
    ids=lambda words: " ".join(words[len(PLAN) :]),
)
def test_other_right_methods_are_not_accused(words: Sequence[str], audit_of: Callable[..., AuditRecord]) -> None:
    assert not audit_of(words, settings=QUICK).contradictions


ATTACK = AuditSettings(steps=2, canaries=3000)


def test_the_attack_finds_less_than_the_price_of_a_training(audit_of: Callable[..., AuditRecord]) -> None:
    right = audit_of(CLIPPED, settings=ATTACK)
    assert right.epsilon < right.price == pytest.approx(right.charge, rel=1e-3)
    assert right.sure < right.sure_price < np.inf
    assert right.epsilon > 0.1


def test_the_attack_alone_contradicts_the_price_of_a_run_without_noise(audit_of: Callable[..., AuditRecord]) -> None:
    record = audit_of((*CLIPPED, "privacy.epsilon=1"), planted.no_noise, ATTACK)
    assert any(sentence.startswith("an attack on one training") for sentence in record.contradictions)


def test_some_mistakes_are_not_found(audit_of: Callable[..., AuditRecord]) -> None:
    """If this fails, an audit has become better: the mistake belongs to those that are found, here and in the docs."""
    assert not audit_of(CLIPPED, planted.empty_batches_skipped).contradictions
