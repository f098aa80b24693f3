"""A place of its own for every test: ledger, working folder, and the program as a user starts it."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.commands.hydra_app import CONF, hydra_arguments_from_command_line
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.coordinator.request import plan_settings
from dpsweep.sweeper.planning.grid import Grid, sort_overrides_into_request
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan
from dpsweep.sweeper.planning.sealed_options import AccountParts
from dpsweep.trainers.user_modules import FINDER
from tests.composing import compose_quickly
from tests.databases import Place, Server, in_file, programs, served
from tests.embedded_fonts import embed_quickly
from tests.forked_programs import Run
from tests.waiting import HANGS

collect_ignore = ["frozen"]  # files of users, kept as they were

Program = Callable[..., subprocess.CompletedProcess[str]]

compose_quickly()
embed_quickly()


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's folders, of child processes too: no test reads or writes the real ones."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("state", "config", "data"):
            patch.setenv(f"XDG_{kind.upper()}_HOME", str(folder / kind))
        yield folder


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server of one's own, one for each process that runs tests."""
    pytest.importorskip("psycopg", reason="needs pip install 'dpsweep[postgres]'", exc_type=ImportError)
    if (found := programs()) is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with served(found) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place for a ledger, once a file and once a database."""
    places: dict[str, Callable[[], Place]] = {
        "sqlite": lambda: in_file(tmp_path / "books" / "ledger.sqlite"),
        "postgresql": lambda: request.getfixturevalue("server").place(),
    }
    return places[request.param]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Spares the garbage collector what lives as long as the process: imports and thousands of collected tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sets the global generators for each test, so that it does not depend on which tests ran before it.

    A command that ran in this process has set PYTHONSAFEPATH for its children, which a test's own programs are not.
    """
    os.environ.pop("PYTHONSAFEPATH", None)
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DPSWEEP_DATA", "HYDRA_FULL_ERROR")}
    own = {"DPSWEEP_LEDGER": str(tmp_path / "ledger.sqlite"), "DPSWEEP_KEY": str(tmp_path / "fingerprint.key")}
    return kept | own | {"COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}  # none among a test's own files


@pytest.fixture
def pages() -> None:
    """Asked for by tests that look at a sweep's page; drawing it is a third of a small sweep's time."""


@pytest.fixture(scope="session")
def known_times(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step times that earlier plans of this session measured."""
    return tmp_path_factory.mktemp("times") / "speeds.json"


@pytest.fixture
def program(tmp_path: Path, environment: dict[str, str], known_times: Path, request: pytest.FixtureRequest) -> Program:
    """Does what `python -m MODULE ARGUMENTS...` does in the test's folder, in a fork that has all imports already.

    A sweep ends without its page, unless the test asks for `pages`, and a plan times no step that was timed before.
    """

    def run(*arguments: str, module: str = "sweeper", timeout: float = HANGS) -> subprocess.CompletedProcess[str]:
        sweeps = (module == "sweeper" and arguments[:1] != ("plan",)) or arguments[:1] == ("sweep",)
        drawn = "pages" in request.fixturenames
        words = arguments if drawn or not sweeps else (*arguments, "page=false")
        times = tmp_path / "speeds.json"
        if arguments[:1] == ("plan",) and known_times.exists() and not times.exists():
            shutil.copy(known_times, times)
        done = Run(words, tmp_path, environment, module=module).wait(timeout)
        if arguments[:1] == ("plan",) and times.exists():
            shutil.copy(times, known_times)
        return subprocess.CompletedProcess([module, *arguments], done.code, done.out, done.err)

    return run


@pytest.fixture
def fresh_program(tmp_path: Path, environment: dict[str, str]) -> Program:
    """Runs `python -m MODULE ARGUMENTS...` in the test's folder, as a user does."""

    def run(*arguments: str, module: str = "sweeper", timeout: float = HANGS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=timeout,
        )

    return run


class Everything(set[str]):
    """The names of a command that names all code."""

    def __contains__(self, name: object) -> bool:
        return True


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by tests of single parts that build classes of the test's own: no command names them."""
    monkeypatch.setattr(FINDER, "trusted", Everything())


@pytest.fixture
def compose_priced() -> Callable[[Sequence[str]], PricedPlan]:
    """The plan that a command line would make, without starting a program."""

    def compose(arguments: Sequence[str], earlier: Sequence[SealedCharge | None] = ()) -> PricedPlan:
        GlobalHydra.instance().clear()
        with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
            loader = GlobalHydra.instance().config_loader()
            request = sort_overrides_into_request(hydra_arguments_from_command_line(arguments), loader)
            FINDER.trusted |= request.code
            config = loader.load_configuration("config", list(request.fixed), run_mode=RunMode.MULTIRUN)
            grid = Grid(request, config, loader)
            offered = grid.selection_rule_configs_by_name() if "tuning=auto" in arguments else {}
            return compose_priced_plan(
                grid.points(), plan_settings(config, request.keys, offered), AccountParts(earlier)
            )

    return compose
