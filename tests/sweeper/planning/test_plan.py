"""`dpsweep plan`: the price list, and nothing charged."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.records.plan import Plan
from tests.forked_programs import Run
from tests.sweeper.search_programs import Compose

Program = Callable[..., subprocess.CompletedProcess[str]]
LIGHT = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "steps=20"]


def row(output: str, rule: str) -> list[str]:
    """The cells of a rule's row of the price list."""
    line = next(line for line in output.splitlines() if line.split()[:1] == [rule])
    return [cell for cell in line.split() if cell not in (">*", ">", "*", "-")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("plan")
    environment = os.environ | {"DPSWEEP_LEDGER": str(folder / "ledger.sqlite"), "COLUMNS": "120"}
    words = ("plan", *LIGHT, "budget.epsilon=5", "privacy.epsilon=6", "fit=true")
    done = Run(words, folder, environment).wait()
    return subprocess.CompletedProcess(words, done.code, done.out, done.err), folder


def test_the_list_has_a_row_for_every_rule_that_runs(planned: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = planned
    assert done.returncode == 0, done.stderr
    for rule in ("composition", "random_stopping", "private_selection", "poisson_selection"):
        assert float(row(done.stdout, rule)[3]) > 0
    assert row(done.stdout, "composition")[2] == "100%"
    assert "composition >*" in done.stdout
    assert "subsampled" not in done.stdout.replace("=", " ").split(), "its runs would be others"


def test_what_does_not_fit_is_said_with_what_would(planned: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = planned
    assert "no" in row(done.stdout, "composition")
    assert "yes" in row(done.stdout, "private_selection")
    said = " ".join(done.stdout.split())
    assert "What would fit: 1" in said
    assert "the whole grid with a noise multiplier of at least" in said
    assert "tuning=private_selection at epsilon" in said
    assert "IT DOES NOT FIT" in said


def test_the_noise_that_a_rule_needs_fits(
    planned: tuple[subprocess.CompletedProcess[str], Path], compose_priced: Callable[..., object]
) -> None:
    done, _ = planned
    needs, alone = row(done.stdout, "composition")[-2:]
    priced = compose_priced([*LIGHT, f"privacy.noise_multiplier={needs}"])
    assert 4.95 < priced.quote.epsilon <= 5  # type: ignore[attr-defined]
    assert float(alone) == pytest.approx(priced.single_run.parts["training"], abs=1e-3)  # type: ignore[attr-defined]


def test_nothing_is_written_but_the_plan_and_the_time_of_a_step(
    planned: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, folder = planned
    files = {path.name: path for path in folder.rglob("*") if path.is_file()}
    assert files.keys() == {"plan.json", "speeds.json", "speeds.json.lock"}
    assert Plan.read(files["plan.json"]).id == json.loads(files["plan.json"].read_text())["id"]


def test_what_would_not_be_run_as_priced_is_refused(program: Program, tmp_path: Path) -> None:
    metric = (*LIGHT, "score.metric=balanced_accuracy")
    shown = "tuning.rule={_target_: dpsweep.accounting.selection.rules.Composition}"
    for line, sentence in (
        ((*metric, "tuning=noisy_max"), "Expected score.metric=balanced_accuracy to be accuracy under noisy_max"),
        ((*LIGHT, "tuning=noisy_max", "final=true"), "pays for no score that is shown"),
        ((*LIGHT, "tuning=subsampled", shown), "Composition has no such field"),
    ):
        for verb in ("plan", "sweep"):
            refused = program(verb, *line, module="dpsweep.sweeper.commands.cli")
            assert refused.returncode == 2, refused.stdout
            assert sentence in refused.stderr
    assert not (tmp_path / "ledger.sqlite").exists()
    assert not (tmp_path / "sweeps").exists()


def test_a_plan_that_cannot_be_stored_is_still_told_and_is_one_sentence(program: Program, tmp_path: Path) -> None:
    (tmp_path / "sweeps").write_text("not a folder")
    done = program("plan", *LIGHT, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 6
    assert "the whole search" in done.stdout
    assert f"A file cannot be written or read: {tmp_path}/sweeps/digits: Not a directory." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_alone_is_not_priced_by_a_count_that_is_never_told(compose_priced: Compose) -> None:
    line = (*LIGHT, "steps=20", "privacy.noise_multiplier=3")
    composed, compared = (compose_priced([*line, f"tuning={rule}"]) for rule in ("composition", "noisy_max"))
    assert compared.single_run.parts["training"] == composed.single_run.parts["training"]
    assert compared.single_run.parts["validation"] == pytest.approx(0.5, abs=1e-3)
