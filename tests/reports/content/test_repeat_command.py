"""A release says the command that repeats its search on other data: it composes, prices alike, and tells no secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.content.repeat_command import repeat_command
from dpsweep.sweeper.planning.plan_builder import PricedPlan
from tests.freezing import FROZEN


@pytest.mark.parametrize(
    "name",
    [
        *(
            "private_selection",
            "composition",
            "repeats",
            "proposed",
            "threshold",
            "subsampled",
            "private_selection_final",
        ),
        *("disjoint", "correlated_noise", "shuffle", "fixed_size", "median_of_repeats_final"),
        *("shared_subsample", "interrupted"),
    ],
)
def test_the_command_makes_the_same_search(name: str, compose_priced: Callable[[Sequence[str]], PricedPlan]) -> None:
    """On the same records it is the same plan, but for what the account decides."""
    plan = Plan.read(FROZEN / name / "plan.json")
    command = repeat_command(plan)
    assert command.startswith("dpsweep sweep dataset=... trainer=")
    words = [word for word in shlex.split(command)[2:] if not word.endswith("...")]
    again = compose_priced(["dataset=digits", *words]).plan
    assert again.rule == plan.rule
    assert [trial.axes for trial in again.trials] == [trial.axes for trial in plan.trials]
    same = ("trainer", "sampler", "steps", "score", "loss", "model", "privacy", "lr_schedule", "clip_schedule")
    for one, other in zip(again.trials, plan.trials, strict=True):
        assert {key: one.config[key] for key in same} == {key: other.config[key] for key in same}


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FROZEN.glob("*/plan.json")))
def test_the_command_has_no_path_account_seed_or_name_of_a_users(name: str) -> None:
    plan = Plan.read(FROZEN / name / "plan.json")
    command = repeat_command(plan)
    assert "/" not in command
    assert "seed" not in command
    assert plan.id not in command
    assert not re.search(r"\bbudget\.(?!sealed)", command)
    assert not re.search(rf"\b{re.escape(plan.account)}\b", command)
    for file in (".csv", ".parquet", ".py", ".npz", "sha256", str(Path.home())):
        assert file not in command


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint.every=2", "checkpoint.resumes=3"),
        ("ema=0.9", "initial_weights=by_repetition"),
        ("features=scattering", "model=linear"),
        ("augmentation=shift_flip",),
        ("dataset=mnist_5k", "budget.sealed={share: 0.1, parts: 2}"),
    ],
    ids=" ".join,
)
def test_further_settings_are_repeated(
    words: tuple[str, ...], compose_priced: Callable[[Sequence[str]], PricedPlan]
) -> None:
    line = ["dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=5", *words]
    line += ["accountant=rdp", "privacy.noise_multiplier=20"]
    plan = compose_priced(line).plan
    own = [word for word in shlex.split(repeat_command(plan))[2:] if not word.endswith("...")]
    again = compose_priced([*line[:1], *(word for word in words if word.startswith("dataset=")), *own]).plan
    assert again.trials[0].config == plan.trials[0].config
