"""A sweep of version 0.1.0 as it lay on the disk: whoever changes a form keeps its pages, or raises a schema.

`frozen/` is `dpsweep sweep dataset=digits trainer=dpsgd trainer.clip_norm=1 trainer.lr=1,2 steps=5 privacy.epsilon=2`.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.folder_audit import verify_folder
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release

FROZEN = Path(__file__).parent.parent / "frozen"
BEST = "b9bb2f020d68"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is on a machine of its own, since the ledger goes another way in each."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as made:
        made.executescript((FROZEN / "ledger.sql").read_text())
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FROZEN, tmp_path / "sweep"))


def test_an_old_sweep_still_renders_and_still_verifies(folder: Path, ledger: Ledger) -> None:
    page = write_report(folder, ledger)
    told = json.loads((page.parent / "report.json").read_text())
    (charge,) = ledger.statement("digits").charges
    assert told["facts"]["honest_epsilon"]["value"] == charge.body["epsilon"]
    result = TrialResult.read(FROZEN / "trials" / BEST)
    assert result is not None
    assert result.score is not None
    assert f"{100 * result.score['value']:.1f} %" in page.read_text()
    assert "2 of 2 results are there, all paid" in verify_folder(folder, ledger)
    assert write_release(folder, ledger).is_file()


def test_a_form_of_another_version_is_refused_by_its_name(folder: Path, ledger: Ledger) -> None:
    path = folder / "trials" / BEST / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 0}))
    with pytest.raises(BadInput, match=r"Expected schema in .*result.json=0 to be 1"):
        write_report(folder, ledger)
