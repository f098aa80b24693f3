"""Files that fuzzing found, or led to: once read as something else or answered with a traceback, and refused since."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.rehearsal import scratch_ledger_of_folder
from dpsweep.sweeper.timing.time_estimate import Speeds
from tests.fuzzing.mutations import written
from tests.fuzzing.stored_kinds import KINDS
from tests.hostile import DEEP

STEP = {"type": "GaussianDpEvent", "noise_multiplier": 1.0}
STOP = {"type": "Stopping", "gamma": 0.1, "limit": 10}
EVENTS: dict[str, Any] = {
    "a negative count": {"type": "SelfComposedDpEvent", "event": STEP, "count": -3},
    "a part of a step": {"type": "SelfComposedDpEvent", "event": STEP, "count": 0.01},
    "a count that is true": {"type": "SelfComposedDpEvent", "event": STEP, "count": True},
    "noise that is no number": {"type": "GaussianDpEvent", "noise_multiplier": math.nan},
    "negative noise": {"type": "GaussianDpEvent", "noise_multiplier": -1.0},
    "noise without end": {"type": "GaussianDpEvent", "noise_multiplier": math.inf},
    "noise in words": {"type": "GaussianDpEvent", "noise_multiplier": "1"},
    "a negative scale": {"type": "NoisyMaxDpEvent", "noise_scale": -1.0},
    "more than every record": {"type": "PoissonSampledDpEvent", "sampling_probability": 2.0, "event": STEP},
    "a law for an event": {"type": "WorstDpEvent", "events": [STEP, {"type": "Poisson", "mean": 1.0}]},
    "the worst of nothing": {"type": "WorstDpEvent", "events": []},
    "an event for a law": {"type": "SelectionDpEvent", "event": STEP, "tries": STEP, "limit": None},
    "a threshold without a stop": {
        "type": "ThresholdDpEvent",
        "event": STEP,
        "tries": {"type": "EachPoint", "count": 2},
    },
    "no tries": {"type": "SelectionDpEvent", "event": STEP, "tries": {"type": "Poisson", "mean": 5.0}, "limit": -1},
    "a stop that comes too early": {"type": "RandomStoppingDpEvent", "event": STEP, "tries": STOP, "delta2": 1e-9},
    "a delta that gives back": {"type": "RandomStoppingDpEvent", "event": STEP, "tries": STOP, "delta2": -1.0},
    "an epoch of no steps": {"type": "EpochDpEvent", "steps": -5, "noise_multiplier": 1.0},
    "a sample of more than all": {
        "type": "SampledWithoutReplacementDpEvent",
        "source_dataset_size": 5,
        "sample_size": 6,
        "event": STEP,
    },
    "a table of negative counts": {
        "type": "Table",
        "step": STEP | {"noise_multiplier": 0.0},
        "noise_multipliers": [1],
        "counts": [-4],
    },
    "a table of a noisy step": {"type": "Table", "step": STEP, "noise_multipliers": [1.0], "counts": [5]},
    "a key that no event has": STEP | {"subsampled": 0.01},
    "neighbours that nobody knows": {"type": "StatedGaussianDpEvent", "noise_multiplier": 1.0, "adjacency": "other"},
}
DRAW = {"plan": "0" * 12, "attempt": 1, "tries": [0, 1]}
OPEN = {
    "epsilon": 24,
    "delta": 1e-5,
    "adjacency": "add_or_remove_one",
    "unit": "record",
    "policy": {"kind": "addition"},
}
OTHERS: dict[str, tuple[str, Any]] = {
    "a threshold in words": ("draw", DRAW | {"threshold": "0.5"}),
    "a threshold that is none": ("draw", DRAW | {"threshold": None}),
    "a threshold that is no number": ("draw", DRAW | {"threshold": math.nan}),
    "noise for a try in words": ("draw", DRAW | {"handicaps": ["1", "2"]}),
    "tries by name": ("draw", DRAW | {"tries": {}}),
    "a salt that is a list": ("winner", {"salt": ["1" * 64]}),
    "proposals by name": ("proposals", {"plan": "7beb1ecff388", "proposals": {}}),
    "half a point": ("proposals", {"plan": "7beb1ecff388", "proposals": [0.5]}),
    "a launch that is a list": ("launch", {"nonce": ["1" * 32]}),
    "a launch that is an empty text": ("launch", ""),
    "a launch without end": ("launch", {"nonce": DEEP}),
    "a place without a ledger": ("place", {"place": "ledger", "identity": math.inf}),
    "a place without end": ("place", {"place": DEEP, "identity": "a" * 32}),
    "a budget that is true": ("entry", {"kind": "open", "body": OPEN | {"epsilon": True}}),
    "a plan that is shared by number": ("plan", KINDS["plan"].examples()[0] | {"shared": 0}),
    "a target in words": ("plan", KINDS["plan"].examples()[0] | {"target_epsilon": "2"}),
    "a version that is true": ("result", KINDS["result"].examples()[0] | {"format": True}),
    "notes by name": ("plan", KINDS["plan"].examples()[0] | {"notes": {"a": 1}}),
}


def refusal(name: str, folder: Path, form: Any) -> str:
    kind = KINDS[name]
    (folder / kind.file).write_bytes(written(form))
    with pytest.raises(DpsweepError) as refused:
        kind.read(folder / kind.file)
    return str(refused.value)


@pytest.mark.parametrize("what", EVENTS)
def test_an_event_that_no_mechanism_has_is_no_event(tmp_path: Path, what: str) -> None:
    """Many of them were priced, some at 0."""
    assert "\n" not in refusal("event", tmp_path, {"version": 1, "event": EVENTS[what]})


@pytest.mark.parametrize("form", [{"version": True, "event": STEP}, {"version": 1, "event": [STEP]}, {"version": 1}])
def test_what_is_not_one_event_is_none(tmp_path: Path, form: Any) -> None:
    assert refusal("event", tmp_path, form)


@pytest.mark.parametrize("what", OTHERS)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, what: str) -> None:
    name, form = OTHERS[what]
    assert "\n" not in refusal(name, tmp_path, form)


@pytest.mark.parametrize(
    "form", [[["a", [1.0, 0.5]]], {"a": ["1", 2]}, {"a": [1]}, {"a": 1.5}, {"a": [-1.0, 0.0]}, DEEP]
)
def test_times_that_cannot_be_read_are_unknown(tmp_path: Path, form: Any) -> None:
    """A cache of step times is no reason to end a sweep."""
    path = tmp_path / "speeds.json"
    path.write_bytes(written(form))
    assert Speeds(path=path, device="cpu", threads=1, most=1)._read_stored_costs() == {}


@pytest.mark.parametrize("form", [DEEP, [], {"ledger": ["a"]}, {"ledger": "../../x"}])
def test_a_rehearsal_that_names_no_ledger_is_refused(tmp_path: Path, form: Any) -> None:
    (tmp_path / "rehearsal.json").write_bytes(written(form))
    with pytest.raises(DpsweepError, match="to name the scratch ledger"):
        scratch_ledger_of_folder(tmp_path)
