"""docs/your_trainer.md: its three scripts run as they stand, by the program, and what the page promises of a folder."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpsweep.trainers.scripts.attempt import Attempt
from tests.conftest import Program
from tests.console import follow
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import LIGHT, folder_of

pytestmark = TRAINS
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "your_trainer.md").read_text()
SCRIPTS = {"opacus_train": "opacus", "jax_train": "jax_privacy", "hugging_face_train": "accelerate"}

BY_FILES = '''
"""A program that reads and writes files alone: no training, so that its report is what matters."""
import json, os, sys
from pathlib import Path
import numpy as np

given = Path(os.environ["DPSWEEP_ATTEMPT"])
form = json.loads(given.read_text())
with np.load(given.with_name("train.npz")) as train, np.load(given.with_name("score.npz")) as score:
    assert len(train["features"]) == len(train["labels"])
    np.save(given.with_name("predictions.npy"), np.zeros(len(score["features"]), dtype=np.int64))
(given.parent / "files" / "model.bin").write_bytes(b"weights")
given.with_name("report.json").write_text(json.dumps({"name": form["name"], "event": form["event"]}))
'''


def test_the_page_shows_a_script_of_the_folder_and_names_all() -> None:
    shown = re.findall(r"<!-- script: (\S+) -->\n```python\n(.*?)```\n<!-- end of script -->", PAGE, re.DOTALL)
    assert [(name, (DOCS / name).read_text()) for name, _ in shown] == shown
    assert {path.stem for path in (DOCS / "your_trainer").glob("*.py")} == {*SCRIPTS}
    assert all(f"your_trainer/{name}.py" in PAGE for name in SCRIPTS)


@pytest.mark.long
def test_an_optimizer_of_ones_own_is_two_files_in_a_folder_of_ones_own(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    section = PAGE.partition("## An optimizer of your own")[2].partition("\n## ")[0]
    files = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', section, re.MULTILINE | re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert {*files} == {"nesterov.py", "trainer/nesterov.yaml"}
    assert follow(section, tmp_path, environment) == []
    (folder,) = (tmp_path / "sweeps" / "digits").glob("*/trials")
    assert len([*folder.glob("*/result.json")]) == 10


def test_the_page_names_what_an_attempt_has() -> None:
    named = set(re.findall(r"`a\.(\w+)", PAGE))
    assert named == {name for name in dir(Attempt) if not name.startswith("_")} - {"should_stop", "folder"} | {"given"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [*list(SCRIPTS)[:1], *(pytest.param(name, marks=pytest.mark.long) for name in list(SCRIPTS)[1:])]
)
def test_every_script_of_the_folder_trains(name: str, program: Program, tmp_path: Path) -> None:
    if find_spec(SCRIPTS[name]) is None:
        pytest.skip(f"needs {SCRIPTS[name]}")
    shutil.copy(DOCS / "your_trainer" / f"{name}.py", tmp_path / "train.py")
    words = (
        "dataset=digits",
        "trainer=script",
        "script=train.py",
        "trainer.lr=2",
        "steps=12",
        "sampler.batch_size=300",
    )
    done = program(*words, "privacy.noise_multiplier=0.5", "score.noise_std=2", "budget.epsilon=1000", *LIGHT)
    assert done.returncode == 0, done.stderr
    ((result, path),) = [(json.loads(path.read_text()), path) for path in folder_of(done).glob("trials/*/result.json")]
    assert result["status"] == "finished"
    assert result["score"] is not None
    assert (path.parent / "files.zip").exists() == (name != "hugging_face_train")


def test_a_program_that_only_reads_and_writes_files_is_a_script_too(program: Program, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BY_FILES)
    words = (
        "dataset=digits",
        "trainer=script",
        "script=train.py",
        "trainer.lr=2",
        "steps=3",
        "budget.epsilon=1000",
        *LIGHT,
    )
    done = program(*words)
    assert done.returncode == 0, done.stderr
    (result,) = [json.loads(path.read_text()) for path in folder_of(done).glob("trials/*/result.json")]
    assert result["status"] == "finished"
    for written, planted, sentence in PLANTED:
        (tmp_path / "train.py").write_text(BY_FILES.replace(written, planted))
        done = program(*words)
        (result,) = [json.loads(path.read_text()) for path in folder_of(done).glob("trials/*/result.json")]
        assert sentence in result["error"]


PLANTED = (
    ("dtype=np.int64", "dtype=np.complex128", "Expected predictions=complex128 "),
    ('"event": form["event"]', '"event": {"version": 1}', "Expected the script's report.json to name an event"),
    ('"event": form["event"]', '"event": 3', "Expected the script's report.json to hold a name and an event."),
)
"""What such a program writes, something else in its place, and what the run says of it."""
