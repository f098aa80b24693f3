"""Results are read from files: what a process keeps of a file belongs to its content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult


def result(value: float) -> TrialResult:
    return TrialResult(
        trial="t",
        attempt=1,
        status=Status.FINISHED,
        score={"value": value, "low": 0.0, "high": 1.0},
        event=None,
        steps=1,
        seconds=0.5,
        device="cpu",
        randomness="secret",
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:01+00:00",
    )


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    assert TrialResult.read(tmp_path) is None
    for value in (0.25, 0.5, 0.25):
        written = result(value)
        written.write(tmp_path)
        assert TrialResult.read(tmp_path) == TrialResult.read(tmp_path) == written
    form = json.loads((tmp_path / RESULT_FILE).read_text())
    (tmp_path / RESULT_FILE).write_text(json.dumps(form | {"attempt": 2}))
    edited = TrialResult.read(tmp_path)
    assert edited is not None
    assert edited.attempt == 2
    (tmp_path / RESULT_FILE).unlink()
    assert TrialResult.read(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[", "[]", '{"format": 7}', '{"format": 1, "status": "finished"}'])
def test_the_same_damage_is_said_of_each_file(tmp_path: Path, content: str) -> None:
    for name in ("one", "two", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / RESULT_FILE).write_text(content)
        with pytest.raises(BadInput, match=f"/{name}/"):
            TrialResult.read(tmp_path / name)
