"""Numbers are rounded to the honest side, and the examples in the code are true."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_object

from dpsweep.reports.content import formatting as notation

TRAINERS = Path(__file__).parents[3] / "conf" / "trainer"


def test_examples_hold() -> None:
    assert doctest.testmod(notation).failed == 0
    assert doctest.testmod(notation).attempted >= 8


@pytest.mark.parametrize(("low", "high", "text"), [(0.9, 0.9, "90.0 to 90.0"), (0.90001, 0.90999, "90.0 to 91.0")])
def test_intervals_are_rounded_outwards(low: float, high: float, text: str) -> None:
    assert notation.percent_interval_text(low, high) == text


def test_unknown_methods_get_a_label_too() -> None:
    assert notation.method_label("dpadagrad") == "DP-Adagrad"
    assert notation.method_label("dp") == "DP"
    assert notation.method_label("") == ""


@pytest.mark.parametrize(
    "path", sorted({*TRAINERS.glob("*.yaml")} - {TRAINERS / "by_grid.yaml"}), ids=lambda path: path.stem
)
def test_methods_are_called_what_they_call_themselves(path: Path) -> None:
    """Except for AUTO-S, which is DP-NSGD, and for scripts, whose owner is not the reader of a page."""
    label = get_object(yaml.safe_load(path.read_text())["_target_"]).label
    others = {"auto_s": "AUTO-S", "script": "a script of the curator's own"}
    assert notation.method_label(path.stem) == others.get(path.stem, label)
