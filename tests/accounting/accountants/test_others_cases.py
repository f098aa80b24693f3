"""Cases of Opacus' and dp_accounting's own tests: our accountants agree, or the difference is listed and explained."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.guarantee import Adjacency

OTHERS = Path(__file__).parents[2] / "others"
DATA = json.loads((OTHERS / "accountants.json").read_text())
DIFFERENCES: Mapping[str, str] = json.loads((OTHERS / "differences.json").read_text())["accountants"]
ABOVE = {"PLD": 1e-3, "PRV": 7e-3, "RDP": 1e-3}
"""How far our bound may be above the expected value, relative to it: PRV's own relative error is .005."""
BELOW = 1e-3
"""How far it may be below, relative, where their value has no stated absolute error; and how far a delta may be."""
SMALL = 1e-8
"""Deltas below this are not told apart."""
OURS: Mapping[str, Accountant] = {one.name: one for one in (Pld(), Prv(), Rdp())}
ROWS = [(case, name) for case in DATA["cases"] for name in case["ours"]]

NUMBER = r"\d+\.?\d*(?:e[-+]?\d+)?"
Case = Mapping[str, Any]


def label(case: Case, name: str) -> str:
    return f"{case['name']} by {name}"


def deltas(event: DpEvent, case: Case) -> float:
    """Delta of the direction that the case is about: the record is in P where it is removed, in Q where it is added."""
    profile: Any = Pld().profile(event, Adjacency(case["adjacency"]))
    directions = getattr(profile, "directions", (profile,))
    asked = {"remove": directions[:1], "add": directions[-1:], "both": directions}[case["direction"]]
    return max(float(one.delta(np.array([case["epsilon"]]))[0]) for one in asked)


def difference(case: Case, name: str) -> float:
    """The largest relative difference between our value and the range of the expected one; positive if ours is larger.

    A Renyi divergence grows with the order, so a bound at a larger order is one at a smaller order too.
    """
    adjacency, expected = Adjacency(case["adjacency"]), np.atleast_1d(np.asarray(case["expected"], dtype=float))
    event = events.from_json({"version": 1, "event": case["event"]})
    if case["quantity"] == "epsilon":
        values = np.array([OURS[name].epsilon(event, case["delta"], adjacency)])
    elif case["quantity"] == "delta":
        values = np.array([deltas(event, case)])
    else:
        curve = Rdp(orders=tuple(case["orders"])).renyi_curve(event, adjacency)
        values = np.minimum.accumulate(curve[::-1])[::-1]
    if case.get("noise_rounding"):
        more, less = (
            deltas(events.from_json({"version": 1, "event": with_noise(case["event"], shift)}), case)
            for shift in (case["noise_rounding"], -case["noise_rounding"])
        )
        values = np.clip(expected, more, less)
    if np.isinf(expected).any():
        return 0.0 if np.isinf(values).all() else -1.0
    scale = np.maximum(expected, SMALL)
    above = (values - expected) / scale
    below = (values - expected + case.get("stated_error", 0.0)) / scale
    apart = np.where(above > 0, above, np.minimum(below, 0.0))
    return float(apart[np.abs(apart).argmax()])


def with_noise(event: dict[str, Any], shift: float) -> dict[str, Any]:
    """The event with a noise multiplier that is larger by `shift`."""
    if "event" in event:
        return event | {"event": with_noise(event["event"], shift)}
    return event | {"noise_multiplier": event["noise_multiplier"] + shift}


@pytest.mark.long
@pytest.mark.parametrize(("case", "name"), ROWS, ids=[label(*row) for row in ROWS])
def test_an_expected_value_is_ours_or_the_difference_is_listed(case: Case, name: str) -> None:
    apart = difference(case, name)
    assert not -BELOW <= apart <= ABOVE[name] if label(case, name) in DIFFERENCES else -BELOW <= apart <= ABOVE[name]


def test_every_listed_difference_is_that_of_a_case() -> None:
    assert set(DIFFERENCES) <= {label(*row) for row in ROWS}
    table = (OTHERS / "README.md").read_text()
    for name, reason in DIFFERENCES.items():
        assert f"| {name} | {reason} |" in table


@pytest.mark.parametrize("package", DATA["packages"])
def test_cases_are_where_the_data_say(package: str) -> None:
    """Where the same version is installed, the files are the same, and the lines hold the expected values."""
    if importlib.metadata.version(package) != DATA["packages"][package]:
        pytest.skip(f"another version of {package} is installed")
    for file, digest in DATA["files"].items():
        if not file.startswith(f"{package}/"):
            continue
        path = Path(str(importlib.metadata.distribution(package).locate_file(file)))
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
        lines = path.read_text().splitlines()
        for case in DATA["cases"]:
            if case["file"] == file:
                first, last = case["lines"]
                assert 1 <= first <= last <= len(lines)
                numbers = {float(one) for one in re.findall(NUMBER, "\n".join(lines[first - 1 : last]))}
                values = np.atleast_1d(np.asarray(case["expected"], dtype=float))
                shown = all(any(math.isclose(one, value) for one in numbers) for value in values)
                assert shown or case.get("by_formula") or np.isinf(values).all(), case["name"]


def test_infinity_is_written_as_a_word() -> None:
    assert any(math.isinf(float(case["expected"])) for case in DATA["cases"] if case["quantity"] == "epsilon")
