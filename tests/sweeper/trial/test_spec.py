"""A trial's declaration: a class of the user's inherits from the class that names all members of its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.sweeper.trial.spec import declare

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
        declare({**config, part: {"_target_": "bare.Bare"}})
    assert str(refused.value) == (
        f"Expected {part}=Bare to inherit from dpsweep.{base}, which names all members that it has."
    )
