"""A reported event is accepted if, and only if, it costs no more than the declared one, step for step."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import ContractBroken, UnsupportedEvent
from dpsweep.accounting.events.build import (
    are_same_events,
    compose,
    gaussian,
    non_private,
    poisson_gaussian,
    repeat,
    shuffled_gaussian,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.scripts.reported_events import TrainerState, check_reported_event, event_from_reported_object

STEP = poisson_gaussian(sample_rate=0.1, noise_multiplier=1.0)
DECLARED = repeat(STEP, 10)


def accepts(reported: object, declared: object = DECLARED, steps: int = 10) -> bool:
    try:
        check_reported_event(reported, declared, steps=steps)  # type: ignore[arg-type]
    except ContractBroken:
        return False
    return True


@given(
    noise=st.floats(0.2, 5),
    rate=st.floats(0.001, 1),
    steps=st.integers(0, 12),
)
def test_what_is_accepted_costs_no_more(noise: float, rate: float, steps: int) -> None:
    reported = repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)
    taken = accepts(reported)
    assert taken == (noise >= 1.0 and rate <= 0.1 and steps == 10)
    if taken:
        ours, theirs = (Rdp().epsilon(event, 1e-5, Adjacency.ADD_OR_REMOVE_ONE) for event in (DECLARED, reported))
        assert theirs <= ours * (1 + 1e-12)


@pytest.mark.parametrize(
    "reported",
    [
        repeat(STEP, 9),
        repeat(STEP, 11),
        compose([repeat(STEP, 9), poisson_gaussian(sample_rate=0.1, noise_multiplier=math.nextafter(1, 0))]),
        compose([repeat(STEP, 9), poisson_gaussian(sample_rate=math.nextafter(0.1, 1), noise_multiplier=1.0)]),
        compose([repeat(STEP, 10), gaussian(noise_multiplier=50.0)]),
        repeat(non_private(), 10),
        repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=0.0), 10),
        shuffled_gaussian(epochs=1, steps=10, noise_multiplier=1.0),
        repeat(truncated_poisson_gaussian(records=100, sample_rate=0.1, largest_batch=20, noise_multiplier=1.0), 10),
        repeat(without_replacement_gaussian(records=100, batch_size=10, noise_multiplier=1.0), 10),
    ],
)
def test_whatever_else_is_refused(reported: object) -> None:
    assert not accepts(reported)


def test_fixed_batches_are_compared_with_fixed_batches_and_public_data_by_steps_alone() -> None:
    fixed = repeat(without_replacement_gaussian(records=100, batch_size=10, noise_multiplier=1.0), 10)
    assert accepts(fixed, fixed)
    assert accepts(repeat(without_replacement_gaussian(records=200, batch_size=20, noise_multiplier=2.0), 10), fixed)
    assert not accepts(repeat(without_replacement_gaussian(records=99, batch_size=10, noise_multiplier=1.0), 10), fixed)
    assert not accepts(DECLARED, fixed)
    public = repeat(non_private(), 10)
    assert accepts(DECLARED, public)
    assert not accepts(repeat(STEP, 9), public)


def test_steps_that_were_not_taken_are_not_reported() -> None:
    check_reported_event(DECLARED, DECLARED, steps=10, taken=10)
    for taken in (9, 11, "10", 10.5):
        with pytest.raises(ContractBroken, match=r"of 10 steps from each_step\.$"):
            check_reported_event(DECLARED, DECLARED, steps=10, taken=taken)


@pytest.mark.parametrize("kind", [RDPAccountant, PRVAccountant])
def test_what_opacus_accountants_recorded_is_read(kind: type[RDPAccountant]) -> None:
    accountant = kind()
    for _ in range(10):
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    assert are_same_events(event_from_reported_object(accountant), DECLARED)

    class Engine:
        def __init__(self) -> None:
            self.accountant = accountant

    assert are_same_events(event_from_reported_object(Engine()), DECLARED)


def test_histories_of_several_noises_are_read_and_others_refused() -> None:
    class Accountant:
        def __init__(self, history: list[object]) -> None:
            self.history = history

    two = Accountant([(1.0, 0.1, 4), (2.0, 0.1, 6)])
    assert are_same_events(
        event_from_reported_object(two),
        compose([repeat(STEP, 4), repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0), 6)]),
    )
    assert accepts(event_from_reported_object(two))
    for history in ([(1.0, 0.1)], [("one", 0.1, 10)], [(-1.0, 0.1, 10)], [(1.0, 2.0, 10)], [(math.nan, 0.1, 10)], [7]):
        with pytest.raises(ContractBroken, match=r"^Expected history=.* to be one of Opacus"):
            event_from_reported_object(Accountant([*history]))


def test_events_of_dp_accounting_are_read() -> None:
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    assert are_same_events(event_from_reported_object(dp_accounting.SelfComposedDpEvent(step, 10)), DECLARED)
    assert are_same_events(event_from_reported_object(DECLARED), DECLARED)
    builder = dp_accounting.DpEventBuilder()
    builder.compose(step, 10)
    assert are_same_events(event_from_reported_object(builder.build()), DECLARED)
    unknown = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0))
    with pytest.raises(UnsupportedEvent, match="LaplaceDpEvent"):
        event_from_reported_object(dp_accounting.SelfComposedDpEvent(unknown, 10))


@pytest.mark.parametrize("reported", [None, 3, "as declared", [(1.0, 0.1, 10)], object()])
def test_anything_else_is_no_report(reported: object) -> None:
    with pytest.raises(UnsupportedEvent, match=r"to be an accountant of Opacus, a DpEvent of dp_accounting, or"):
        event_from_reported_object(reported)


def test_a_trainers_count_of_steps_has_to_agree_with_its_accountant() -> None:
    class State:
        global_step = 10

    class Trainer:
        state = State()

    accountant = RDPAccountant()
    for _ in range(10):
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    assert are_same_events(event_from_reported_object(TrainerState(trainer=Trainer(), accountant=accountant)), DECLARED)
    accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    with pytest.raises(ContractBroken, match=r"global_step=10 to be the 11 steps of its accountant\.$"):
        event_from_reported_object(TrainerState(trainer=Trainer(), accountant=accountant))
