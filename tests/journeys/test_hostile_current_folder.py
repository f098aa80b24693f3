"""A command that is started in somebody else's folder runs no file of it, whatever the files are called.

The folder holds a file for each module that Python or a library looks for in vain, as the standard library's copy looks
for `org`; for modules that exist; and what Python, Hydra and matplotlib read from a current folder. Each file tells
that it ran. The program starts in an interpreter of its own, as a user starts it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.hostile import forge
from tests.randomized import TRAINS
from tests.waiting import HANGS

pytestmark = TRAINS

FROZEN = Path(__file__).parents[1] / "frozen" / "format_1"
BIN = Path(sys.executable).parent
SWEEP = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=2", "privacy.epsilon=2")
LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "compute.device=cpu")
GRID = (*SWEEP, *LIGHT, "hydra.sweep.dir=out")
OWN = ("model._target_=my_model.net", "+model.width=3")

WAYS = {
    "script": [str(BIN / "dpsweep")],
    "module": [sys.executable, "-m", "dpsweep"],
    "safe_module": [sys.executable, "-P", "-m", "dpsweep"],
}
"""The ways to start the program."""

LOOKED_FOR = (
    *("_winapi", "bottleneck", "cuda", "cython", "dill", "envwrap", "ipywidgets", "lxml", "monkeytype", "msvcrt", "nt"),
    *("numexpr", "org", "pydot", "pynvml", "pytz", "redis", "statsmodels", "torchcomms", "uarray", "uharfbuzz"),
    *("unicodedata2", "sitecustomize", "usercustomize", "conftest", "evil_backend", "evil_from_pth"),
)
"""Modules that commands have looked for in vain; `test_no_verb_runs_a_file_of_the_current_folder` looks for more."""

EXISTING = ("json", "copy", "typing", "torch", "hydra", "dpsweep", "sweeper", "accounting")
"""Modules that exist. `python -m dpsweep` alone would find them here: Python imports some before dpsweep begins."""

DRIVER = """
import os, sys

class Looked:
    def find_spec(self, name, path=None, target=None):
        if path is None:
            with open(os.environ["LOOKED_FOR"], "a") as file:
                print(name, file=file)

sys.meta_path.append(Looked())
from dpsweep.__main__ import main
main()
"""

NET = """
from math import prod
from torch import nn
import my_layers

def net(shape, classes, width):
    from my_package.late import Late
    return nn.Sequential(nn.Flatten(), my_layers.Wide(prod(shape), width), Late(), nn.Linear(width, classes))
"""
LAYERS = "from torch import nn\n\nclass Wide(nn.Linear):\n    pass\n"
LATE = """
from torch import nn

class Late(nn.Module):
    def forward(self, rows):
        import my_latest
        return my_latest.bounded(rows)
"""
LATEST = "import torch\n\ndef bounded(rows):\n    return torch.tanh(rows)\n"


class HostileFolder:
    """A folder from somebody else, and what ran of it."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self._ran, self._looked_for = root.parent / "ran", root.parent / "looked_for"
        self._environment = environment | {"LOOKED_FOR": str(self._looked_for)}
        root.mkdir()
        self.add_modules(LOOKED_FOR)
        alarm = self._alarm()
        for name in ("hydra_plugins/evil.py", "hydra_plugins/hydra_evil/__init__.py", "conf/evil.py"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(alarm)
        (root / "evil.pth").write_text("import evil_from_pth\n")
        (root / "matplotlibrc").write_text("backend: module://evil_backend\n")
        callbacks = "hydra:\n  callbacks:\n    evil:\n      _target_: evil_backend.Callback\n"
        for name in ("config.yaml", "hydra/config.yaml", "dataset/digits.yaml"):
            (root / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "conf" / name).write_text(callbacks)

    def _alarm(self) -> str:
        return f"with open({str(self._ran)!r}, 'a') as _file:\n    print(__file__, file=_file)\n"

    def add_modules(self, names: Iterable[str]) -> None:
        """Adds a file for each of these names that has none yet."""
        for name in names:
            if not (self.root / f"{name}.py").exists():
                (self.root / f"{name}.py").write_text(self._alarm())

    def run(self, start: Iterable[str], *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*start, *words],
            capture_output=True,
            text=True,
            cwd=self.root,
            env=self._environment,
            timeout=HANGS,
            check=False,
        )

    def what_ran(self) -> list[str]:
        return self._ran.read_text().splitlines() if self._ran.exists() else []

    def traced(self, *words: str) -> set[str]:
        """The modules that this command looks for in vain."""
        self._looked_for.unlink(missing_ok=True)
        done = self.run([sys.executable, "-P", "-c", DRIVER], *words)
        assert done.returncode == 0, done.stderr
        return {name for name in self._looked_for.read_text().split() if "." not in name}


@pytest.fixture
def hostile(tmp_path: Path, environment: dict[str, str]) -> Iterator[HostileFolder]:
    kept = {name: value for name, value in environment.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}  # Ray leaves a token at home
    folder = HostileFolder(tmp_path / "from_somebody", kept | state)
    yield folder
    assert folder.what_ran() == []


def write_own_model(folder: Path) -> None:
    """A model that imports modules beside it: at its top, when it is built, and when it is called."""
    (folder / "my_package").mkdir()
    for name, text in {
        **{"my_model.py": NET, "my_layers.py": LAYERS, "my_latest.py": LATEST},
        **{"my_package/__init__.py": "", "my_package/late.py": LATE},
    }.items():
        (folder / name).write_text(text)


def test_a_file_of_the_folder_tells_when_it_runs(hostile: HostileFolder) -> None:
    """Otherwise no test here could fail."""
    done = hostile.run([sys.executable, "-c"], "import copy")
    assert done.returncode == 0, done.stderr
    assert hostile.what_ran() == [str(hostile.root / "org.py")]
    hostile._ran.unlink()


@pytest.mark.parametrize("way", WAYS)
def test_verify_runs_nothing_of_the_folder(way: str, hostile: HostileFolder, tmp_path: Path) -> None:
    shutil.copytree(FROZEN / "composition", hostile.root, dirs_exist_ok=True)
    forge(tmp_path / "ledger.sqlite", (FROZEN / "ledger.sql").read_text(), {})
    hostile.add_modules(hostile.traced("verify", "."))
    if way != "module":
        hostile.add_modules(EXISTING)
    done = hostile.run(WAYS[way], "verify", ".")
    assert done.returncode == 0, done.stderr
    assert "what was charged" in done.stdout


def test_a_model_trains_with_the_modules_beside_it_and_no_others(hostile: HostileFolder) -> None:
    """The plan's steps are timed in a process of its own, and jobs are forked."""
    write_own_model(hostile.root)
    hostile.add_modules(EXISTING)
    trains(hostile, "fork")


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local", "ray"])
def test_a_model_trains_so_under_every_launcher(launcher: str, hostile: HostileFolder) -> None:
    needed = {
        "joblib": "hydra_plugins.hydra_joblib_launcher",
        "submitit_local": "hydra_plugins.hydra_submitit_launcher",
        "ray": "ray",
    }
    if launcher in needed:
        pytest.importorskip(needed[launcher])
    write_own_model(hostile.root)
    hostile.add_modules(EXISTING)
    trains(hostile, launcher)


def trains(hostile: HostileFolder, launcher: str, *more: str) -> None:
    done = hostile.run(WAYS["script"], "sweep", *GRID, *OWN, f"hydra/launcher={launcher}", "page=false", *more)
    assert done.returncode == 0, done.stderr
    found = [json.loads(path.read_text()) for path in hostile.root.glob("out/trials/*/result.json")]
    assert [result["status"] for result in found] == ["finished"] * 2


@pytest.mark.long
@pytest.mark.parametrize("way", ["script", "module"])
def test_no_verb_runs_a_file_of_the_current_folder(way: str, hostile: HostileFolder) -> None:
    write_own_model(hostile.root)
    commands = [
        *(("plan", *GRID, *OWN), ("sweep", *GRID, *OWN), ("verify", "out"), ("report", "out")),
        *(("release", "out", "--for", "registry,hf,cyclonedx,tre"), ("export", "out"), ("budget",)),
        ("rehearse", *SWEEP, *LIGHT, "hydra.sweep.dir=rehearsed"),
        ("audit", *SWEEP, *LIGHT, "hydra.sweep.dir=audited"),
        ("advise", "dataset=digits", "trainer=dpsgd", "privacy.epsilon=2"),
        *(("help",), ("help", "trainer.lr"), ("--help",)),
    ]
    for command in commands:
        hostile.add_modules(hostile.traced(*command))
    for made in ("out", "rehearsed", "audited"):
        shutil.rmtree(hostile.root / made, ignore_errors=True)
    if way != "module":
        hostile.add_modules(EXISTING)
    for command in commands:
        words = [word.replace("privacy.epsilon=2", "privacy.epsilon=1.9") for word in command]  # another plan
        done = hostile.run(WAYS[way], *words)
        assert done.returncode == 0, (command, done.stderr)
        assert hostile.what_ran() == [], command
