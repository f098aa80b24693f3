"""What is installed: one import package, beside whatever folders a user has."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = ("accounting", "conf", "reports", "sweeper", "trainers")
TABLES = tuple(f"trainers/data/embedded/{name}" for name in ("digits.csv.gz", "mnist_5k.csv.gz", "LICENSES.txt"))
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


@pytest.mark.long
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


def imports(folder: Path) -> set[str]:
    """The top-level packages that the modules of a folder import, wherever in a module."""
    nodes = [node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | froms}


def test_every_dependency_is_imported() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[<>=]", line)[0] for line in declared}
    used = set().union(*(imports(ROOT / folder) for folder in OURS))
    providers = packages_distributions()
    imported = {canonicalize_name(name) for package in used for name in providers.get(package, ())}
    assert names - imported == set()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source and the wheel, as they would be published."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel; what the wheel depends on is taken from this environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (wheel,) = built.glob("*.whl")
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


@pytest.mark.long
def test_a_wheel_holds_one_package_and_hydras_plugins(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"dpsweep", "hydra_plugins"}
    for name in ("accounting/ledger/ledger.py", "conf/config.yaml", "reports/templates/report.html.j2", *TABLES):
        assert f"dpsweep/{name}" in names


@pytest.mark.long
def test_the_papers_figures_stay_in_the_checkout(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = [*zipfile.ZipFile(wheel).namelist(), *(name.partition("/")[2] for name in archive.getnames())]
    assert "dpsweep/conf/config.yaml" in names
    parts = ("conf/experiment", "reports/reproduction/", "reproduction.html")
    assert [name for name in names if any(part in name for part in parts)] == []


def test_nothing_of_the_product_imports_the_papers_figures() -> None:
    """They are missing where the package is installed."""
    folder = ROOT / "reports" / "reproduction"
    for path in (path for name in OURS for path in (ROOT / name).rglob("*.py") if folder not in path.parents):
        assert "import dpsweep.reports.reproduction" not in path.read_text(), path
        assert "from dpsweep.reports.reproduction" not in path.read_text(), path


def test_without_the_folder_a_figure_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "reports" / "reproduction.py"), run_name="__main__")
    assert left.value.code == 2
    assert "are in a checkout of dpsweep's source" in capsys.readouterr().err


@pytest.mark.long
def test_the_index_would_take_both_and_show_the_readme_with_absolute_links(built: Path) -> None:
    files = sorted(built.iterdir())
    assert [path.name.removesuffix(".whl").removesuffix(".tar.gz") for path in files] == [
        f"dpsweep-{VERSION}-py3-none-any",
        f"dpsweep-{VERSION}",
    ]
    line = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    with zipfile.ZipFile(files[0]) as wheel:
        shown = wheel.read(f"dpsweep-{VERSION}.dist-info/METADATA").decode()
    targets, written = (re.findall(r"\]\(([^)]+)\)", text) for text in (shown, (ROOT / "README.md").read_text()))
    assert len(targets) == len(written) > 0
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.mark.long
def test_an_installed_wheel_is_used_from_another_folder(installed: Path, folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"DPSWEEP_LEDGER": str(folder / "ledger.sqlite")}

    def run(*line: str) -> str:
        done = subprocess.run([str(installed), *line], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    home = installed.parent.parent
    assert str(home) in run("-c", "import dpsweep.accounting; print(dpsweep.accounting.__file__)")
    plugin = "from hydra.core.plugins import Plugins; import hydra_plugins.honest_sweeper as found; Plugins.instance()"
    assert str(home) in run("-c", f"{plugin}; print(found.__file__)")
    price = run("-c", f"import dpsweep; print(dpsweep.plan({[*PLAN]!r}).epsilon)")
    assert float(price) > 0
    assert "usage: dpsweep" in run("-m", "dpsweep", "--help")
    assert "Plan " in run("-m", "dpsweep", "plan", *PLAN)
    assert (home / "bin" / "dpsweep").is_file()
    for line in (
        ("-m", "dpsweep", "plan", "experiment=a_fig3"),
        ("-m", "dpsweep", "sweep", "experiment=a_fig3", "scale=smoke"),
        ("-m", "dpsweep.reports.reproduction", "b_fig9"),
    ):
        refused = subprocess.run([installed, *line], cwd=folder, env=environment, capture_output=True, text=True)
        assert refused.returncode == 2
        assert "are in a checkout of dpsweep's source and not in the installed package" in refused.stderr
        assert "Traceback" not in refused.stderr
    (folder / "experiment").mkdir()
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 1\n")
    assert "Plan " in run("-m", "dpsweep", "plan", "--config-dir", str(folder), "experiment=mine", *PLAN)
