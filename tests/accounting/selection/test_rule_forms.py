"""Rules from their parameters and their stored forms: what makes no sense is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, noisy_count, poisson_gaussian, repeat
from dpsweep.accounting.selection.interface import Search
from dpsweep.accounting.selection.rules import (
    RULES,
    Composition,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    Public,
    RandomStopping,
    Subsampled,
    Threshold,
    TrainOn,
    rule_from_config,
)
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part

CONF = Path(__file__).parents[3] / "conf" / "tuning"
DELTA = 1e-5
TRIAL = PlanEvent(
    training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 100),
    validation=noisy_count(noise_std=9.8),
)


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        (RandomStopping, {"delta": 0.0}, "0 < delta=0.0 < 1"),
        (RandomStopping, {"delta": 1e-5, "delta2": 1e-5}, "0 < delta2=1e-05 < 1e-05"),
        (RandomStopping, {"delta": 1e-5, "gamma": 1.5}, "0 < gamma=1.5 <= 1"),
        (RandomStopping, {"delta": "1e-5"}, "delta='1e-5' to be a number"),
        (Threshold, {"delta": 1e-5, "threshold": 0.0}, "0 < threshold=0.0 <= 1"),
        (Threshold, {"delta": 1e-5, "threshold": 0.9, "limit": 0}, "limit=0 >= 1"),
        (Threshold, {"delta": 1e-5, "threshold": 0.9, "limit": 2.5}, "limit=2.5 to be an integer"),
        (PrivateSelection, {"eta": -1.0}, "eta=-1.0 > -1"),
        (PrivateSelection, {"eta": float("nan")}, "eta=nan to be finite"),
        (PrivateSelection, {"mean": 0.5}, "mean=0.5 >= 1"),
        (PrivateSelection, {"mean": 3.0, "gamma": 0.5}, "either mean=3.0 or gamma=0.5"),
        (PrivateSelection, {"gamma": True}, "gamma=True to be a number"),
        (PrivateSelection, {"limit": -1}, "limit=-1 >= 1"),
        (PoissonSelection, {"mean": 0.0}, "mean=0.0 > 0"),
        (PoissonSelection, {"mean": float("inf")}, "mean=inf to be finite"),
        (NoisyMax, {"noise_scale": 0.0}, "noise_scale=0.0 > 0"),
        (Subsampled, {"rate": 0.0, "rule": Composition()}, "rate=0.0 < 1"),
        (Subsampled, {"rate": 0.5, "rule": "composition"}, "to be a selection rule"),
        (Subsampled, {"rate": 0.5, "rule": Composition(), "train_on": "some"}, "some"),
        (Public, {"sweep": " "}, "to be the id of the public sweep"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(kind, parameters: dict[str, object], sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((ValueError, TypeError), match=sentence.replace("(", r"\(")):
        kind(**parameters)
    form = {key: value for key, value in parameters.items() if not isinstance(value, Composition)}
    if form == parameters:
        with pytest.raises(BadInput, match="to name a selection rule"):
            rule_from_config({"kind": next(tag for tag, one in RULES.items() if one is kind), **parameters})


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_that_names_a_rule_builds_one(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if "_target_" not in form:
        pytest.skip("chooses among rules")
    filled = {"${privacy.delta}": DELTA, "???": "fashion_mnist"}
    whole = {key: filled.get(str(value), value) for key, value in form.items()}
    rule = rule_from_config(stored_form_of_config_part(whole, "rule"))
    assert rule.event([TRIAL] * 3).events_by_population
    assert rule.draw(3, Random(1)) == rule.draw(3, Random(1))
    rule.check_search(Search(repeats=form.get("repeats", 1)))


def test_a_rule_within_a_rule_is_built() -> None:
    inner = {"kind": "private_selection", "eta": 0.0}
    form = {
        "kind": "subsampled",
        "rate": 0.1,
        "train_on": "all",
        "rule": inner,
    }
    assert rule_from_config(form) == Subsampled(rate=0.1, rule=PrivateSelection(eta=0.0), train_on=TrainOn.ALL)
    with pytest.raises(BadInput, match="to name a selection rule"):
        rule_from_config({**form, "rule": {**inner, "eta": -2.0}})


def test_a_final_run_is_a_field_that_only_its_own_forms_set() -> None:
    """Two forms of one rule would be two plans; and a rule without its final run is another rule."""
    form = {"kind": "final", "rule": {"kind": "private_selection", "eta": 0.0}}
    rule = rule_from_config(form)
    assert rule != PrivateSelection(eta=0.0)
    assert rule.name == "private_selection + final run"
    assert not PrivateSelection(eta=0.0).final_run
    with pytest.raises(BadInput, match="final_run"):
        rule_from_config({"kind": "private_selection", "final_run": {"share": None}})
    with pytest.raises(BadInput, match="has a final run already"):
        rule_from_config({"kind": "final", "rule": form})
