"""The folder that docs/your_model.md shows runs as it stands."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import yaml

from tests.randomized import TRAINS

pytestmark = TRAINS

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "your_model"
FILES = {"my_model.py", "visits.csv", "sweep.sh"}
Program = Callable[..., CompletedProcess[str]]


def test_the_folder_of_three_files_is_a_whole_sweep(program: Program, tmp_path: Path) -> None:
    assert {path.name for path in EXAMPLE.iterdir() if path.is_file()} == FILES
    for name in FILES:
        shutil.copyfile(EXAMPLE / name, tmp_path / name)
    words = shlex.split((tmp_path / "sweep.sh").read_text().replace("\\\n", " "), comments=True)
    assert words[:2] == ["dpsweep", "sweep"]
    done = program(*words[2:])
    assert done.returncode == 0, done.stderr
    configs = [yaml.safe_load(path.read_text()) for path in (tmp_path / "sweeps").glob("*/*/trials/*/config.yaml")]
    assert sorted(config["adapter"]["rank"] for config in configs) == [1, 2, 4]
    assert {config["model"]["_target_"] for config in configs} == {"my_model.Net"}
