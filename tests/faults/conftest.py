"""Sandboxes for commands that are killed, and finished sweeps to compare with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.faults.sandbox import CHECKPOINTS, HIDING, SWEEP, Sandbox
from tests.faults.syscalls import Stroke

Make = Callable[[tuple[str, ...]], Sandbox]


@pytest.fixture(autouse=True)
def observer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test looks on from another machine in each sandbox, since copies of one ledger go different ways there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "observer"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The sweep of a command that nothing ever happened to."""

    @cache
    def run(words: tuple[str, ...]) -> Sandbox:
        sandbox = Sandbox.at(tmp_path_factory.mktemp("undisturbed"), words)
        done = sandbox.run()
        assert done.code == 0, done.err
        sandbox.check()
        return sandbox

    return run


@pytest.fixture
def undisturbed(reference: Make) -> Sandbox:
    return reference((*SWEEP, *CHECKPOINTS))


@pytest.fixture
def sandbox(tmp_path: Path) -> Make:
    """An empty sandbox for a command."""
    return lambda words: Sandbox.at(tmp_path / "sandbox", words)


@pytest.fixture
def finished(tmp_path: Path, undisturbed: Sandbox) -> Sandbox:
    """A copy of the finished sweep."""
    return undisturbed.copied(tmp_path / "finished")


@pytest.fixture
def searched(tmp_path: Path, reference: Make) -> Sandbox:
    """A copy of a finished search that hides its losers."""
    return reference((*SWEEP, *CHECKPOINTS, *HIDING)).copied(tmp_path / "searched")


@pytest.fixture(scope="session")
def _interrupted(tmp_path_factory: pytest.TempPathFactory, reference: Make) -> Sandbox:
    sandbox = Sandbox.at(tmp_path_factory.mktemp("interrupted"), (*SWEEP, *CHECKPOINTS))
    sandbox.run(Stroke.KILL, reference(sandbox.words).when("os.fsync .*/steps-1", 2))
    return sandbox


@pytest.fixture
def interrupted(tmp_path: Path, _interrupted: Sandbox) -> Sandbox:
    """A copy of a sweep that was killed in the first trial's second stretch, after a checkpoint."""
    return _interrupted.copied(tmp_path / "interrupted")
