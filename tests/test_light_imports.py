"""Commands, plans and pages import what they need and nothing heavier."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.source_files import ROOT


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        (
            (
                "accounting.pricing.panel",
                "accounting.accountants.pld",
                "accounting.ledger.ledger",
                "accounting.records.plan",
            ),
            "torch hydra optuna seaborn",
        ),
        (
            (
                "sweeper.commands.cli",
                "sweeper.planning.plan_builder",
                "sweeper.planning.grid",
                "sweeper.coordinator.sweep_coordinator",
            ),
            "torch opacus optuna seaborn pandas",
        ),
        (
            (
                "trainers.methods.named_methods",
                "trainers.declarations.batch_sampling",
                "trainers.declarations.scores",
                "trainers.data.sets.images",
            ),
            "torch opacus hydra",
        ),
        (("sweeper.commands.cli",), "numpy scipy hydra omegaconf sqlalchemy"),
        (("sweeper.coordinator.sweep_coordinator",), "dpsweep.sweeper.audit.audit dpsweep.reports.pages.curator_page"),
        (("sweeper.timing.step_timing",), "scipy hydra pandas dpsweep.sweeper.trial.session"),
        (("sweeper.commands.budget",), "scipy hydra omegaconf"),
        (("sweeper.planning.key_explanation",), "numpy sqlalchemy dpsweep.accounting.ledger.ledger"),
    ],
)
def test_planning_stays_light(names: tuple[str, ...], heavy: str) -> None:
    assert loaded("; ".join(f"import dpsweep.{name}" for name in names), heavy) == []


def test_public_names_are_found_by_import_by_completion_and_by_type_checkers() -> None:
    import dpsweep

    libraries = ["accounting", "models"]
    assert {*dpsweep.__all__, *libraries} <= set(dir(dpsweep))
    source = (ROOT / "dpsweep" / "__init__.py").read_text()
    typed = re.findall(r"^    from \S+ import (\w+) as \1$", source, re.MULTILINE)
    assert sorted(typed) == sorted([*dpsweep.__all__, *libraries])
    assert (ROOT / "dpsweep" / "py.typed").is_file()
    program = "import dpsweep; dpsweep.accounting.price, dpsweep.models.privatise"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_price_of_the_library_needs_neither_torch_nor_hydra() -> None:
    page = (ROOT / "docs" / "library.md").read_text()
    program = "\n".join(line[4:] for line in page.splitlines() if line.startswith((">>> ", "... ")))
    quiet = f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({program!r}, {{}})"
    assert "price(" in program
    assert loaded(quiet, "torch hydra omegaconf sqlalchemy pandas optuna opacus") == []


@pytest.mark.long
def test_pages_stay_light() -> None:
    """Seaborn draws without scipy's statistics, which can be imported afterwards."""
    page = "import dpsweep.reports.pages.release"
    assert loaded(page, "torch hydra seaborn scipy.stats scipy.optimize") == ["seaborn"]
    assert loaded(f"{page}; import scipy.stats", "scipy.stats") == ["scipy.stats"]


def test_planning_any_method_stays_light() -> None:
    """Every method of conf/trainer is built, its bound and its kind are asked for, and torch stays out."""
    program = """
import yaml
from pathlib import Path
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
for path in sorted(Path("conf/trainer").glob("*.yaml")):
    node = yaml.safe_load(path.read_text())
    if node.get("_target_"):
        made = build_from_stored_form(node, "trainer")
        made.transform.norm_bound, made.update, made.noiseless
"""
    assert loaded(program, "torch opacus hydra optuna") == []


@pytest.mark.parametrize(
    ("words", "line", "heavy"),
    [
        ("--help", "", "numpy scipy hydra sqlalchemy"),
        ("-sc query=bash", "dpsweep pl", "numpy scipy hydra sqlalchemy"),
        ("-sc query=bash", "dpsweep release --for t", "numpy scipy hydra sqlalchemy"),
        ("-sc query=bash", "dpsweep plan trainer=d", "numpy scipy sqlalchemy"),
    ],
)
def test_help_and_completion_stay_light(words: str, line: str, heavy: str) -> None:
    program = f"""
import io, os, sys
from contextlib import redirect_stdout, suppress
from dpsweep.__main__ import main
sys.argv, os.environ["COMP_LINE"] = ["dpsweep", *"{words}".split()], "{line}"
with redirect_stdout(io.StringIO()), suppress(SystemExit):
    main()
"""
    assert loaded(program, heavy) == []


def test_what_hydra_loads_stays_light() -> None:
    """Hydra imports its plugins for every program that uses it."""
    assert loaded("import hydra_plugins.honest_sweeper", "torch opacus optuna seaborn sqlalchemy scipy dpsweep") == []


def loaded(program: str, heavy: str) -> list[str]:
    """Which of these packages a program has imported."""
    check = f"{program}\nimport sys\nprint(*[name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()
