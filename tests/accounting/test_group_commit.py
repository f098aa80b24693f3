"""Calls for many files, which wait for the disk in threads: each file is on the disk before it has its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpsweep.accounting.durable_files import append_bytes, write_json
from dpsweep.accounting.files import FEW, THREADS, call_for_each

COUNTS = [0, 1, FEW, FEW + 1, FEW * THREADS]


@pytest.mark.parametrize("count", COUNTS)
def test_every_call_returns_in_the_order_of_the_items(tmp_path: Path, count: int) -> None:
    def write(number: int) -> Path:
        append_bytes(tmp_path / str(number), b"content", create=True)
        return tmp_path / str(number)

    assert call_for_each(write, range(count)) == [tmp_path / str(number) for number in range(count)]
    assert all(path.read_text() == "content" for path in tmp_path.iterdir())


@pytest.mark.parametrize("count", COUNTS)
def test_a_file_gets_its_name_after_its_content_and_then_the_folder_are_on_the_disk(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename = os.fsync, Path.replace
    flushed: list[tuple[int, int]] = []
    renamed: dict[str, int] = {}

    def watch(handle: int) -> None:
        fsync(handle)
        state = os.fstat(handle)
        flushed.append((state.st_ino, state.st_size))

    def named(partial: Path, path: Path) -> Path:
        state = partial.stat()
        assert (state.st_ino, state.st_size) in flushed, "its content may be lost"
        renamed[path.parent.name] = len(flushed)
        return rename(partial, path)

    monkeypatch.setattr(os, "fsync", watch)
    monkeypatch.setattr(Path, "replace", named)
    folders = [tmp_path / str(number) for number in range(count)]
    call_for_each(lambda folder: write_json(folder / "file.json", folder.name, indent=None), folders)
    assert len(renamed) == count
    for folder in folders:
        after = {inode for inode, _ in flushed[renamed[folder.name] :]}
        assert folder.stat().st_ino in after, "a name may be lost"
        assert (folder / "file.json").read_text() == f'"{folder.name}"'


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("a defect")])
@pytest.mark.parametrize("count", [1, FEW, FEW * THREADS])
def test_the_first_error_is_raised_and_few_calls_do_not_begin_after_it(count: int, error: Exception) -> None:
    begun = []

    def fail(number: int) -> None:
        begun.append(number)
        raise error

    with pytest.raises(type(error), match=r"output error|a defect"):
        call_for_each(fail, range(count))
    assert count > FEW or len(begun) == 1


def test_a_file_is_new_or_there_as_the_caller_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        append_bytes(path, b"line", create=False)
    append_bytes(path, b"line", create=True)
    append_bytes(path, b" and line", create=False)
    with pytest.raises(FileExistsError):
        append_bytes(path, b"other", create=True)
    assert path.read_bytes() == b"line and line"


def test_what_does_not_fit_on_the_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, space = os.write, [3, 2]

    def short(handle: int, content: bytes) -> int:
        if not space:
            raise OSError(28, "No space left on device")
        return write(handle, content[: space.pop()])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space left"):
        append_bytes(tmp_path / "file", b"longer than that", create=True)
