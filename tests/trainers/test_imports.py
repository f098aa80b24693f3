"""Declarations are planned without torch, and only one file opens opacus' door."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from dpsweep import trainers

ROOT = Path(trainers.__file__).parent
ROOMS = ("declarations", "methods")
ALONE = ("randomness",)
DECLARATIONS = sorted(
    {
        f"dpsweep.trainers.{room.replace('/', '.')}.{path.stem}"
        for room in ROOMS
        for path in (ROOT / room).glob("[a-z]*.py")
    }
    | {f"dpsweep.trainers.{name}" for name in ALONE}
)
"""All modules that planning may import."""

HEAVY = ("torch", "opacus", "hydra", "optuna", "dpsweep.sweeper", "dpsweep.reports")


def test_declarations_import_nothing_heavy() -> None:
    imports = "; ".join(f"import {name}" for name in DECLARATIONS)
    uses = (
        "dpsweep.trainers.declarations.batch_sampling.Poisson(batch_size=5)"
        ".event_per_period(records=50, noise_multiplier=1.0);"
        "dpsweep.trainers.declarations.scores.PrivateHoldout(fraction=0.2, noise_std=3).event('replace_one');"
        "dpsweep.trainers.methods.named_methods.DpAdam(lr=1, clip_norm=1).transform.norm_bound;"
        "dpsweep.trainers.randomness.secret_streams()"
    )
    check = f"import sys; {imports}; {uses}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_only_the_engine_imports_opacus() -> None:
    doors = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if "opacus" in imported(path)]
    assert doors == ["engines/opacus.py"]


SEEDS_AND_PUTS_BACK = {"weights.py"}
"""Where a user's constructor runs, which may draw from global generators."""


def test_no_other_file_touches_a_global_generator() -> None:
    forbidden = (
        "manual_seed_all",
        "torch.manual_seed",
        "np.random.seed",
        "numpy.random.seed",
        "import random",
    )
    texts = {path.name: path.read_text() for path in ROOT.rglob("*.py") if path.name not in SEEDS_AND_PUTS_BACK}
    assert not [(name, word) for name, text in texts.items() for word in forbidden if word in text]
