"""What importing the package pulls in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("module", ["curator_page", "release", "comparison"])
def test_importing_it_pulls_no_torch_hydra_or_optuna(tmp_path: Path, module: str) -> None:
    names = "sorted({name.partition('.')[0] for name in sys.modules})"
    code = f"import sys; import dpsweep.reports.pages.{module}; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for heavy in ("torch", "opacus", "hydra", "optuna", "trainers", "sweeper"):
        assert f"'{heavy}'" not in done.stdout
