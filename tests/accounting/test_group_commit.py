"""Calls that wait for the disk together: all of them return, in order, and an error ends those that had not begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsweep.accounting.group_commit import FEW, THREADS, together
from dpsweep.accounting.json_files import write_line

MANY = 20 * THREADS


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, MANY])
def test_every_call_returns_in_the_order_of_the_items(tmp_path: Path, count: int) -> None:
    def write(number: int) -> Path:
        path = tmp_path / str(number) / "file.json"
        write_line(path, number)
        return path

    paths = together(write, range(count))
    assert [path.read_text() for path in paths] == [str(number) for number in range(count)]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_the_first_error_is_raised_when_no_call_runs_any_more(count: int) -> None:
    begun, over = [], []

    def fail(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise OSError("disk full")
        over.append(number)

    with pytest.raises(OSError, match="disk full"):
        together(fail, range(count))
    assert {2, *over} == set(begun)
