"""Rules from their parameters and their stored forms: what makes no sense is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, noisy_count, poisson_gaussian, repeat
from dpsweep.accounting.selection.composition import Composition, Public
from dpsweep.accounting.selection.interface import Search, rule_from_config
from dpsweep.accounting.selection.noisy_max import NoisyMax
from dpsweep.accounting.selection.private_selection import PoissonSelection, PrivateSelection
from dpsweep.accounting.selection.random_stopping import RandomStopping
from dpsweep.accounting.selection.subsampled import Subsampled, TrainOn
from dpsweep.accounting.selection.threshold import Threshold

CONF = Path(__file__).parents[3] / "conf" / "tuning"
DELTA = 1e-5
TRIAL = PlanEvent(
    training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 100),
    validation=noisy_count(noise_std=9.8),
)


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        (RandomStopping, {"delta": 0.0}, "delta=0.0 in"),
        (RandomStopping, {"delta": 1e-5, "delta2": 1e-5}, "delta2=1e-05 in"),
        (RandomStopping, {"delta": 1e-5, "gamma": 1.5}, "gamma=1.5 in"),
        (RandomStopping, {"delta": "1e-5"}, "delta='1e-5' to be a number"),
        (Threshold, {"delta": 1e-5, "threshold": 0.0}, "threshold=0.0 in"),
        (Threshold, {"delta": 1e-5, "threshold": 0.9, "limit": 0}, "limit=0 >= 1"),
        (Threshold, {"delta": 1e-5, "threshold": 0.9, "limit": 2.5}, "limit=2.5 to be an integer"),
        (PrivateSelection, {"eta": -1.0}, "eta=-1.0 in"),
        (PrivateSelection, {"eta": float("nan")}, "eta=nan in"),
        (PrivateSelection, {"mean": 0.5}, "mean=0.5 >= 1"),
        (PrivateSelection, {"mean": 3.0, "gamma": 0.5}, "either mean=3.0 or gamma=0.5"),
        (PrivateSelection, {"gamma": True}, "gamma=True to be a number"),
        (PrivateSelection, {"limit": -1}, "limit=-1 >= 1"),
        (PoissonSelection, {"mean": 0.0}, "mean=0.0 in"),
        (PoissonSelection, {"mean": float("inf")}, "mean=inf in"),
        (NoisyMax, {"noise_scale": 0.0}, "noise_scale=0.0 in"),
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
            rule_from_config({"_target_": f"{kind.__module__}.{kind.__name__}", **parameters})


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_that_names_a_rule_builds_one(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if "_target_" not in form:
        pytest.skip("chooses among rules")
    filled = {"${privacy.delta}": DELTA, "???": "fashion_mnist"}
    rule = rule_from_config({key: filled.get(str(value), value) for key, value in form.items()})
    assert rule.event([TRIAL] * 3).events_by_population
    assert rule.tries_over(3).draw(Random(1)) == rule.tries_over(3).draw(Random(1))
    rule.check_search_is_covered(Search(repeats=form.get("repeats", 1)))


def test_a_rule_within_a_rule_is_built() -> None:
    inner = {"_target_": "dpsweep.accounting.selection.private_selection.PrivateSelection", "eta": 0.0}
    form = {
        "_target_": "dpsweep.accounting.selection.subsampled.Subsampled",
        "rate": 0.1,
        "train_on": "all",
        "rule": inner,
    }
    assert rule_from_config(form) == Subsampled(rate=0.1, rule=PrivateSelection(eta=0.0), train_on=TrainOn.ALL)
    with pytest.raises(BadInput, match="to name a selection rule"):
        rule_from_config({**form, "rule": {**inner, "eta": -2.0}})
