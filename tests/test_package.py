"""What is installed: one import package, beside whatever folders a user has."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("accounting", "conf", "reports", "sweeper", "trainers")
NET = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
PLAN = (
    "dataset=digits",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "trainer.lr=1",
    "steps=3",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "privacy.noise_multiplier=3",
    "score.noise_std=30",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own folder, whose modules have our folders' names and must not be imported."""
    for name in OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a folder of the user was imported')")
    (tmp_path / "my_model.py").write_text(NET)
    return tmp_path


@pytest.mark.parametrize(
    "program", [(sys.executable, "-m", "dpsweep"), (str(Path(sys.executable).parent / "dpsweep"),)]
)
def test_folders_of_the_users_own_stand_beside_ours(folder: Path, program: tuple[str, ...]) -> None:
    environment = os.environ | {"DPSWEEP_LEDGER": str(folder / "ledger.sqlite")}
    line = [*program, "plan", *PLAN, "model={_target_:my_model.net}"]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_to_the_folders_beside_them() -> None:
    assert {path.name for path in (ROOT / "dpsweep").iterdir() if path.is_symlink()} == set(OURS)
    assert all((ROOT / "dpsweep" / name).resolve() == ROOT / name for name in OURS)


@pytest.mark.long
def test_a_wheel_holds_one_package_and_hydras_plugins(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="needs pip install hatchling editables")
    line = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, "-m", *line], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"dpsweep", "hydra_plugins"}
    for name in ("accounting/ledger/ledger.py", "conf/config.yaml", "reports/templates/report.html.j2"):
        assert f"dpsweep/{name}" in names
