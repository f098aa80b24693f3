"""A trial's declaration: a class of the user's inherits from the class that names all members of its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.trial.build import identity_for_initial_weights
from dpsweep.sweeper.trial.spec import build_object_of_config_part, declaration_from_config

pytestmark = pytest.mark.usefixtures("trusting")

BARE = """
class Bare:
    name, records, test_records, shape, classes, unit = "bare", 10, 0, (2,), 2, "record"
"""


@pytest.fixture
def config(compose_priced: Callable[[Sequence[str]], PricedPlan]) -> Mapping[str, Any]:
    return compose_priced(("dataset=digits", "trainer=dpsgd", "grid=few", "steps=2")).plan.trials[0].config


@pytest.mark.parametrize(
    ("part", "base"),
    [
        ("dataset", "trainers.data.interface.DataSet"),
        ("loss", "trainers.declarations.losses.Loss"),
        ("score", "trainers.declarations.scores.Score"),
        ("trainer", "trainers.methods.method.Trainer"),
    ],
)
def test_a_class_that_does_not_inherit_its_members_is_refused_in_one_sentence(
    config: Mapping[str, Any], part: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput) as refused:
        declaration_from_config({**config, part: {"_target_": "bare.Bare"}})
    assert str(refused.value) == (
        f"Expected {part}=Bare to inherit from dpsweep.{base}, which names all members that it has."
    )


TAKEN = """
from dataclasses import dataclass, field
from dpsweep.trainers.data.interface import DataSet

@dataclass(frozen=True, kw_only=True)
class Taken(DataSet):
    name: str
    records: int
    test_records: int
    shape: tuple
    classes: int
    unit: str
    unit_column: {declared}
    contribution_cap: int | None = 3
    def locate(self, folder): pass
    def verify(self, folder): return ()
    def load(self, folder): raise OSError
"""
NUMBERS = {"name": "x", "records": 10, "test_records": 0, "shape": [2], "classes": 2}


@pytest.mark.parametrize(
    ("declared", "given", "said"),
    [
        ("str", {"unit": "patient"}, r"Expected Taken\.unit_column to have a value, since DataSet has one"),
        ("str = field()", {"unit": "patient"}, "unit_column"),
        ("str | None = None", {"unit": "patient"}, "to be 'record' where no dataset.unit_column is given"),
        ("str | None = 'p'", {"unit": "patient"}, "units"),
    ],
    ids=["a field that would silently have a default", "not given", "units without a column", "a column without units"],
)
def test_a_data_set_with_half_a_declaration_of_units_is_refused(
    config: Mapping[str, Any],
    declared: str,
    given: Mapping[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each record would be a unit, or there would be as many units as records."""
    name = f"taken_{abs(hash(declared))}"
    (tmp_path / f"{name}.py").write_text(TAKEN.replace("{declared}", declared))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=said):
        declaration_from_config({**config, "dataset": {"_target_": f"{name}.Taken", **NUMBERS, **given}})


def test_the_points_of_a_repetition_start_from_the_same_weights_if_asked(
    compose_priced: Callable[[Sequence[str]], PricedPlan],
) -> None:
    grid = ("dataset=digits", "trainer=dpsgd,dpnsgd", "grid=few", "trainer.lr=1,2", "steps=2", "repeats=2")
    trials = compose_priced((*grid, "initial_weights=by_repetition")).plan.trials
    starts = {trial.id: identity_for_initial_weights(trial) for trial in trials}
    assert set(starts.values()) == {"repetition 1", "repetition 2"} and len(starts) == len(trials)
    own = {identity_for_initial_weights(trial) for trial in compose_priced(grid).plan.trials}
    assert len(own) == len(trials)
    with pytest.raises(BadInput, match=r"^Expected initial_weights='same' to be null or by_repetition\.$"):
        compose_priced((*grid, "initial_weights=same"))


def test_what_cannot_be_imported_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    for path, reason in (("nowhere.Net", "No module named 'nowhere'"), ("decimal.Net", "decimal has no Net")):
        with pytest.raises(BadInput, match=rf"model: Expected {path} to be importable: {reason}\."):
            build_object_of_config_part({"_target_": path}, "model")
    assert capfd.readouterr() == ("", "")
