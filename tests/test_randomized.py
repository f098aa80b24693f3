"""The list of randomized tests is complete as far as can be seen, their false alarms are rare, margins are right."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dpsweep.accounting.audit.record import FALSE_ALARM as AUDITS
from tests.margins import FALSE_ALARM, MOST, count_range, deviation_range, deviations, distribution_margin, joint
from tests.randomized import CASES, FILES, LIST, MARK, SEED, page, rows, total, trained_in_secret

TESTS = Path(__file__).parent
UNSEEDED = {
    "secret_streams": "secret streams",
    "SystemRandom": "the operating system's entropy",
    "urandom": "the operating system's entropy",
    "token_hex": "the operating system's entropy",
    "token_bytes": "the operating system's entropy",
    "randbits": "the operating system's entropy",
    "uuid4": "the operating system's entropy",
}
SEEDED = {"default_rng", "Random", "RandomState", "Philox", "PCG64", "seed"}
"""Generators and functions that take a seed, and are random without one."""
GLOBAL = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"}
"""Functions of torch that draw from its global generator unless they are given one."""
KNOWN = {
    "randomized.py": "the seed of a run, which is printed",
    "engines/slurm_site.py": "the key by which the daemons of a site know one another",
    "trainers/training/test_loop_canary.py": "streams of attacks; a test that makes one without others is marked",
    "sweeper/launchers/test_forked_jobs.py": "the streams that jobs draw from, for one test that has the mark",
    "trainers/models/test_checks.py": "a draw from the global generator that is found out, on purpose",
    "trainers/training/test_loop.py": "draws that change the global generators, on purpose",
    "trainers/extractors.py": "an extractor that draws, to be refused",
    "trainers/own_models.py": "the initial weights of a model, which the code under test seeds",
    "trainers/engines/test_auto_own_models.py": "constructors that draw from the global generators, on purpose",
    "frozen/format_1/own/train.py": "a user's script, whose noise is secret",
    "trainers/models/test_convolutional.py": "a draw that changes the global generator, on purpose",
}
"""Where draws without a seed stand outside of a marked test, and why."""


def test_the_list_is_what_the_marks_say(request: pytest.FixtureRequest) -> None:
    config = request.config
    listed = set(LIST.read_text().splitlines())
    marked = [str(row) for row in rows(config.stash[CASES])]
    how = "write it anew: pytest --collect-only -q -m '' --write-randomized"
    assert set(marked) <= listed, how
    if config.stash[FILES] >= set(TESTS.rglob("test_*.py")) and not any("::" in word for word in config.args):
        assert LIST.read_text() == page(config.stash[CASES]), how


def test_every_false_alarm_is_rare_and_so_are_all_of_them(request: pytest.FixtureRequest) -> None:
    """Whole audits with secret noise fail as rarely as the product says, and are few."""
    every = request.config.stash[CASES]
    cases = [case for case in every if case.row.false_alarm != AUDITS]
    assert len(every) - len(cases) <= 5
    assert all(0 <= case.row.false_alarm < MOST for case in cases)
    assert total(cases) <= MOST * len(cases)


def draws_without_a_seed(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines with a call that draws from no seed, and what they call."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if not re.fullmatch(r"[\w.]+", name):
            continue
        last, bare = name.rpartition(".")[2], not node.args and not node.keywords
        given = {word.arg for word in node.keywords}
        of_a_library = name.startswith(("random.", "np.random.")) and last[0].islower() and last != "getstate"
        if (
            last in UNSEEDED
            or (last in SEEDED and bare)
            or (name.startswith("torch.") and last in GLOBAL and "generator" not in given)
            or (of_a_library and last not in SEEDED)
        ):
            yield node.lineno, name


def is_marked(definition: ast.AST) -> bool:
    decorators = getattr(definition, "decorator_list", [])
    return any(MARK in ast.unparse(one) for one in decorators)


def outside_of_marked_tests(path: Path) -> list[str]:
    """Draws without a seed in this file, but those in tests that have the mark."""
    tree = ast.parse(path.read_text())
    marked = [(one.lineno, one.end_lineno or 0) for one in ast.walk(tree) if is_marked(one)]
    return [
        f"{path.relative_to(TESTS)}:{line} {name}"
        for line, name in draws_without_a_seed(tree)
        if not any(first <= line <= last for first, last in marked)
    ]


def test_generators_have_a_seed_but_in_marked_tests() -> None:
    drawing = {path.relative_to(TESTS).as_posix(): outside_of_marked_tests(path) for path in TESTS.rglob("*.py")}
    unexpected = [line for file, lines in drawing.items() if file not in KNOWN for line in lines]
    assert unexpected == [], f"Expected a seed, or the mark {MARK}."
    assert [file for file in KNOWN if not drawing.get(file)] == [], "a known one that is gone"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("np.random.default_rng()", 1),
        ("np.random.default_rng(7)", 0),
        ("Random()", 1),
        ("Random(7)", 0),
        ("random.random()", 1),
        ("np.random.rand(3)", 1),
        ("torch.randn(2, 3)", 1),
        ("torch.randn(2, generator=one)", 0),
        ("streams = secret_streams()", 1),
        ("chance.randrange(7)", 0),
    ],
)
def test_a_draw_without_a_seed_is_seen(line: str, count: int) -> None:
    assert len(list(draws_without_a_seed(ast.parse(line)))) == count


def test_results_that_were_trained_in_secret_are_seen(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, now, past = tmp_path_factory.mktemp("results"), datetime.now(UTC), datetime(2026, 1, 1, tzinfo=UTC)
    for name, randomness, started, logged in (
        ("a", "secret", now, True),
        ("b", "reproducible", now, True),
        ("c", "secret", now, False),
        ("d", "secret", past, True),
        ("e", "secret", now, True),
    ):
        (folder / name).mkdir()
        content = json.dumps({"randomness": randomness, "started": started.isoformat()})
        (folder / name / "result.json").write_text(content[:-9] if name == "e" else content)
        if logged:
            (folder / name / "train.log").touch()
    assert list(trained_in_secret(folder, now)) == [folder / "a" / "result.json"]


def test_what_is_drawn_by_chance_follows_from_the_seed_and_the_test(
    chance: Random, request: pytest.FixtureRequest
) -> None:
    assert chance.random() == Random(f"{os.environ[SEED]} {request.node.nodeid}").random()


def test_margins_are_the_tails_that_they_say() -> None:
    """By simulation at a false alarm of one in a hundred, where it can be seen; the seed is fixed."""
    rng, times, one = np.random.default_rng(1), 20_000, 0.01
    normal = rng.standard_normal((times, 50))
    low, high = deviation_range(50, false_alarm=one)
    few, many = count_range(50, 0.5, false_alarm=one)
    sizes, ups = np.sqrt((normal**2).mean(axis=1)), (normal > 0).sum(axis=1)
    alarms = {
        "deviations": np.abs(normal[:, 0]) > deviations(false_alarm=one),
        "range": (sizes < low) | (sizes > high),
        "joint": np.abs([joint(row[:25], row[25:]) for row in normal]) > deviations(false_alarm=one),
    }
    for name, alarm in alarms.items():
        assert alarm.mean() == pytest.approx(one, abs=0.003), name
    assert ((ups < few) | (ups > many)).mean() <= one, "counts are whole numbers, so that less is cut off"
    assert distribution_margin(100, one) == pytest.approx(0.1628, abs=1e-4), "Massart 1990"
    assert deviations() == pytest.approx(6.47, abs=0.01)
    assert FALSE_ALARM < MOST
