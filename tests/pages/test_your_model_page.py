"""The folders that docs/your_model.md shows run as they stand."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from dpsweep.accounting.records.plan import Plan
from tests.randomized import TRAINS

pytestmark = TRAINS

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FILES = {
    "your_model": {"my_model.py", "visits.csv", "sweep.sh"},
    "your_language_model": {"tiny_gpt2.py", "notes.csv", "sweep.sh"},
}
Program = Callable[..., CompletedProcess[str]]


def copied(example: str, folder: Path) -> list[list[str]]:
    """The words of each command of the folder's script, whose files are copied."""
    assert {path.name for path in (EXAMPLES / example).iterdir() if path.is_file()} == FILES[example]
    for name in FILES[example]:
        shutil.copyfile(EXAMPLES / example / name, folder / name)
    script = (folder / "sweep.sh").read_text().replace("\\\n", " ").replace("$PWD", str(folder))
    return [words for line in script.splitlines() if (words := shlex.split(line, comments=True))]


def configs(folder: Path) -> list[Mapping[str, Any]]:
    plans = [Plan.read(path) for path in (folder / "sweeps").glob("*/*/plan.json")]
    return [trial.config for plan in plans for trial in plan.trials]


def test_the_folder_of_three_files_is_a_whole_sweep(program: Program, tmp_path: Path) -> None:
    (words,) = copied("your_model", tmp_path)
    assert words[:2] == ["dpsweep", "sweep"]
    done = program(*words[2:])
    assert done.returncode == 0, done.stderr
    assert sorted(config["adapter"]["rank"] for config in configs(tmp_path)) == [1, 2, 4]
    assert {config["model"]["_target_"] for config in configs(tmp_path)} == {"my_model.Net"}


@pytest.mark.long
def test_the_folder_of_a_language_model_is_a_whole_sweep(program: Program, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    makes, words = copied("your_language_model", tmp_path)
    assert makes[0] == "python"
    subprocess.run([sys.executable, *makes[1:]], cwd=tmp_path, check=True, capture_output=True)
    assert words[:2] == ["dpsweep", "sweep"]
    done = program(*words[2:])
    assert done.returncode == 0, done.stderr
    assert sorted(config["adapter"]["rank"] for config in configs(tmp_path)) == [2, 8]
    assert {config["loss"]["kind"] for config in configs(tmp_path)} == {"next_token"}
