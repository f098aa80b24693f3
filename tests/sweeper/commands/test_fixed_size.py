"""Sweeps in batches of fixed size or by epochs: charged and run as what they are, or refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.events.build import are_same_events, from_json, mechanisms_with_counts
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import Status, TrialResult
from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]

LINE = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.5,1", "trainer.clip_norm=1", "steps=3", "sampler=fixed_size")
LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "compute.threads=1", "compute.device=cpu")


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("engine", ["auto", pytest.param("opacus", marks=pytest.mark.long)])
def test_what_ran_is_what_was_charged(program: Program, tmp_path: Path, engine: str) -> None:
    done = program(*LINE, *LIGHT, "privacy.adjacency=replace_one", f"engine={engine}")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / Path(done.stdout.splitlines()[-1]).parents[1]
    plan, page = Plan.read(folder / "plan.json"), (folder / "curator" / "report.html").read_text()
    for trial in plan.trials:
        result = TrialResult.read(folder / "trials" / trial.id)
        assert result is not None
        assert result.status is Status.FINISHED
        ((step, count),) = mechanisms_with_counts(trial.event.training)
        assert (step.sample_size, count) == (720, 3)
        assert are_same_events(from_json(result.event), trial.event.training)
        assert "Each step takes exactly 720 of 1435 training records, drawn without replacement, and adds" in page
        assert result.curator["batch_sizes"] == {"smallest": 720, "mean": 720.0, "largest": 720}


def test_neighbours_of_another_number_have_no_price(program: Program) -> None:
    refused = program(*LINE, *LIGHT)
    assert refused.returncode == 2
    assert "RDP has no bound for SampledWithoutReplacement under add_or_remove_one" in refused.stderr


@pytest.mark.long
@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("sampler", ["shuffle", "random_allocation"])
def test_epochs_are_charged_and_run_as_such(program: Program, tmp_path: Path, sampler: str) -> None:
    """The data set's own batch of 720 makes an epoch of two steps."""
    shuffled = [word.replace("fixed_size", sampler).replace("steps=3", "steps=4") for word in LINE]
    done = program(*shuffled, *LIGHT)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / Path(done.stdout.splitlines()[-1]).parents[1]
    page = (folder / "curator" / "report.html").read_text()
    for trial in Plan.read(folder / "plan.json").trials:
        result = TrialResult.read(folder / "trials" / trial.id)
        assert result is not None
        assert (result.status, result.steps) == (Status.FINISHED, 4)
        assert are_same_events(from_json(result.event), trial.event.training)
        ((epoch, count),) = mechanisms_with_counts(trial.event.training)
        assert (epoch.steps, count) == (2, 2)
    which = "a secret, random one" if sampler == "random_allocation" else "one"
    assert f"Each step takes its share of the training records (each record is in {which} of every 2 steps) and" in page
    assert "The runs match their charge." in page
