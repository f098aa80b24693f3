"""docs/threat-model.md: each promise of docs/honesty.md has its tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
HONESTY = " ".join((ROOT / "docs" / "honesty.md").read_text().split())
ROWS = re.findall(r"^\| (?!promise)(.+) \| (`tests/.+) \|$", PAGE, re.MULTILINE)
QUOTED = [promise.strip('"') for promise, _ in ROWS if promise.startswith('"')]
PROMISING = ("**Covered:**", "**What is kept where.**")
"""The paragraphs whose sentences are promises, all of them."""


def sentences() -> list[str]:
    """The sentences of these paragraphs, without links."""
    paragraphs = (ROOT / "docs" / "honesty.md").read_text().split("\n\n")
    texts = [text.removeprefix(mark) for text in paragraphs for mark in PROMISING if text.startswith(mark)]
    plain = [re.sub(r"\s*\(\[[^\]]+\]\([^)]+\)\)", "", " ".join(text.split())) for text in texts]
    return [sentence.strip() for text in plain for sentence in re.split(r"(?<=\.) (?=[A-Z])", text)]


def test_each_promise_has_a_row_of_tests() -> None:
    assert len(sentences()) >= 7
    for sentence in sentences():
        assert any(promise in sentence for promise in QUOTED), sentence


@pytest.mark.parametrize("promise", QUOTED)
def test_what_is_quoted_stands_in_the_page_on_honesty(promise: str) -> None:
    assert promise in HONESTY


@pytest.mark.parametrize("tests", [tests for _, tests in ROWS])
def test_the_tests_of_each_promise_exist(tests: str) -> None:
    named = tests.split(", ")
    assert all(re.fullmatch(r"`tests/[\w/]+\.py`", name) for name in named)
    for name in named:
        assert re.search(r"^def test_", (ROOT / name.strip("`")).read_text(), re.MULTILINE), name


def test_security_says_what_happens_to_charges_that_were_made() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert "no charge is ever lowered" in text
    assert "docs/threat-model.md" in text
    assert "dpsweep budget charge" in " ".join(text.split())
