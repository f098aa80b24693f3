"""Declared class weights in a plan: the same price, other default rates, and where they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.methods import named_methods
from dpsweep.trainers.methods.rate_laws import RateLaw
from tests.sweeper.search_programs import Compose

LIGHT = ("dataset=adult", "accountant=rdp", "accountant.witnesses=[]", "privacy.epsilon=3")
WEIGHTS = "loss.class_weights=[1,3]"
METHODS = ("dpsgd", "dpnsgd", "auto_s", "dpadam")


def rates(compose_priced: Compose, *words: str) -> list[float]:
    return [trial.config["trainer"]["lr"] for trial in compose_priced((*LIGHT, *words)).plan.trials]


@pytest.mark.parametrize("adjacency", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("method", METHODS)
def test_weights_change_no_event_no_noise_and_no_price(compose_priced: Compose, method: str, adjacency: str) -> None:
    rows = ("sampler=fixed_size", "dataset.left_out=null", "dataset.records=32561", "dataset.test_records=16281")
    words = (f"trainer={method}", f"privacy.adjacency={adjacency}", *(rows if adjacency == "replace_one" else ()))
    plain, weighted = (compose_priced((*LIGHT, *words, *more)).plan for more in ((), (WEIGHTS,)))
    assert plain.id != weighted.id
    assert plain.event == weighted.event
    assert plain.target_epsilon == weighted.target_epsilon
    for one, other in zip(plain.trials, weighted.trials, strict=True):
        assert one.event == other.event
        assert one.config["privacy"] == other.config["privacy"], "the noise multiplier"


@pytest.mark.parametrize(("weights", "factor"), [("[1,3]", 1.5), ("[3,1]", 1.5), ("[1,20]", 20 / 10.5), ("[7,7]", 1.0)])
@pytest.mark.parametrize("grid", ["few", "small"])
@pytest.mark.parametrize("method", METHODS)
def test_default_rates_are_multiplied_by_the_largest_weight_over_the_mean(
    compose_priced: Compose, method: str, grid: str, weights: str, factor: float
) -> None:
    words = (f"trainer={method}", f"grid={grid}")
    plain, weighted = rates(compose_priced, *words), rates(compose_priced, *words, f"loss.class_weights={weights}")
    assert weighted == pytest.approx([factor * rate for rate in plain], rel=5e-3)


def test_the_plan_says_what_weights_do(compose_priced: Compose) -> None:
    plain, weighted = (" ".join(compose_priced((*LIGHT, *more)).plan.notes) for more in ((), (WEIGHTS,)))
    assert "lass weights" not in plain
    for word in ("Class weights", "price", "1.5"):
        assert word in weighted


def test_an_automatic_rate_is_a_default_rate(compose_priced: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    law = RateLaw(first=0.25, exponent=0.5, most=3.0)
    monkeypatch.setattr(named_methods, "DpSgd", replace(named_methods.DpSgd, rate_law=law))
    words = ("trainer=dpsgd", "trainer.clip_norm=0.5", "trainer.lr=auto*0.5,auto")
    plain, weighted = rates(compose_priced, *words), rates(compose_priced, *words, WEIGHTS)
    assert weighted == pytest.approx([1.5 * rate for rate in plain], rel=0.01)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("trainer.lr=8",), {8.0}),
        (("trainer.lr=4,8",), {4.0, 8.0}),
        (("grid.axes={dpnsgd: {trainer.lr: [5, 6], trainer.regularizer: [0.1]}}",), {5.0, 6.0}),
        (("grid=head",), {4.0, 8.0, 16.0, 32.0}),
    ],
)
def test_a_rate_that_is_given_stays(compose_priced: Compose, words: tuple[str, ...], given: set[float]) -> None:
    assert set(rates(compose_priced, "trainer=dpnsgd", *words, WEIGHTS)) == given


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("trainer=output_perturbation",), ("loss.class_weights", "trainer=output_perturbation")),
        (("loss=binary_cross_entropy",), ("loss.class_weights",)),
        (("loss=huber",), ("loss.class_weights",)),
        (("loss=next_token",), ("loss.class_weights",)),
    ],
)
def test_where_weights_have_no_meaning_a_sentence_says_so(
    compose_priced: Compose, words: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced((*LIGHT, *words, WEIGHTS if "trainer" in words[0] else f"+{WEIGHTS}"))
    assert all(word in str(refusal.value) for word in needed)
    assert "\n" not in str(refusal.value)
