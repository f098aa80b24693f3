"""Grounds to strike, and finished sweeps to hold against."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.faults.ground import CHECKPOINTS, HIDING, SWEEP, Ground
from tests.faults.instants import Stroke

Make = Callable[[tuple[str, ...]], Ground]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The sweep of a command that nothing ever happened to."""

    @cache
    def run(words: tuple[str, ...]) -> Ground:
        ground = Ground.at(tmp_path_factory.mktemp("undisturbed"), words)
        done = ground.run()
        assert done.code == 0, done.err
        ground.check()
        return ground

    return run


@pytest.fixture
def undisturbed(reference: Make) -> Ground:
    return reference((*SWEEP, *CHECKPOINTS))


@pytest.fixture
def ground(tmp_path: Path) -> Make:
    """An empty ground for a command."""
    return lambda words: Ground.at(tmp_path / "ground", words)


@pytest.fixture
def finished(tmp_path: Path, undisturbed: Ground) -> Ground:
    """A copy of the finished sweep."""
    return undisturbed.copied(tmp_path / "finished")


@pytest.fixture
def searched(tmp_path: Path, reference: Make) -> Ground:
    """A copy of a finished search that hides its losers."""
    return reference((*SWEEP, *CHECKPOINTS, *HIDING)).copied(tmp_path / "searched")


@pytest.fixture(scope="session")
def _interrupted(tmp_path_factory: pytest.TempPathFactory, reference: Make) -> Ground:
    ground = Ground.at(tmp_path_factory.mktemp("interrupted"), (*SWEEP, *CHECKPOINTS))
    ground.run(Stroke.KILL, reference(ground.words).when("os.fsync .*/steps-1", 2))
    return ground


@pytest.fixture
def interrupted(tmp_path: Path, _interrupted: Ground) -> Ground:
    """A copy of a sweep that was killed in the first trial's second stretch, after a checkpoint."""
    return _interrupted.copied(tmp_path / "interrupted")
