"""Randomized tests are marked, listed and repeatable: a plugin of pytest, which pyproject.toml loads.

A test that depends on secret randomness has the mark `randomized`: what is drawn, how its probability of a false alarm
is bounded, and that probability. tests/RANDOMIZED.md lists all of them, written by the option `--write-randomized`. A
test without the mark that draws secret randomness, or trains with it, is an error.

Examples of hypothesis are the same in every run; `--hypothesis-profile=explore` draws new ones. What a test draws by
the fixture `chance` follows from the seed in the variable DPSWEEP_TEST_SEED, which is new in every run, and printed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from hypothesis import settings

SEED = "DPSWEEP_TEST_SEED"
LIST = Path(__file__).with_name("RANDOMIZED.md")
MARK = "randomized"
SURE = "holds whatever is drawn"
"""The bound of a test that draws secret randomness and compares nothing that depends on it."""

TRAINS = pytest.mark.randomized(draws="secret noise and batches of trainings", bound=SURE, false_alarm=0.0)
"""For tests that train in secret, and look at no score."""

SEARCHES = pytest.mark.randomized(
    draws="the number of tries and the tries of a search, noise and batches of trainings",
    bound="a geometric number of mean 3 is above 99, for which the tests have no fates: (2/3)^99",
    false_alarm=(2 / 3) ** 99,
)
"""For tests of searches that hide their losers: of rules whose number of tries has no larger tail."""

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", derandomize=False, database=None, deadline=None)
settings.load_profile("repeatable")


@dataclass(frozen=True, kw_only=True, order=True)
class Row:
    """A mark in the list: of a test with all its cases, or of all tests of a file."""

    test: str
    draws: str
    bound: str
    false_alarm: float
    statement: str

    def __str__(self) -> str:
        alarm = f"{self.false_alarm:.0e}" if self.false_alarm else "0"
        return f"| {self.test} | {self.statement} | {self.draws} | {self.bound} | {alarm} |"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of a randomized test."""

    row: Row
    path: Path


CASES = pytest.StashKey[list[Case]]()
FILES = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-randomized", action="store_true", help=f"write tests/{LIST.name} anew")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(SEED, str(SystemRandom().randrange(1 << 32)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"{SEED}={os.environ[SEED]}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes down the marks before any test is deselected."""
    config.stash[CASES] = [
        Case(row=_row(item, node, mark), path=item.path)
        for item in items
        for node, mark in list(item.iter_markers_with_node(MARK))[:1]
    ]
    config.stash[FILES] = {item.path for item in items}


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    cases = config.stash.get(CASES, [])
    return f"{len(cases)} randomized cases; false alarms have a probability of {total(cases):.1e} in all"


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--write-randomized"):
        LIST.write_text(page(session.config.stash[CASES]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.failed and "chance" in getattr(item, "fixturenames", ()):
        report.sections.append(("Randomness", f"{SEED}={os.environ[SEED]} draws the same again"))
    return report


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    """A generator of the test's own, whose draws follow from the seed that is printed."""
    return Random(f"{os.environ[SEED]} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def secrets_are_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test without the mark neither draws secret randomness nor leaves results that were trained with it."""
    if request.node.get_closest_marker(MARK) is not None:
        yield
        return
    drawn: list[str] = []
    begun = datetime.now(UTC).replace(microsecond=0)
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", _noted(secrets.randbits, drawn))
        for name in ("random", "getrandbits"):
            patch.setattr(SystemRandom, name, _noted(getattr(SystemRandom, name), drawn))
        yield
    assert not drawn, f"Expected a test that draws by {drawn[0]} to have the mark {MARK}."
    if folder is not None:
        results = list(trained_in_secret(folder, begun))
        assert not results, f"Expected a test that trains in secret ({results[0]}) to have the mark {MARK}."


def trained_in_secret(folder: Path, since: datetime) -> Iterator[Path]:
    """The results below the folder of trainings that began since then; a result that a test plays has no log."""
    for place, _, files in os.walk(folder):
        if {"result.json", "train.log"} <= set(files):
            with suppress(ValueError, RecursionError):  # a test may have damaged the file
                result = json.loads((path := Path(place, "result.json")).read_text())
                if result["randomness"] == "secret" and datetime.fromisoformat(result["started"]) >= since:
                    yield path


def total(cases: Sequence[Case]) -> float:
    """The probability that any of the cases fails by chance, at most."""
    return sum(case.row.false_alarm for case in cases)


def rows(cases: Sequence[Case]) -> list[Row]:
    """The list, each mark once."""
    return sorted({case.row for case in cases})


def page(cases: Sequence[Case]) -> str:
    """The list as it is written."""
    return "\n".join([HEAD.rstrip(), *map(str, rows(cases)), ""])


def _row(item: pytest.Item, node: pytest.Item | pytest.Collector, mark: pytest.Mark) -> Row:
    if node is item:
        name = item.nodeid.partition("[")[0]
        statement = name.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    else:
        name = node.nodeid
        statement = (getattr(node, "obj", None).__doc__ or "").partition("\n")[0]
    return Row(test=name, statement=statement, **mark.kwargs)


def _noted(function: Callable[..., Any], notes: list[str]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        notes.append(function.__qualname__)
        return function(*arguments)

    return called


HEAD = """\
# Randomized tests

No test fails by chance. Every test that depends on secret randomness is in the table below, with the probability that
one of its cases fails though nothing is wrong (a false alarm). It is less than 1e-9, and the sum over all cases of the
suite is less than 1e-9 times their number: pytest prints both after the collection. The table is made of the marks
`@pytest.mark.randomized` by

    pytest --collect-only -q -m "" --write-randomized

and tests/test_randomized.py compares it with them. How the rest of the suite keeps clear of chance:

- **Laws and power are apart.** "Never more than is charged" has a confidence bound. "At least so much" compares with a
  quantile of the exact distribution. A planted mistake is found with probability 1 minus the false alarm in its row.
  The margins are in tests/margins.py.
- **What is no statement about secret randomness has a seed**: `reproducible_streams`, `Generator(Philox(7))`,
  `torch.Generator().manual_seed(1)`, `seed=1` of a sweep. Tests of samplers and of laws by simulation are such; they
  give the same numbers each time. tests/test_randomized.py looks for generators without a seed. Global generators, from
  which a layer of torch draws its first weights, are set for each test by its name (tests/conftest.py).
- **Examples of hypothesis** are the same in every run; `pytest --hypothesis-profile=explore` draws new ones.
- **Kills and faults** at random instants are statements that hold at every instant. They are drawn by the fixture
  `chance`; a failure prints `DPSWEEP_TEST_SEED=...`, and with that variable the same instants are drawn again. Kills by
  the clock repeat the moment, not the state of the program.
- **Processes and threads** are waited for by conditions, with deadlines that only a program that hangs reaches
  (tests/waiting.py). No test compares times; how fast something is, is measured in benchmarks/.

| test | statement | what is random | how a false alarm is bounded | false alarm |
|---|---|---|---|---|
"""
