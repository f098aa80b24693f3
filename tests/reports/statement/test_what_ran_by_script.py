"""Pages of sweeps by scripts: what was checked, what is only declared, and never more than that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import page_facts_by_name, read_bill
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.trial_config import UserScript, trainer_settings_for_release, user_scripts_of_plan
from dpsweep.reports.statement.statement import privacy_statement_lines
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line, contradicted_lines

SweepOf = Callable[..., Any]
AXES = {
    "script": {"trainer.lr": (0.1, 0.2), "trainer.script": ("/home/somebody/train.py",), "trainer.sha256": ("5ca1e",)}
}


def lines_of(made: Any, audience: Audience = Audience.CURATOR) -> Mapping[str, Line]:
    sweep = read_sweep(made.folder, made.ledger)
    bill = read_bill(sweep)
    context = Context(sweep=sweep, bill=bill, facts=page_facts_by_name(sweep, bill), audience=audience)
    return {line.topic: line for line in privacy_statement_lines(context)}


@pytest.mark.parametrize("audience", Audience)
def test_nothing_that_a_script_only_declares_is_called_checked(sweep_of: SweepOf, audience: Audience) -> None:
    lines = lines_of(sweep_of(AXES), audience)
    assert contradicted_lines(tuple(lines.values())) == ()
    for topic in ("Script", "Sampling and noise", "Scores", "Randomness", "Floating point"):
        assert lines[topic].level is EvidenceLevel.ASSUMED, topic
    assert lines["Charges"].level is EvidenceLevel.CHECKED
    text = lines["Script"].text
    assert "train.py (sha256 5ca1e)" in text
    assert "/home/somebody" not in str(lines)
    for declared in (
        "Declared by the script, not checked:",
        "each record's gradient is clipped",
        "the noise was added",
        "how batches were drawn",
        "a prediction depends on one record alone",
    ):
        assert declared in text
    assert "Checked: the script's checksum, and the noise multiplier, the sampling rate and the number of steps" in text
    assert "The architecture (train.py)" in " ".join(lines["Not covered"].evidence)


def test_a_sweep_of_dpsweeps_own_training_says_nothing_of_scripts(sweep_of: SweepOf) -> None:
    lines = lines_of(sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (1.0,)}}))
    assert "Script" not in lines
    assert "script" not in str(lines)


def test_reproducible_scripts_are_no_private_release(sweep_of: SweepOf) -> None:
    assert lines_of(sweep_of(AXES, randomness="reproducible"))["Randomness"].level is EvidenceLevel.VIOLATED


def test_scripts_that_differ_are_no_private_release(sweep_of: SweepOf) -> None:
    broken = sweep_of(AXES, fates={1: "failed"}, error="ContractBroken: The script differs from its charge")
    assert lines_of(broken)["Sampling and noise"].level is EvidenceLevel.VIOLATED


def test_a_release_names_the_script_without_its_folder() -> None:
    trainer = {"kind": "script", "script": "/home/somebody/train.py", "sha256": "5ca1e", "lr": 0.1}
    assert trainer_settings_for_release(trainer) == {**trainer, "script": "train.py"}
    assert trainer_settings_for_release({"kind": "dp_sgd", "lr": 0.1}) == {"kind": "dp_sgd", "lr": 0.1}
    assert UserScript.from_trial_config({"trainer": trainer}) == UserScript(name="train.py", sha256="5ca1e")
    assert UserScript.from_trial_config({}) is None


def test_scripts_of_a_plan_are_listed_once(sweep_of: SweepOf) -> None:
    assert [script.name for script in user_scripts_of_plan(sweep_of(AXES).plan)] == ["train.py"]
