"""Columns of a table of the user's own, declared on the command line beside those of the data set's file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"

FILE = """\
# @package _global_
defaults:
  - table

dataset:
  name: visits
  file: visits.csv
  records: 60
  shape: [3]
  bounds: {age: [0, 100]}
  categories: {ward: [north, south]}
  label: ill
  labels: ["no", "yes"]
  classes: 2

sampler: {batch_size: 8}
privacy: {noise_multiplier: 3, delta: 1.0e-4}
budget: {epsilon: 8.0, delta: 1.0e-3}
accountant: {witnesses: []}
"""
ONE = ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "accountant=rdp", "steps=2")


@pytest.fixture
def planned(program: Program, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The plan of the file with these words."""
    path = tmp_path / "own" / "dataset" / "visits.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    rows = [f"{20 + number},{120 + number},{'north' if number % 2 else 'south'},yes" for number in range(60)]
    (tmp_path / "visits.csv").write_text("\n".join(["age,blood pressure,ward,ill", *rows, ""]))

    def plan(*words: str) -> subprocess.CompletedProcess[str]:
        return program(
            "plan", "dataset=visits", "--config-dir", str(path.parents[1]), f"data={tmp_path}", *ONE, *words, module=CLI
        )

    return plan


def declared(tmp_path: Path) -> dict[str, Any]:
    """The data set in the plan that was written."""
    (path,) = tmp_path.glob("sweeps/*/*/plan.json")
    found: dict[str, Any] = json.loads(path.read_text())["blocks"][0][0]["config"]["dataset"]
    return found


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["dataset.bounds={age: [0, 90]}"], "bounds", {"age": [0, 90]}),
        (
            ["dataset.bounds={age: [0, 90], blood pressure: [80, 220]}", "dataset.shape=[4]"],
            "bounds",
            {"age": [0, 90], "blood pressure": [80, 220]},
        ),
        (
            ["dataset.bounds={blood pressure: [80, 220]}", "~dataset.bounds.age"],
            "bounds",
            {"blood pressure": [80, 220]},
        ),
        (
            ["dataset.categories={ward: [north, south, east]}", "dataset.shape=[4]"],
            "categories",
            {"ward": ["north", "south", "east"]},
        ),
    ],
)
def test_columns_are_changed_added_and_taken_out(
    planned: Program, tmp_path: Path, words: list[str], key: str, value: object
) -> None:
    done = planned(*words)
    assert done.returncode == 0, done.stderr
    assert declared(tmp_path)[key] == value


def test_days_and_missing_values_are_added_to_those_of_the_file(planned: Program, tmp_path: Path) -> None:
    path, dates = tmp_path / "own" / "dataset" / "visits.yaml", "{born: [2000-01-01, 2009-12-31]}"
    path.write_text(FILE.replace("  label:", f"  missing: {{ward: north}}\n  dates: {dates}\n  label:"))
    done = planned("dataset.missing={age: 50}", "dataset.dates={left: [2010-01-01, 2019-12-31]}", "dataset.shape=[6]")
    assert done.returncode == 0, done.stderr
    assert declared(tmp_path)["missing"] == {"ward": "north", "age": 50}
    assert list(declared(tmp_path)["dates"]) == ["born", "left"]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ('dataset.bounds={"age": [0, 90]}', 'Expected the names in dataset.bounds={"age": [0, 90]} to stand without'),
        ("dataset.bounds={age: [0, 90]", "check its brackets"),
        ("dataset.bounds={weight: [0, 200]}", "Expected dataset.shape=[3] == [4], as many as the inputs of bounds"),
    ],
)
def test_what_is_wrong_with_columns_is_said_in_one_sentence(planned: Program, word: str, sentence: str) -> None:
    done = planned(word)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "beside a choice of dataset" not in done.stderr


@pytest.mark.parametrize(
    ("word", "character", "line"),
    [
        ("dataset.bounds={größe: [100,200]}", "ö", "dataset: {bounds: {größe: [100,200]}}"),
        ("dataset.bounds={age=years: [0,90]}", "=", "dataset: {bounds: {age=years: [0,90]}}"),
        ('dataset.bounds={"age, years": [0,90]}', ",", 'dataset: {bounds: {"age, years": [0,90]}}'),
        ("dataset.categories={ward: [süd, nord]}", "ü", "dataset: {categories: {ward: [süd, nord]}}"),
        ("dataset.label=größe", "ö", "dataset: {label: größe}"),
    ],
)
def test_what_a_command_line_cannot_carry_is_shown_as_yaml(
    planned: Callable[..., subprocess.CompletedProcess[str]], word: str, character: str, line: str
) -> None:
    done = planned(word)
    assert done.returncode == 2
    assert f"without {character!r}, which a command line cannot carry" in done.stderr
    assert line in done.stderr


def test_umlauts_stand_in_quotes_in_values(
    planned: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = planned("dataset.categories={ward: ['süd, links', nord]}")
    assert done.returncode == 0, done.stderr
    assert declared(tmp_path)["categories"]["ward"] == ["süd, links", "nord"]
