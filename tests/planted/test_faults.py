"""The planted faults are there: each replaces lines that stand once in its file, and names tests that exist."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.planted.plant import README, ROOT, Fault, faults, main, table

FAULTS = faults()
LEAST, OF_EACH_PROMISE = 40, 5
PROMISES = range(1, 9)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_lines_that_stand_once_and_leaves_a_file_that_compiles(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.old) == 1, "port it to the new code; do not drop it"
    assert fault.old != fault.new
    assert 1 <= len(fault.new.splitlines()) <= 6
    if fault.file.endswith(".py"):
        compile(text.replace(fault.old, fault.new), fault.file, "exec")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_that_find_it_exist(fault: Fault) -> None:
    assert 1 <= len(fault.found_by) <= 2
    for test in fault.found_by:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_each_promise_has_its_faults_and_each_fault_a_name() -> None:
    assert len(FAULTS) == len({fault.name for fault in FAULTS}) >= LEAST
    counts = Counter(fault.promise for fault in FAULTS)
    assert counts.keys() == {*PROMISES}
    assert min(counts.values()) >= OF_EACH_PROMISE


def test_the_page_has_the_table() -> None:
    assert table() in README.read_text(), "python -m tests.planted.plant --table"


@pytest.mark.long
def test_each_fault_is_found_and_no_test_fails_without_one() -> None:
    assert main(["--sound"]) == 0
    assert main([]) == 0
