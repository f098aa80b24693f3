"""The Python API: the same plans, charges and refusals as the command line's, and only what the rule discloses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import dpsweep
from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from tests.forked_programs import Run
from tests.randomized import SEARCHES, TRAINS

NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebook.ipynb"
WORDS = ["dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=2", "accountant=rdp"]
QUICK = [*WORDS, "accountant.witnesses=[]", "page=false"]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


def test_a_plan_is_the_command_lines_and_charges_nothing(
    compose_priced: Callable[[list[str]], PricedPlan], tmp_path: Path
) -> None:
    planned, priced = dpsweep.plan(QUICK), compose_priced(QUICK)
    assert (planned.id, planned.epsilon, planned.delta) == (priced.plan.id, priced.quote.epsilon, priced.plan.delta)
    assert list(planned.points["trainer.lr"]) == [1, 2]
    assert list(tmp_path.iterdir()) == []


@TRAINS
def test_a_sweep_is_charged_once_and_its_results_are_values() -> None:
    swept = dpsweep.sweep(QUICK)
    planned = dpsweep.plan(QUICK)
    assert (swept.epsilon, swept.delta, swept.folder) == (planned.epsilon, planned.delta, planned.folder)
    assert list(swept.trials["trainer.lr"]) == [1, 2]
    assert set(swept.trials["state"]) == {"finished"}
    assert "seconds" not in swept.trials
    assert swept.best is not None
    assert swept.best["accuracy"] == max(swept.trials["accuracy"])
    figure = swept.heatmap()
    assert len(figure.axes) > 1
    assert figure._repr_png_().startswith(b"\x89PNG"), "notebooks show it as a picture"  # type: ignore[attr-defined]
    assert dpsweep.sweep(QUICK).epsilon == planned.epsilon
    assert len(Ledger(user_ledger_place()).statement("digits").charges) == 1
    with pytest.raises(BadInput, match="Expected --for sbom to be one of cyclonedx, hf, registry, tre"):
        swept.release(formats=("registry", "sbom"))
    assert not (swept.folder / "release").exists()
    page = swept.release(formats=("registry", "cyclonedx"))
    assert page.is_file()
    assert {"deployments_registry.yaml", "model.cdx.json"} < {path.name for path in page.parent.iterdir()}
    assert (page.parent / "methods.tex").read_text() == f"{swept.methods.text}\n"
    assert "@misc{dpsweep," in swept.methods.bibtex
    card = swept.export()
    assert card.parent == swept.folder / "export"
    assert (card.parent / "model.safetensors").read_bytes() == (page.parent / "model.safetensors").read_bytes()
    assert (page.parent / "model.cdx.json").is_file(), "the release keeps its documents"


@SEARCHES
def test_what_the_rule_does_not_disclose_is_refused_with_the_reason() -> None:
    swept = dpsweep.sweep([*QUICK, "tuning=private_selection"])
    with pytest.raises(BadInput, match="private_selection pays for less"):
        _ = swept.trials
    with pytest.raises(BadInput, match="the score of every run"):
        swept.heatmap()
    assert swept.best is None or {"method", "accuracy"} <= swept.best.keys()


@TRAINS
def test_a_rehearsal_is_a_function_too(capsys: pytest.CaptureFixture[str]) -> None:
    rehearsed = dpsweep.rehearse(QUICK)
    assert rehearsed.rehearsal
    assert set(rehearsed.trials["state"]) == {"finished"}
    assert any("REHEARSAL of digits" in text.get_text() for text in rehearsed.heatmap().texts)
    assert "this was a REHEARSAL" in capsys.readouterr().out
    assert Ledger(user_ledger_place()).account_names() == ()
    assert not dpsweep.sweep(QUICK).rehearsal


def test_a_seed_voids_the_bound() -> None:
    swept = dpsweep.sweep([*QUICK, "seed=1"])
    assert swept.epsilon == math.inf
    with pytest.raises(BadInput, match="Expected a private sweep to release"):
        swept.release()
    with pytest.raises(BadInput, match="it claims nothing"):
        _ = swept.methods


@TRAINS
def test_of_a_run_without_a_score_no_reason_is_shown() -> None:
    folder = dpsweep.sweep(QUICK).folder
    result = next(folder.glob("trials/*/result.json"))
    result.unlink()
    assert set(dpsweep.results(folder).trials["state"]) == {"finished", "no result"}


def test_wrong_words_and_empty_accounts_raise_before_any_charge() -> None:
    with pytest.raises(BadInput, match="in dpsweep's words: steps="):
        dpsweep.plan(["epochs=3"])
    with pytest.raises(BadInput, match="Did you mean dataset=digits"):
        dpsweep.sweep(["dataset=digitz"])
    with pytest.raises(BudgetRefused):
        dpsweep.sweep([*QUICK, "privacy.epsilon=4", "budget.epsilon=1"])
    assert Ledger(user_ledger_place()).statement("digits").charges == ()
    with pytest.raises(BadInput, match="Expected again='no' to be True or False"):
        dpsweep.sweep(QUICK, again="no")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"plan\.json"):
        dpsweep.results("nowhere")


def test_a_table_from_elsewhere_becomes_a_map() -> None:
    table = pd.DataFrame({"lr": [0.1, 0.1, 1, 1], "clip": [1, 2, 1, 2], "f1": [0.5, 0.6, None, 0.9], "f1_low": 0.4})
    figure = dpsweep.heatmap(table, ["lr", "clip"], score="f1")
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"50.0", "60.0", "90.0", "diverged"} <= texts
    with pytest.raises(BadInput, match="Expected columns nothing"):
        dpsweep.heatmap(table, ["nothing"])
    with pytest.raises(BadInput, match="share of one"):
        dpsweep.heatmap(table.assign(f1=60), ["lr"], score="f1")


@pytest.mark.long
@TRAINS
def test_the_notebook_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    program = "\n\n".join("".join(cell["source"]) for cell in cells)
    (tmp_path / "notebook.py").write_text(program)
    done = Run((), tmp_path, environment, module="notebook").wait()
    assert done.code == 0, done.err
    assert len(list(tmp_path.glob("sweeps/digits/*/release/report.html"))) == 1
