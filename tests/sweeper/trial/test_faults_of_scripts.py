"""A script that does not run what was charged is caught, each by its sentence; one that is honest has a score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.sweeper.trial.scripts import STEPS, SWEEP, charges, left_behind, results_of, write_script

pytestmark = TRAINS

CAUGHT = {
    "one_more": f"ContractBroken: The script differs from its charge: it reports {STEPS + 1} steps, and {STEPS} were",
    "skips": f"ContractBroken: The script differs from its charge: it reports {STEPS - 1} steps, and {STEPS} were",
    "early": f"ContractBroken: The script differs from its charge: it reports 2 steps, and {STEPS} were declared.",
    "no_noise": "ContractBroken: The script differs from its charge: it reports steps of sampling rate ",
    "less_noise": "ContractBroken: The script differs from its charge: it reports steps of sampling rate ",
    "rate": "ContractBroken: The script differs from its charge: it reports steps of sampling rate 0.5057",
    "never": "ChildProcessError: The script ended without a report of what ran: call report(",
    "exit": "ChildProcessError: The script ended with status 3; what it printed is in script.log.",
    "other": "ContractBroken: Expected the script to report attempt ",
    "shape": "ChildProcessError: The script ended with status 1",
    "not_numbers": "ChildProcessError: The script ended with status 1",
    "score": "ChildProcessError: The script ended with status 1",
    "nothing": "ContractBroken: Expected the script to report its predictions: a script hands over no score.",
}


@pytest.mark.usefixtures("pages")
def test_faults_are_caught_and_stay_charged(program: Program, tmp_path: Path) -> None:
    write_script(tmp_path)
    faults = f"+trainer.hyperparameters.fault=none,{','.join(CAUGHT)}"
    done = program(*SWEEP, faults, "budget.epsilon=1000")
    assert done.returncode == 4, done.stderr
    assert "0.987654321" not in done.stdout + done.stderr, "what a script prints is the curator's"
    folder = folder_of(done)
    results = results_of(folder)
    honest = results.pop("none")
    assert honest["status"] == "finished"
    assert honest["score"] is not None
    assert results.keys() == CAUGHT.keys()
    for fault, sentence in CAUGHT.items():
        assert results[fault]["status"] == "failed", fault
        assert results[fault]["score"] is None
        assert results[fault]["error"].startswith(sentence), results[fault]["error"]
        assert results[fault]["steps"] == STEPS, "all that was marked counts"
    assert "noise multiplier 0.0, and sampling rate" in results["no_noise"]["error"]
    assert charges(tmp_path) == 1
    assert left_behind(tmp_path) == []
    page = json.loads((folder / "curator" / "report.json").read_text())
    lines = {line["topic"]: line for line in page["statement"]}
    assert lines["Sampling and noise"]["level"] == "violated"
    assert "Declared by the script, not checked" in lines["Script"]["text"]
    released = program("release", str(folder), module="dpsweep.sweeper.commands.cli")
    assert released.returncode == 2
    assert "differs from its charge" in released.stderr
    again = program(*SWEEP, faults, "budget.epsilon=1000")
    assert "nothing is run or charged" not in again.stderr
    assert charges(tmp_path) == 1, "a failed run is not repeated unasked"
