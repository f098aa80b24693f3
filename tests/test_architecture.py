"""Arrows point one way, and every foreign library has its own door."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.source_files import PACKAGES, ROOT, imports, modules

MAY_IMPORT = {
    "accounting": {"accounting"},
    "trainers": {"trainers", "accounting"},
    "reports": {"reports", "accounting"},
    "sweeper": set(PACKAGES),
}
ROOMS = (
    "accounting/errors",
    "accounting/missing_rights",
    "accounting/durable_files",
    "accounting/printing",
    "accounting/files",
    "accounting/codec",
    "accounting/stored_names",
    "accounting/guarantee",
    "accounting/notation",
    "accounting/meaning",
    "accounting/cautions",
    "accounting/events",
    "accounting/profiles",
    "accounting/accountants",
    "accounting/audit",
    "accounting/upper_bounds",
    "accounting/lower_bounds",
    "accounting/selection",
    "accounting/rule_words",
    "accounting/chain",
    "accounting/ledger",
    "accounting/records",
    "accounting/searches",
    "accounting/rehearsal",
    "accounting/pricing",
    "trainers/randomness",
    "trainers/user_modules",
    "trainers/data",
    "trainers/data/sets",
    "trainers/declarations",
    "trainers/methods",
    "trainers/models",
    "trainers/features",
    "trainers/engines",
    "trainers/training",
    "trainers/auditing",
    "trainers/scripts",
    "reports/statistics",
    "reports/content",
    "reports/advice",
    "reports/figures",
    "reports/exhibits",
    "reports/statement",
    "reports/recomputation",
    "reports/pages",
    "reports/disclosure",
    "sweeper/terminal",
    "sweeper/processes",
    "sweeper/trial",
    "sweeper/job",
    "sweeper/launchers",
    "sweeper/timing",
    "sweeper/planning",
    "sweeper/searches",
    "sweeper/loggers",
    "sweeper/progress",
    "sweeper/coordinator",
    "sweeper/audit",
    "sweeper/commands",
    "reports/reproduction",
    "reports/reproduction/figures",
    "sweeper/__main__",
    "sweeper/plugin/hydra_plugins",
)
"""Folders of modules, and modules that lie directly in a package: each imports only what stands before it."""

TWICE = {
    "Constant": "a clip norm's schedule and a learning rate's",
    "Poisson": "the law of the number of tries and the sampler, both the field's word",
}
"""Class names that stand in two files, and why."""

DOORS = {
    "opacus": {"trainers/engines/opacus.py"},
    "prv_accountant": {"accounting/accountants/prv.py"},
    "dp_accounting": set(),
    "optuna": {
        "sweeper/coordinator/study.py",
        "sweeper/coordinator/study_journal.py",
        "sweeper/planning/optuna_samplers.py",
    },
    "transformers": {"trainers/models/hugging_face.py"},
    "tokenizers": {"trainers/data/vocabularies.py"},
    "efficientnet_lite_pytorch": {"trainers/features/efficientnet_lite0.py"},
    "seaborn": {"reports/figures/heatmap.py"},
    "pyarrow": {"trainers/data/table_files.py", "trainers/data/typed_columns.py"},
    "tensorboard": {"sweeper/loggers/libraries.py"},
    "mlflow": {"sweeper/loggers/libraries.py"},
    "wandb": {"sweeper/loggers/libraries.py"},
    "PIL": {"trainers/data/pictures.py"},
    "pooch": {"trainers/data/official_files.py"},
    "sqlalchemy": {"accounting/chain/postgres_server.py"},
}
HYDRAS_DOOR = {
    "sweeper/commands/budget.py": "composes the configuration of an account",
    "sweeper/commands/hydra_app.py": "refuses Hydra's other ways to run a job",
    "sweeper/commands/hydra_internals.py": "starts Hydra, composes, and alone imports from inside it",
    "sweeper/commands/one_sentence.py": "knows Hydra's exceptions",
    "sweeper/commands/python_api.py": "composes a request without a command line",
    "sweeper/commands/readable_files.py": "names a configuration file that Hydra cannot read",
    "sweeper/coordinator/guards.py": "knows Hydra's exceptions",
    "sweeper/coordinator/request.py": "makes a typed request of a configuration",
    "sweeper/job/block_job.py": "is the task that Hydra runs",
    "sweeper/launchers/fork_launcher.py": "is a launcher of Hydra's",
    "sweeper/launchers/hydra_jobs.py": "keeps what Hydra needs to launch jobs",
    "sweeper/launchers/ray_jobs.py": "keeps what Hydra and Ray need to run jobs",
    "sweeper/planning/grid.py": "composes the points of a grid",
    "sweeper/planning/resolution.py": "resolves the points of a grid",
    "sweeper/planning/unknown_keys.py": "finds what a configuration lacks",
    "sweeper/plugin/hydra_plugins/honest_sweeper.py": "is a plugin of Hydra's",
    "sweeper/plugin/hydra_plugins/hydra_fork_launcher.py": "is a plugin of Hydra's",
    "sweeper/plugin/hydra_plugins/hydra_ray_jobs_launcher.py": "is a plugin of Hydra's",
}
"""The modules that may import hydra or omegaconf, and what each does with it; everything else has plain values."""


@cache
def arrows() -> Mapping[str, frozenset[str]]:
    """Which rooms each room imports from."""
    made: Mapping[str, frozenset[str]] = runpy.run_path(str(ROOT / "docs" / "generators" / "rooms.py"))["arrows"]()
    return made


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_one_way(package: str) -> None:
    for path in modules(package):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("dpsweep.")}
        assert ours <= MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {ours - MAY_IMPORT[package]}"


@pytest.mark.parametrize("folder", [*PACKAGES, "tests", "docs", "benchmarks"])
def test_nothing_is_imported_by_its_bare_name(folder: str) -> None:
    """A module that were imported as `accounting.x` too would be there twice, with classes that are not equal."""
    for path in modules(folder):
        bare = {name for name in imports(path) if name.partition(".")[0] in PACKAGES}
        assert bare == set(), path.relative_to(ROOT)


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_what_stands_before_them(package: str) -> None:
    for room, others in arrows().items():
        if room.partition("/")[0] == package:
            later = {other for other in others if ROOMS.index(other) > ROOMS.index(room)}
            assert later == set(), f"{room} imports {later}"


def test_bodies_of_ledger_lines_are_read_in_one_module() -> None:
    """Everything else is given a typed value of it."""
    for package in ("accounting", "reports", "sweeper"):
        for path in modules(package):
            nodes = ast.walk(ast.parse(path.read_text()))
            reads = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "body"}
            assert reads == ({"entry.body"} if path.name == "book.py" else set()), path


def test_no_class_name_stands_in_two_files() -> None:
    files: dict[str, set[Path]] = {}
    for package in PACKAGES:
        for path in modules(package):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    files.setdefault(node.name, set()).add(path)
    assert {name for name, paths in files.items() if len(paths) > 1} == set(TWICE)


@pytest.mark.parametrize("library", DOORS)
def test_every_foreign_library_has_its_door(library: str) -> None:
    users = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if any(name.partition(".")[0] == library for name in imports(path))
    }
    assert users == DOORS[library]


def test_hydra_stays_at_its_door() -> None:
    """No configuration of Hydra's reaches what plans, prices, charges and runs."""
    users = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in modules(package)
        if any(name.partition(".")[0] in ("hydra", "omegaconf") for name in imports(path))
    }
    assert users == set(HYDRAS_DOOR)


def test_one_module_imports_from_inside_hydra() -> None:
    """Another series of Hydra changes this module alone."""
    users = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in modules(package)
        if any(name.startswith("hydra._internal") for name in imports(path))
    }
    assert users == {"sweeper/commands/hydra_internals.py"}


IMPORTING = {
    "accounting/__init__.py": "loads public names",
    "accounting/searches/interface.py": "loads the classes of a search of ours",
    "accounting/stored_names/tags.py": "loads a class of ours by its tag",
    "dpsweep/__init__.py": "loads public names",
    "reports/figures/drawing.py": "loads backends of matplotlib",
    "reports/reproduction/finding.py": "loads the figures of papers",
    "sweeper/launchers/fork_launcher.py": "loads what all jobs need before they are forked",
    "trainers/user_modules.py": "imports what a configuration names, where the command names it too",
}
"""The modules that import by a name that they compute; one of them takes names from configurations."""


def test_one_function_imports_what_a_configuration_names() -> None:
    """Hydra's `instantiate`, `get_class`, `get_method` and `get_object` would import what any file names."""
    importing = set()
    others = [ROOT / "dpsweep" / "__init__.py", *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").rglob("*.py")]
    for path in [*(path for package in PACKAGES for path in modules(package)), *others]:
        place, names = path.relative_to(ROOT).as_posix(), set(imports(path))
        assert not any(name.startswith(("hydra.utils", "hydra._internal.instantiate")) for name in names), place
        called = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(ast.parse(path.read_text()))}
        assert not called & {"instantiate", "get_class", "get_method", "get_object", "resolve_name"}, place
        if "import_module" in called:
            importing.add(place)
    assert importing == set(IMPORTING)


def test_torch_is_imported_by_trainers_and_jobs_only() -> None:
    for package in ("accounting", "reports"):
        for path in modules(package):
            assert not any(name.partition(".")[0] == "torch" for name in imports(path)), path


def test_no_package_below_tests() -> None:
    """An __init__.py there would shadow the real packages."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_hydra_plugins_is_a_namespace() -> None:
    assert not (ROOT / "sweeper" / "plugin" / "hydra_plugins" / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_stay_readable(package: str) -> None:
    for path in modules(package):
        assert len(path.read_text().splitlines()) <= 500, f"{path.relative_to(ROOT)}: stop and think"


def test_folders_of_tests_are_named_like_the_rooms_that_they_test() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests")
        for package in PACKAGES
        for path in (ROOT / "tests" / package).rglob("test_*.py")
    }
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


CORE = {"lines": 4_717, "bare lines": 2_659}
WITH_THEOREMS = {"lines": 5_975, "bare lines": 3_385}
"""What has to be read to know that nothing is charged below its price and nothing private is read before its charge:
the book, the permit and the rules with all that they import; and with the theorems and drivers that these can load.
"""


@cache
def trusted() -> Mapping[str, frozenset[str]]:
    """The lists of docs/architecture.md."""
    made: Mapping[str, frozenset[str]] = runpy.run_path(str(ROOT / "docs" / "generators" / "rooms.py"))["trusted"]()
    return made


def test_the_trusted_core_is_no_larger_than_its_limits() -> None:
    core, beside, access = trusted().values()
    bare = {Path(one.path).as_posix(): len(one.lines) for one in bare_code()["product_modules"]()}
    for names, limits in ((core, CORE), (core | beside, WITH_THEOREMS)):
        size = {
            "lines": sum(len((ROOT / name).read_text().splitlines()) for name in names),
            "bare lines": sum(bare[name] for name in names),
        }
        assert {name: number for name, number in size.items() if number > limits[name]} == {}
    assert {name.partition("/")[0] for name in core | beside} == {"accounting"}
    assert {name.partition("/")[0] for name in access} == {"trainers"}


def test_the_trusted_core_imports_numpy_scipy_and_the_standard_library() -> None:
    """And no class by a path that a file names."""
    core, beside, _ = trusted().values()
    allowed = {"dpsweep", "numpy", "scipy", *sys.stdlib_module_names}
    for name in core | beside:
        foreign = {one.partition(".")[0] for one in imports(ROOT / name)} - allowed
        assert foreign <= FOREIGN.get(name, set()), name
        assert "importlib" not in imports(ROOT / name), name


FOREIGN = {
    "accounting/chain/postgres_server.py": {"sqlalchemy"},
}


@cache
def bare_code() -> Mapping[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "measuring" / "bare_code.py"), run_name="imported")


SIZE = {"bare lines": 39_803, "files": 386, "functions": 4_598}
"""What the product has come to. Whoever raises a number says in the commit what is added, and what goes for it."""


def test_the_product_is_no_larger_than_it_has_become() -> None:
    product = bare_code()["product_modules"]()
    size = {
        "bare lines": sum(len(module.lines) for module in product),
        "files": len(product),
        "functions": sum(module.functions for module in product),
    }
    assert {name: number for name, number in size.items() if number > SIZE[name]} == {}
