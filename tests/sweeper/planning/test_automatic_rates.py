"""`trainer.lr=auto`: what a plan stores in its place, and where it is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.methods import named_methods, rate_laws
from dpsweep.trainers.methods.rate_laws import RateLaw, factor_of_automatic_rate
from tests.sweeper.search_programs import Compose

LIGHT = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "privacy.epsilon=4")
DPSGD = (*LIGHT, "trainer=dpsgd", "trainer.clip_norm=0.5")
RISING = RateLaw(first=0.25, exponent=0.5, most=3.0)


@pytest.fixture
def rising(monkeypatch: pytest.MonkeyPatch) -> None:
    """DP-SGD with a law that follows the noise."""
    monkeypatch.setattr(named_methods, "DpSgd", replace(named_methods.DpSgd, rate_law=RISING))


def rates(compose_priced: Compose, *words: str) -> list[float]:
    return [trial.config["trainer"]["lr"] for trial in compose_priced((*DPSGD, *words)).plan.trials]


def test_a_plan_stores_the_rate_of_its_own_noise(compose_priced: Compose, rising: None) -> None:
    plan = compose_priced((*DPSGD, "trainer.lr=auto*0.5,auto,auto*2")).plan
    config = plan.trials[0].config
    noise_std = 0.5 * config["privacy"]["noise_multiplier"]
    whole = RISING.rate(noise_std=noise_std, batch_size=config["sampler"]["batch_size"], steps=config["steps"])
    assert whole == pytest.approx(
        0.25 * math.sqrt(config["sampler"]["batch_size"] / noise_std) / config["steps"] ** 0.25, rel=0.005
    )
    assert [trial.axes["trainer.lr"] for trial in plan.trials] == pytest.approx([whole / 2, whole, 2 * whole], rel=0.01)
    assert all(trial.config["trainer"]["lr"] == trial.axes["trainer.lr"] for trial in plan.trials)


def test_a_plan_by_its_word_is_the_plan_by_its_numbers(compose_priced: Compose, rising: None) -> None:
    by_word = compose_priced((*DPSGD, "trainer.lr=auto,auto*2")).plan
    numbers = ",".join(f"{trial.axes['trainer.lr']:g}" for trial in by_word.trials)
    assert compose_priced((*DPSGD, f"trainer.lr={numbers}")).plan.id == by_word.id
    assert any("trainer.lr=auto" in note for note in by_word.notes), "the plan says which numbers it found"


def test_one_rate_for_all_points_follows_each_ones_bound(compose_priced: Compose, rising: None) -> None:
    plan = compose_priced((*LIGHT, "trainer=dpsgd", "trainer.lr=auto", "trainer.clip_norm=0.5,2")).plan
    small, large = (trial.config["trainer"]["lr"] for trial in plan.trials)
    assert small == pytest.approx(2 * large, rel=0.01), "four times the noise, and a square root"
    assert all("trainer.lr" not in trial.axes for trial in plan.trials)


def test_a_final_run_has_the_rate_of_its_own_noise(compose_priced: Compose, rising: None) -> None:
    plan = compose_priced((*DPSGD, "trainer.lr=auto*0.5,auto", "tuning=disjoint")).plan
    for trial in plan.trials:
        final = trial.final
        assert final is not None
        noises = [one.config["privacy"]["noise_multiplier"] for one in (trial, final)]
        sizes = [one.config["sampler"]["batch_size"] for one in (trial, final)]
        ratio = math.sqrt(sizes[1] / noises[1] / (sizes[0] / noises[0]))
        assert final.config["trainer"]["lr"] == pytest.approx(ratio * trial.config["trainer"]["lr"], rel=0.01)


def test_without_noise_the_rate_is_the_largest() -> None:
    assert RISING.rate(noise_std=0.0, batch_size=10, steps=10) == 3.0
    assert RateLaw(first=2.0).rate(noise_std=0.0, batch_size=10, steps=10) == 2.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trainer.lr=auto*x",), r"Expected trainer.lr=auto\*x to be a number, auto, or auto\*0.5"),
        (("trainer.lr=auto*0",), r"Expected trainer.lr=auto\*0 to be a number"),
        (("trainer.lr=auto*-1",), r"Expected trainer.lr=auto\*-1 to be a number"),
        (("trainer.lr=automatic",), "Expected trainer.lr=automatic to be a number"),
        (("trainer=adadp", "trainer.lr=auto"), "Expected trainer.lr to be a number with trainer=adadp"),
        (
            (
                "trainer.lr=auto,auto*2,auto*4",
                "search=linear_scaling",
                "search.trials=7",
                "search.noise_multipliers=[40,20]",
            ),
            "Expected trainer.lr to be numbers: LinearScaling finds",
        ),
    ],
)
def test_where_there_is_no_automatic_rate_a_sentence_says_so(
    compose_priced: Compose, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        compose_priced((*DPSGD, *words))


def test_a_fixed_law_is_the_default_of_its_file(compose_priced: Compose) -> None:
    """The number stands in the YAML file and beside the method: both are one."""
    laws = {name: kind.rate_law for name, kind in vars(named_methods).items() if getattr(kind, "rate_law", None)}
    assert laws
    for name, law in laws.items():
        words = (*LIGHT, f"trainer={name.lower()}")
        bound = "trainer.regularizer=0.01" if name == "DpNsgd" else "trainer.clip_norm=1.6"
        (by_word,) = compose_priced((*words, bound, "trainer.lr=auto")).plan.trials
        if law.exponent == 0:
            assert by_word.config["trainer"]["lr"] == law.first


def test_only_the_word_itself_is_a_word() -> None:
    assert factor_of_automatic_rate("0.5") is None
    assert factor_of_automatic_rate("auto*1e-1") == 0.1
    assert rate_laws.factor_of_automatic_rate(None) is None
