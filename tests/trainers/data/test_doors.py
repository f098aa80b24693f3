"""Records are read through two doors: before the charge nothing comes out, after it they come to a session alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.trainers.data import doors
from dpsweep.trainers.data.doors import inspect_records, open_records, refuse_records
from dpsweep.trainers.data.sets.generated import Generated
from dpsweep.trainers.data.sets.own_arrays import Npz
from tests.places import READER

ROOT = Path(__file__).parents[3]
PRODUCT = ("accounting", "trainers", "sweeper", "reports", "dpsweep")
READERS = ("load", "load_with_cache", "verify", "verify_with_cache")
"""The methods of data sets that read records."""

OTHERS = {"json", "np", "torch", "OmegaConf", "yaml", "pickle", "tomllib", "entries[0]", "_NumpyArrayUnpickler"}
"""What else has a method of such a name."""

INSIDE = (
    "trainers/data/sets/",
    "trainers/data/doors.py",
    "trainers/data/interface.py",
    "trainers/features/extracted.py",
)
"""The data sets themselves, and the doors."""


def calls(path: Path) -> list[tuple[str, str]]:
    """The receiver and the name of each call of a method in a file."""
    found = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [(ast.unparse(one.value), one.attr) for one in found if isinstance(one, ast.Attribute)]


def test_nothing_reads_records_but_the_doors_and_the_data_sets() -> None:
    for path in (path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(INSIDE):
            reading = [one for one in calls(path) if one[1] in READERS and one[0].partition("(")[0] not in OTHERS]
            assert not reading, place
            assert "load_with_cache" not in path.read_text(), place


def test_records_are_opened_in_one_place_and_sessions_are_made_by_claims() -> None:
    opening, making = set(), set()
    for path in (path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        tree, place = ast.parse(path.read_text()), path.relative_to(ROOT).as_posix()
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {one.id for one in called if isinstance(one, ast.Name)}
        opening |= {place} if "open_records" in names else set()
        making |= {place} if "Session" in names or ("Session", "claim") in calls(path) else set()
    assert opening == {"trainers/training/run_records.py"}
    assert making == {"accounting/records/card.py", "sweeper/job/job_task.py"}


def test_no_door_before_the_charge_returns_a_record() -> None:
    returned = {name: inspect.signature(one).return_annotation for name, one in vars(doors).items() if name in DOORS}
    assert returned == DOORS


DOORS = {
    "inspect_records": "tuple[Content, ...]",
    "refuse_records": "None",
    "open_records": "tuple[Records, Records | None]",
}


@pytest.fixture
def visits(tmp_path: Path) -> Npz:
    np.savez(tmp_path / "visits.npz", x=np.zeros((8, 2), np.float32), y=np.arange(8) % 2)
    declared: dict[str, Any] = {"name": "visits", "records": 8, "test_records": 0, "shape": (2,), "classes": 2}
    return Npz(**declared, unit="record", path="visits.npz", features="x", labels="y", bounds=(0, 1))


def test_records_come_to_the_holder_of_a_session_alone(visits: Npz, tmp_path: Path) -> None:
    for none in (None, "a session", object()):
        with pytest.raises(ContractBroken, match="Nothing was claimed that pays for the records of visits"):
            open_records(none, visits, tmp_path, None)  # type: ignore[arg-type]
    assert len(open_records(READER, visits, tmp_path, None)[0]) == 8
    assert len(inspect_records(visits, tmp_path)) == 1
    assert refuse_records(visits, tmp_path, None, lambda private, test: None) is None  # type: ignore[func-returns-value]


def test_a_check_refuses_and_a_missing_file_is_one_sentence(visits: Npz, tmp_path: Path) -> None:
    def refuse(private: Any, test: Any) -> None:
        raise BadInput(f"Expected fewer than {len(private)} records.")

    with pytest.raises(BadInput, match="fewer than 8"):
        refuse_records(visits, tmp_path, None, refuse)
    with pytest.raises(BadInput, match=r"visits\.npz"):
        inspect_records(visits, tmp_path / "elsewhere")


def test_generated_records_are_nobodys() -> None:
    some = Generated(name="some", records=10, test_records=0, shape=(4,), classes=2, unit="record")
    assert len(open_records(None, some, None, None)[0]) == 10
