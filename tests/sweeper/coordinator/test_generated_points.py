"""The points of a rehearsal are those of the command, on records of the shape that the configuration declares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_trial_config
from dpsweep.sweeper.coordinator.request import points_on_generated_records, points_refusing_generated_records
from dpsweep.sweeper.planning.plan_settings import Point
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.data.sets.generated import Generated

CONF = Path(__file__).parents[3] / "conf" / "dataset"
COMPLETE = sorted(path.stem for path in CONF.glob("*.yaml") if "???" not in path.read_text())
IN_A_FOLDER = {"sst2_hf", "sst2_roberta"}
"""Data sets whose vocabulary is read from the folder of a model that the command names."""
LINE = ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "accountant=rdp", "accountant.witnesses=[]", "steps=2")


def point_of(config: dict[str, object]) -> Point:
    return Point(method="dpsgd", axes={}, config=stored_form_of_trial_config(config))


@pytest.mark.parametrize("name", [name for name in COMPLETE if name not in IN_A_FOLDER])
def test_every_data_set_has_a_rehearsal_of_its_shape(
    name: str, compose_priced: Callable[[list[str]], PricedPlan]
) -> None:
    trial = compose_priced([f"dataset={name}", *LINE]).plan.trials[0]
    point = Point(method=trial.method, axes=trial.axes, config=trial.config)
    (other,) = points_on_generated_records([point])
    real, generated = declaration_from_config(point.config), declaration_from_config(other.config)
    assert generated.dataset.name == f"rehearsal-{real.dataset.name}"
    for field in ("records", "test_records", "shape", "classes", "unit"):
        assert getattr(generated.dataset, field) == getattr(real.dataset, field)
    assert generated.training_and_scoring_dp_event(2.0) == real.training_and_scoring_dp_event(2.0)
    inner, of = (getattr(one.dataset, "of", one.dataset) for one in (generated, real))
    assert isinstance(inner, Generated)
    assert (inner.vocabulary is None) == (getattr(of, "vocabulary", None) is None)
    with pytest.raises(BadInput, match="rehearse"):
        [*points_refusing_generated_records([other])]
    assert [*points_refusing_generated_records([point])] == [point]


def test_steps_that_are_open_until_the_plan_is_solved_may_be_rehearsed(
    compose_priced: Callable[[list[str]], PricedPlan],
) -> None:
    config = compose_priced(["dataset=digits", *LINE]).plan.trials[0].config
    (other,) = points_on_generated_records([point_of({**config, "steps": "when_budget_spent"})])
    assert other.config["steps"] == "when_budget_spent"
    with pytest.raises(BadInput, match="Expected steps='when_spent' to be an integer"):
        [*points_on_generated_records([point_of({**config, "steps": "when_spent"})])]


def test_a_class_of_the_users_is_not_imported(compose_priced: Callable[[list[str]], PricedPlan]) -> None:
    trial = compose_priced(["dataset=digits", *LINE]).plan.trials[0]
    mine = {"_target_": "tests.nowhere.Mine", "name": "mine", "records": 5000, "shape": [8], "classes": 2}
    (other,) = points_on_generated_records(
        [point_of({**trial.config, "dataset": {**mine, "unit": "record", "path": "x"}})]
    )
    assert declaration_from_config(other.config).dataset.shape == (8,)
    with pytest.raises(BadInput, match=r"Expected dataset.unit in the configuration"):
        [*points_on_generated_records([point_of({**trial.config, "dataset": mine})])]


def test_a_mistake_in_the_declaration_is_found(compose_priced: Callable[[list[str]], PricedPlan]) -> None:
    trial = compose_priced(["dataset=digits", *LINE]).plan.trials[0]
    wrong = {**trial.config["dataset"], "pool": 0}
    with pytest.raises(BadInput, match="pool"):
        [*points_on_generated_records([point_of({**trial.config, "dataset": wrong})])]


def test_the_list_of_data_sets_is_not_empty() -> None:
    assert len(COMPLETE) > 10
    assert all(OmegaConf.load(CONF / f"{name}.yaml").dataset.name for name in COMPLETE)
