"""Stored files that somebody changed: each is refused in one sentence, or it reads as the value that it says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsweep.accounting.errors import DpsweepError
from tests.fuzzing.duration import while_there_is_time
from tests.fuzzing.mutations import Damage, changed, damages, written
from tests.fuzzing.stored_kinds import KINDS, StoredKind

EXAMPLES = 60
"""Of each kind, in the ordinary tests."""


def refused_or_the_same(kind: StoredKind, folder: Path, content: bytes) -> None:
    """Reads a file with this content."""
    path = folder / kind.file
    path.write_bytes(content)
    try:
        value = kind.read(path)
    except DpsweepError as refusal:
        sentence = str(refusal)
        assert sentence.strip(), "a refusal says why"
        assert "\n" not in sentence
        assert len(sentence) < 2000, sentence[:300]
        return
    said, again = json.loads(content), kind.write(value)
    assert says(again, said, strict=kind.strict), f"{said}\nwas read as\n{again}"
    path.write_bytes(written(again))
    assert kind.write(kind.read(path)) == again, "and reads back as the same"


def _amount(form: object) -> float | None:
    """The number of a form, None for others; amounts are written as decimals or as a word and read from numbers too."""
    try:
        return float(form) if isinstance(form, (str, int, float)) else None
    except ValueError:
        return None


def says(value: Any, said: Any, *, strict: bool) -> bool:
    """Whether a form has all that another one says; unless it is strict, it may leave out keys that nobody reads.

    A strict form may leave out what is empty: so are values that are not stored.
    """
    if isinstance(said, dict):
        if not isinstance(value, dict) or (strict and any(said[key] for key in said.keys() - value.keys())):
            return False
        return all(says(value[key], said[key], strict=strict) for key in said.keys() & value.keys())
    if isinstance(said, list):
        same = isinstance(value, (list, tuple)) and len(value) == len(said)
        return same and all(says(one, other, strict=strict) for one, other in zip(value, said, strict=True))
    if isinstance(said, bool) or isinstance(value, bool):
        return said is value
    if isinstance(said, float) and math.isnan(said):
        return isinstance(value, float) and math.isnan(value)
    if isinstance(value, str) and not isinstance(said, bool) and value != said:
        return _amount(value) is not None and _amount(value) == _amount(said)
    if isinstance(said, str) and isinstance(value, float):
        return float(said) == value  # amounts may be written in decimals, and infinity is a word
    return bool(value == said) or (isinstance(value, float) and isinstance(said, int) and float(said) == value)


def explore(kind: StoredKind, folder: Path, how: settings) -> None:
    """Files with one or two values changed, and files that were damaged byte by byte."""

    @settings(how, suppress_health_check=list(HealthCheck))
    @given(form=st.sampled_from(kind.examples()).flatmap(changed))
    def of_values(form: Any) -> None:
        refused_or_the_same(kind, folder, written(form))

    @settings(how, suppress_health_check=list(HealthCheck))
    @given(form=st.sampled_from(kind.examples()), damage=damages())
    def of_bytes(form: Any, damage: Damage) -> None:
        refused_or_the_same(kind, folder, damage(written(form)) or b"")

    of_values()
    of_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_was_changed_is_refused_or_read_as_it_is(tmp_path: Path, name: str) -> None:
    explore(KINDS[name], tmp_path, settings(max_examples=EXAMPLES))


@pytest.mark.long
def test_each_file_is_refused_or_read_as_it_is_for_as_long_as_there_is_time(tmp_path: Path) -> None:
    """As long as docs/contributing.md says, with new examples in each run."""
    how = settings(max_examples=500, derandomize=False, database=None)
    while_there_is_time(lambda: [explore(kind, tmp_path, how) for kind in KINDS.values()] and None)


@pytest.mark.parametrize("name", KINDS)
def test_what_the_program_writes_reads_as_it_is(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    for form in kind.examples():
        refused_or_the_same(kind, tmp_path, written(form))
