"""Calls that wait for the disk together: each goes on only after its flush, and an error ends all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpsweep.accounting.durable_files import (
    EACH,
    OPEN,
    THREADS,
    Flushing,
    run_generator_and_flush_yielded_paths,
    run_generators_and_flush_in_groups,
    write_compact_json_in_group_commit,
)

MANY = 2 * OPEN + EACH + 1
COUNTS = [0, 1, EACH, EACH + 1, EACH * THREADS, MANY]


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Inode and size of all that was flushed."""
    flushed: list[tuple[int, int]] = []
    fsync = os.fsync

    def watch(handle: int) -> None:
        fsync(handle)
        state = os.fstat(handle)
        flushed.append((state.st_ino, state.st_size))

    monkeypatch.setattr(os, "fsync", watch)
    return flushed


def written(path: Path, text: str) -> Flushing[Path]:
    path.write_text(text)
    yield path
    return path


@pytest.mark.parametrize("count", COUNTS)
def test_every_call_returns_in_the_order_of_the_items(tmp_path: Path, count: int) -> None:
    paths = run_generators_and_flush_in_groups(written(tmp_path / str(number), str(number)) for number in range(count))
    assert [path.read_text() for path in paths] == [str(number) for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_a_file_gets_its_name_after_its_content_and_then_the_folder_are_on_the_disk(
    tmp_path: Path, count: int, flushes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, renamed = Path.replace, []

    def named(partial: Path, path: Path) -> Path:
        state = partial.stat()
        assert (state.st_ino, state.st_size) in flushes, "its content may be lost"
        renamed.append(len(flushes))
        return replace(partial, path)

    monkeypatch.setattr(Path, "replace", named)
    folders = [tmp_path / str(number) for number in range(count)]
    run_generators_and_flush_in_groups(
        write_compact_json_in_group_commit(folder / "file.json", folder.name) for folder in folders
    )
    after = {inode for inode, _ in flushes[max(renamed, default=0) :]}
    assert len(renamed) == count
    assert {folder.stat().st_ino for folder in folders} <= after, "a name may be lost"
    assert [(folder / "file.json").read_text() for folder in folders] == [f'"{folder.name}"' for folder in folders]


def test_a_folder_that_many_calls_wait_for_is_flushed_once(tmp_path: Path, flushes: list[tuple[int, int]]) -> None:
    run_generators_and_flush_in_groups(
        write_compact_json_in_group_commit(tmp_path / str(number), number) for number in range(MANY)
    )
    assert len(flushes) == MANY + 1


@pytest.mark.parametrize("count", [EACH, MANY])
def test_the_first_error_is_raised_and_no_call_goes_on(tmp_path: Path, count: int) -> None:
    begun, over = [], []

    def fail(number: int) -> Flushing[None]:
        begun.append(number)
        if number == 2:
            raise OSError("disk full")
        yield tmp_path
        over.append(number)

    with pytest.raises(OSError, match="disk full"):
        run_generators_and_flush_in_groups(fail(number) for number in range(count))
    assert (begun, over) == ([0, 1, 2], [])


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("a defect")])
@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_call_goes_on_whose_file_was_not_flushed(
    tmp_path: Path, count: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = []

    def fail(handle: int) -> None:
        raise error

    def call(number: int) -> Flushing[int]:
        try:
            yield from written(tmp_path / str(number), "content")
        except OSError:
            return number
        over.append(number)
        return -1

    monkeypatch.setattr(os, "fsync", fail)
    if isinstance(error, OSError):
        assert run_generators_and_flush_in_groups(call(number) for number in range(count)) == [*range(count)]
    else:
        with pytest.raises(ValueError, match="a defect"):
            run_generators_and_flush_in_groups(call(number) for number in range(count))
    assert over == []


def test_a_path_that_is_gone_is_an_error_of_its_call(tmp_path: Path) -> None:
    def call() -> Flushing[str]:
        try:
            yield tmp_path / "gone"
        except FileNotFoundError:
            return "gone"
        return "there"

    assert run_generator_and_flush_yielded_paths(call()) == "gone"
