"""What past sweeps say of the time that a step takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.timing.step_timing import time_training_steps_of_shapes
from dpsweep.sweeper.timing.time_estimate import (
    Cost,
    Speeds,
    configs_of_plan_runs,
    estimated_wall_seconds_of_plan,
    step_shapes_by_timing_key,
    timing_key_of_config,
)
from dpsweep.sweeper.trial.build import make_model
from dpsweep.trainers.data.split import units_of_each_cyclic_part
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.training import loop
from tests.accounting.books import processes
from tests.sweeper.search_programs import GRID, result_of

Compose = Callable[[Sequence[str]], PricedPlan]


def test_a_plan_is_timed_by_the_median_of_past_runs_like_it(compose_priced: Compose, tmp_path: Path) -> None:
    plan = compose_priced(GRID).plan
    speeds = Speeds(path=tmp_path / "speeds.json", device="cpu", threads=None, most=1)
    assert speeds.costs_if_all_known_else_none(configs_of_plan_runs(plan)) is None
    seconds = (3.0, 6.0, 60.0, 6.0)
    took = [replace(result_of(trial, 0.5), seconds=took) for trial, took in zip(plan.trials, seconds, strict=True)]
    speeds.store_median_speeds_of_results(plan.trials, took)
    assert speeds.costs_if_all_known_else_none(configs_of_plan_runs(plan)) == {
        timing_key_of_config(plan.trials[0].config): Cost(step=2.0)
    }
    assert replace(speeds, most=2).costs_if_all_known_else_none(configs_of_plan_runs(plan)) is None, (
        "another machine setting is another speed"
    )
    assert (
        speeds.costs_if_all_known_else_none(configs_of_plan_runs(compose_priced([*GRID, "model=one_hidden"]).plan))
        is None
    )


def test_a_plan_whose_first_step_fails_says_that_a_sweep_would_refuse_it(
    compose_priced: Compose, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model with other weights than the priced ones, as where the code of a user's model has changed since."""
    configs = [{**config, "weights": 1} for config in configs_of_plan_runs(compose_priced(GRID).plan)]
    speeds = Speeds(path=tmp_path / "speeds.json", device="cpu", threads=1, most=1)
    with speeds.time_unknown_costs_in_background(configs) as costs:
        assert costs() is None
    assert capsys.readouterr().err.startswith(
        "A sweep would refuse this plan. A first step of training failed on random records: Expected weights="
    )


def test_a_plan_of_a_model_that_cannot_be_built_is_refused(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"Expected model=cnn to be built: Expected shape=\[1, 8, 8\]"):
        compose_priced([*GRID, "model=cnn"])


@pytest.mark.parametrize("model", ["logistic", "mlp", "one_hidden", "resnet20", "strided_cnn"])
def test_the_priced_weights_are_those_of_the_model(compose_priced: Compose, model: str) -> None:
    config = compose_priced(["dataset=mnist", f"model={model}", "trainer=dpnsgd", "steps=2"]).plan.trials[0].config
    built = make_model(config, "weights")
    assert config["weights"] == sum(each.numel() for each in built.parameters() if each.requires_grad)


def _reader(own: Callable[..., Any], of_meta: Callable[[torch.Tensor], Any]) -> Callable[..., Any]:
    return lambda tensor, *rest: of_meta(tensor) if tensor.device.type == "meta" else own(tensor, *rest)


@pytest.fixture
def meta_as_gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """A device that holds no numbers: mixing it with the CPU is an error, as on a GPU, which a test has not."""
    zeros = {
        "cpu": lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype),
        "tolist": lambda tensor: torch.zeros(tensor.shape).tolist(),
        "item": lambda tensor: 1.0,
        "__bool__": lambda tensor: True,
    }
    for name, value in zeros.items():
        monkeypatch.setattr(torch.Tensor, name, _reader(getattr(torch.Tensor, name), value))
    return "meta"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "words",
    [
        "model=logistic",
        "model=one_hidden",
        "model=one_hidden engine=vmap",
        "sampler=cyclic_poisson noise=band_mf noise.bands=3 sampler.batch_size=10",
        "trainer=dpadam",
    ],
)
def test_a_step_keeps_to_the_device_of_its_model(compose_priced: Compose, meta_as_gpu: str, words: str) -> None:
    """The counting of its work once did not, and every sweep on a GPU was refused."""
    grid = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=2,8", "steps=3")
    plan = compose_priced([*grid, *words.split()]).plan
    shapes = step_shapes_by_timing_key(configs_of_plan_runs(plan)).values()
    assert all(cost.step > 0 for cost in time_training_steps_of_shapes(list(shapes), meta_as_gpu, 1, 1).costs)


def test_every_part_has_records_where_cycles_are_timed(
    compose_priced: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their contents the equal records of a timing fall into one part; steps on the others are too quick."""
    sizes: list[int] = []

    def parts_and_their_sizes(*line: Any) -> tuple[Any, ...]:
        parts = units_of_each_cyclic_part(*line)
        sizes.extend(map(len, parts))
        return parts

    monkeypatch.setattr(loop, "units_of_each_cyclic_part", parts_and_their_sizes)
    cyclic = ("sampler=cyclic_poisson", "noise=band_mf", "noise.bands=4", "steps=8", "sampler.batch_size=10")
    shapes = step_shapes_by_timing_key(configs_of_plan_runs(compose_priced([*GRID, *cyclic]).plan)).values()
    time_training_steps_of_shapes(list(shapes), "cpu", 1, 1)
    assert len(sizes) >= 4 and min(sizes) > 0


def test_what_a_plan_has_timed_no_plan_times_again(compose_priced: Compose, tmp_path: Path) -> None:
    plan = compose_priced(GRID).plan
    speeds = Speeds(path=tmp_path / "speeds.json", device="cpu", threads=1, most=1)
    elsewhere = replace(speeds, path=tmp_path / "none" / "speeds.json")
    with elsewhere.time_unknown_costs_in_background(configs_of_plan_runs(plan)) as answer:
        assert answer() is not None
    assert not elsewhere.path.parent.exists(), "a plan makes no folder for a ledger"
    with speeds.time_unknown_costs_in_background(configs_of_plan_runs(plan)) as answer:
        timed = answer()
    assert timed is not None and timed == speeds.costs_if_all_known_else_none(configs_of_plan_runs(plan))
    with speeds.time_unknown_costs_in_background(configs_of_plan_runs(plan)) as answer:
        assert answer() == timed


def test_a_file_that_cannot_be_written_costs_nothing(compose_priced: Compose, tmp_path: Path) -> None:
    plan = compose_priced(GRID).plan
    (tmp_path / "file").write_text("not a folder")
    speeds = Speeds(path=tmp_path / "file" / "speeds.json", device="cpu", threads=None, most=1)
    speeds.store_median_speeds_of_results(plan.trials, [result_of(trial, 0.5) for trial in plan.trials])
    assert speeds.costs_if_all_known_else_none(configs_of_plan_runs(plan)) is None
    (tmp_path / "broken.json").write_text("{")
    assert (
        Speeds(path=tmp_path / "broken.json", device="cpu", threads=None, most=1).costs_if_all_known_else_none(
            configs_of_plan_runs(plan)
        )
        is None
    )


def test_steps_that_the_budget_decides_are_timed_as_one(compose_priced: Compose) -> None:
    config = compose_priced(GRID).plan.trials[0].config
    (shape,) = step_shapes_by_timing_key([{**config, "steps": "when_budget_spent"}]).values()
    assert shape.config["steps"] == 1
    (shape,) = step_shapes_by_timing_key([config]).values()
    assert shape.config == config


def keep(speeds: Speeds, configs: Sequence[Mapping[str, Any]], cost: Cost) -> None:
    """Stores the cost of the one kind of step, as if it had been timed."""
    ((kind, shape),) = speeds._step_shapes_of_configs(configs).items()
    speeds._store_costs({speeds._cost_key(kind, shape): cost})


def test_extraction_is_known_only_where_it_was_timed_and_adds_to_the_time(
    compose_priced: Compose, tmp_path: Path
) -> None:
    priced = compose_priced(GRID)
    configs = configs_of_plan_runs(priced.plan)
    kind = timing_key_of_config(configs[0])
    speeds = Speeds(path=tmp_path / "speeds.json", device="cpu", threads=1, most=1)
    keep(speeds, configs, Cost(step=1.0, beside=0.5))
    extracts = replace(speeds, extracts=True)
    assert speeds.costs_if_all_known_else_none(configs) == {kind: Cost(step=1.0, beside=0.5)}
    assert extracts.costs_if_all_known_else_none(configs) is None
    keep(extracts, configs, Cost(step=1.0, beside=0.5, record=0.25))
    costs = extracts.costs_if_all_known_else_none(configs)
    assert costs == {kind: Cost(step=1.0, beside=0.5, record=0.25)}
    alone = estimated_wall_seconds_of_plan(priced.plan, costs, 1)
    assert estimated_wall_seconds_of_plan(priced.plan, costs, 1, missing=8) == pytest.approx(alone + 2)
    assert estimated_wall_seconds_of_plan(priced.plan, costs, 2, missing=8) == pytest.approx(alone / 2 + 1)


@pytest.mark.parametrize("engine", ["auto", "vmap"])
def test_a_step_whose_time_is_known_is_tried_and_not_timed(
    compose_priced: Compose, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    config = compose_priced([*GRID, f"engine={engine}"]).plan.trials[0].config
    (shape,) = step_shapes_by_timing_key([config]).values()
    known = Cost(step=7.0, beside=3.0)
    assert time_training_steps_of_shapes([shape], "cpu", 1, 1, [known]).costs == (known,)
    steps = {Vmap: "bounded_gradient_sum_and_norms", Stack: "add_bounded_gradient_sums"}
    broken = Vmap if engine == "vmap" else Stack
    monkeypatch.setattr(broken, steps[broken], lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        time_training_steps_of_shapes([shape], "cpu", 1, 1, [known])


def _store_times(pipe: Connection, speeds: Speeds, plans: Sequence[Plan]) -> None:
    for plan in plans:
        speeds.store_median_speeds_of_results(plan.trials, [result_of(trial, 0.5) for trial in plan.trials])
    pipe.send("done")


def test_sweeps_that_end_at_once_keep_each_others_times(compose_priced: Compose, tmp_path: Path) -> None:
    plans = [compose_priced([*GRID, f"sampler.batch_size={size}"]).plan for size in (8, 9, 10)]
    speeds = [Speeds(path=tmp_path / "speeds.json", device="cpu", threads=number, most=1) for number in range(1, 5)]
    with processes(_store_times, [(one, plans) for one in speeds]) as pipes:
        assert [pipe.recv() for pipe in pipes] == ["done"] * 4
    configs = [config for plan in plans for config in configs_of_plan_runs(plan)]
    assert None not in [one.costs_if_all_known_else_none(configs) for one in speeds]
