"""Jobs import the classes that the sweep's own command line named, and no other class that is not ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Block, Plan
from dpsweep.sweeper.job.block_job import _refuse_untrusted_classes
from dpsweep.sweeper.launchers.hydra_jobs import overrides_from_values
from tests.conftest import Program
from tests.randomized import TRAINS

pytestmark = TRAINS

FROZEN = Path(__file__).parent.parent.parent / "frozen" / "format_1" / "composition" / "plan.json"


def plan_naming(path: str) -> Plan:
    plan = Plan.read(FROZEN)
    trials = [
        replace(trial, config={**trial.config, "model": {"_target_": path, "head": {"_target_": "their_heads.Head"}}})
        for trial in plan.trials
    ]
    return replace(plan, blocks=(Block(trials=tuple(trials)),))


def test_a_job_trusts_what_it_is_told_to() -> None:
    plan = plan_naming("my_model.Net")
    assert plan.names_of_user_classes_and_scripts == {"my_model.Net", "their_heads.Head"}
    _refuse_untrusted_classes(plan, ["my_model.Net", "their_heads.Head"])
    with pytest.raises(
        BadInput,
        match=r"^Expected their_heads\.Head in plan .* no class is imported and no script run because a file names it",
    ):
        _refuse_untrusted_classes(plan, ["my_model.Net"])
    _refuse_untrusted_classes(Plan.read(FROZEN), [])


def test_what_is_trusted_is_told_in_an_override() -> None:
    assert overrides_from_values({"trusted": ["my_model.Net", "a.B"], "part": 0}) == [
        "trusted=['my_model.Net','a.B']",
        "part=0",
    ]
    assert overrides_from_values({"trusted": []}) == ["trusted=[]"]


def test_a_stored_plan_keeps_the_users_paths(tmp_path: Path) -> None:
    plan_naming("my_model.Net").write(tmp_path / "plan.json")
    form = json.loads((tmp_path / "plan.json").read_text())
    model = form["blocks"][0][0]["config"]["model"]
    assert model == {"_target_": "my_model.Net", "head": {"_target_": "their_heads.Head"}}
    assert Plan.read(tmp_path / "plan.json").names_of_user_classes_and_scripts == {"my_model.Net", "their_heads.Head"}


@pytest.mark.parametrize(
    "launcher", ["fork", *(pytest.param(name, marks=pytest.mark.long) for name in ("basic", "joblib"))]
)
def test_a_model_of_the_users_trains_under_every_launcher(
    launcher: str, program: Program, fresh_program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "own_net.py").write_text(NET)
    environment["PYTHONPATH"] = str(tmp_path)
    grid = ("trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=2", "privacy.epsilon=2")
    own = ("model._target_=own_net.net", "+model.width=3", f"hydra/launcher={launcher}")
    run = program if launcher == "fork" else fresh_program
    done = run("dataset=digits", *grid, *own, "hydra.sweep.dir=out")
    assert done.returncode == 0, done.stderr
    results = [json.loads(path.read_text()) for path in tmp_path.glob("out/trials/*/result.json")]
    assert [result["status"] for result in results] == ["finished"] * 2


NET = """
from math import prod
from torch import nn


def net(shape, classes, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.Tanh(), nn.Linear(width, classes))
"""
