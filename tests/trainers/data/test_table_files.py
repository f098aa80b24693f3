"""The same table in every format: the same records, the same units, and one sentence for what cannot be read."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.sets.own_tables import Table

pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

VISITS: dict[str, list[Any]] = {
    "patient": ["P1", "P2", "P1", " P3", "P1"],
    "weight": [50.0, 95.0, 40.0, 150.5, 60.0],
    "ill": ["yes", "no", "no", "yes", "yes"],
    "age": [18, 90, 54, 200, -5],
    "ward": ["a", "b", None, "c", "a"],
    "beds": [1, 2, 3, 2, None],
}
TABLE = Table(
    name="visits",
    records=5,
    shape=(6,),
    classes=2,
    unit="patient",
    file="visits.csv",
    label="ill",
    labels=("no", "yes"),
    bounds={"weight": (40, 150), "age": (18, 90)},
    categories={"ward": ("a", "b"), "beds": (1, 2)},
    other="zeros",
    unit_column="patient",
    units=3,
    contribution_cap=2,
)


def saved(table: pa.Table, folder: Path, files: int = 2) -> None:
    """As `datasets.Dataset.save_to_disk` writes it: streams of Arrow data, and what they are."""
    folder.mkdir()
    names = [f"data-{place:05d}-of-{files:05d}.arrow" for place in range(files)]
    rows = -(-max(1, table.num_rows) // files)
    for place, name in enumerate(names):
        part = table.slice(place * rows, rows)
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))


FORMATS: dict[str, Callable[[pa.Table, Path], None]] = {
    "visits.csv": lambda table, path: pyarrow.csv.write_csv(table, path),
    "visits.parquet": lambda table, path: pyarrow.parquet.write_table(table, path),
    "visits.pq": lambda table, path: pyarrow.parquet.write_table(table, path, 2, compression="gzip"),
    "visits.feather": lambda table, path: pyarrow.feather.write_feather(table, path),
    "visits.arrow": lambda table, path: pyarrow.feather.write_feather(table, path, "uncompressed", chunksize=2),
    "saved": saved,
}
TYPED = [name for name in FORMATS if name != "visits.csv"]


def written(folder: Path, name: str, **columns: Any) -> Table:
    """The declaration of a table in a file of this format, which it writes."""
    FORMATS[name](pa.table(VISITS | columns), folder / name)
    return dataclasses.replace(TABLE, file=name)


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_table_gives_the_same_records_and_units_in_every_format(tmp_path: Path, name: str) -> None:
    private, public = written(tmp_path, name).load(tmp_path)
    first, _ = written(tmp_path, "visits.csv").load(tmp_path)
    assert public is None
    assert private.units is not None
    assert first.units is not None
    assert private.units.names == first.units.names == (b"P1", b"P2", b"P3")
    assert torch.equal(private.stored_features(), first.stored_features())
    assert torch.equal(private.labels, first.labels)
    assert len(private) == 4, "P1 keeps two of three"


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_becomes_the_declared_input(tmp_path: Path, name: str) -> None:
    by_record = dataclasses.replace(
        written(tmp_path, name), unit="record", unit_column=None, units=None, contribution_cap=None
    )
    ages, weights = [0, 1, 0.5, 1, 0], [10 / 110, 0.5, 0, 1, 20 / 110]
    beds = [[1, 0], [0, 1], [0, 0], [0, 1], [0, 0]]
    wards = [[1, 0], [0, 1], [0, 0], [0, 0], [1, 0]]
    expected = [[a, *b, *w, kg] for a, b, w, kg in zip(ages, beds, wards, weights, strict=True)]
    assert torch.allclose(by_record.load(tmp_path)[0].features, torch.tensor(expected))


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize(
    ("ages", "ill"),
    [
        (pa.array([18, 90, 54, 120, 3], pa.uint8()), pa.array(VISITS["ill"]).dictionary_encode()),
        (pa.array([18, 90, 54, 120, 3], pa.float32()), pa.array(VISITS["ill"], pa.large_string())),
        (pa.array([18, 90, 54, 120, 3], pa.int64()).cast(pa.decimal128(19, 0)), VISITS["ill"]),
    ],
)
def test_types_need_no_guessing(tmp_path: Path, name: str, ages: Any, ill: Any) -> None:
    features = written(tmp_path, name, age=ages, ill=ill).load(tmp_path)[0].stored_features()
    assert torch.equal(features, written(tmp_path, "visits.csv").load(tmp_path)[0].stored_features())


@pytest.mark.parametrize(
    ("ill", "labels"), [([1, 0, 0, 1, 1], (0, 1)), ([True, False, False, True, True], ("false", "true"))]
)
def test_whole_numbers_and_booleans_are_labels(tmp_path: Path, ill: list[Any], labels: tuple[Any, ...]) -> None:
    table = dataclasses.replace(written(tmp_path, "visits.parquet", ill=ill), labels=labels)
    by_text = written(tmp_path, "visits.csv").load(tmp_path)[0]
    assert torch.equal(table.load(tmp_path)[0].labels, by_text.labels)


@pytest.mark.parametrize("name", FORMATS)
def test_a_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    written(tmp_path, name, **{"blood.pressure, left": VISITS["weight"]})
    bounds = {"blood.pressure, left": (40, 150), "age": (18, 90)}
    table = dataclasses.replace(TABLE, file=name, bounds=bounds)
    assert table.load(tmp_path)[0].features.shape == (4, 6)


def test_whole_numbers_are_units(tmp_path: Path) -> None:
    private, _ = written(tmp_path, "visits.parquet", patient=[7, 8, 7, 9, 7]).load(tmp_path)
    assert private.units is not None
    assert private.units.names == (b"7", b"8", b"9")


@pytest.mark.parametrize("name", TYPED)
def test_a_table_is_recognised_in_every_typed_format_and_compression(tmp_path: Path, name: str) -> None:
    def content(folder: str, name: str, **columns: Any) -> tuple[Content, ...]:
        (tmp_path / folder).mkdir()
        return written(tmp_path / folder, name, **columns).verify(tmp_path / folder)

    known = content("known", name)
    assert all(content(other, other) == known for other in TYPED)
    assert content("changed", name, age=[18, 90, 54, 200, -4]) != known
    assert content("no null", name, beds=[1, 2, 3, 2, 0]) != known, "a missing value is no value"


@pytest.mark.parametrize("name", TYPED)
def test_no_rows_are_no_records(tmp_path: Path, name: str) -> None:
    FORMATS[name](pa.table(VISITS).slice(0, 0), tmp_path / name)
    table = dataclasses.replace(TABLE, file=name)
    assert table.load(tmp_path)[0].features.shape == (0, 6)
    assert table.load(tmp_path)[0].number_of_units == 0
    assert table.verify(tmp_path)


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"age": [18, None, 3, 4, 5]}, r"age in row 1 of NAME to have a number, got null\. .*"),
        (
            {"weight": [1.0, 2, float("nan"), 4, 5]},
            r"weight in row 2 of NAME to have a number, got nan\. .*",
        ),
        ({"weight": [1.0, 2, 3, 4, float("inf")]}, r"weight in row 4 of NAME to be a finite number, got inf\."),
        ({"weight": ["1", "2", "3", "4", "5"]}, r"weight in NAME to hold numbers, got string\."),
        (
            {"ill": ["yes", "no", "maybe", "no", "no"]},
            r"ill in row 2 of NAME to be a declared value, got 'maybe'\. Known: 'no', 'yes'\.",
        ),
        (
            {"ill": ["yes", "no", None, "no", "no"]},
            r"ill in row 2 of NAME to be a declared value, got null\. Known: .*",
        ),
        ({"ill": [1.0, 0, 0.5, 1, 1]}, r"ill in row 2 of NAME to be a text or a whole number, got 0\.5\."),
        ({"ward": [[1], [2], [3], [4], [5]]}, r"ward in NAME to hold texts or whole numbers, got list<.*>\."),
        (
            {"patient": ["P1", " ", "P2", "P3", "P4"]},
            r"patient in row 1 of NAME to say whose record it is, got an empty cell.*",
        ),
        (
            {"patient": ["P1", "P4", "P2", None, "P4"]},
            r"patient in row 3 of NAME to say whose record it is, got an empty cell.*",
        ),
        ({"patient": [None] * 5}, r"patient in row 0 of NAME to say whose record it is, got an empty cell.*"),
    ],
)
def test_a_bad_value_is_one_sentence_before_anything_is_charged(
    tmp_path: Path, name: str, columns: dict[str, Any], sentence: str
) -> None:
    table = written(tmp_path, name, **columns)
    for look in (table.verify, table.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence.replace('NAME', re.escape(name))}$"):
            look(tmp_path)


@pytest.mark.parametrize("name", TYPED)
def test_a_missing_column_and_one_that_is_there_twice_are_named(tmp_path: Path, name: str) -> None:
    table = dataclasses.replace(written(tmp_path, name), bounds={"height": (0, 1), "age": (18, 90)})
    with pytest.raises(
        BadInput, match=rf"^Expected one column height in {re.escape(name)}, got 0\. The nearest name is 'weight'\.$"
    ):
        table.verify(tmp_path)
    if name != "saved":
        twice = pa.table([*VISITS.values(), VISITS["age"]], names=[*VISITS, "age"])
        FORMATS[name](twice, tmp_path / name)
        with pytest.raises(
            BadInput, match=rf"^Expected one column age in {re.escape(name)}, got 2\. Rename the others in"
        ):
            dataclasses.replace(TABLE, file=name).verify(tmp_path)


def files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("damage", ["cut", "overwritten", "text", "empty"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str, damage: str) -> None:
    table = written(tmp_path, name)
    for file in files(tmp_path / name):
        if file.name == "dataset_info.json":
            continue  # says nothing about values
        whole = file.read_bytes()
        damages = {
            "cut": whole[: len(whole) // 2],
            "overwritten": b"\xff" * 40 + whole[40:],
            "text": b"x,y\n1,2\n",
            "empty": b"",
        }
        file.write_bytes(damages[damage])
        with pytest.raises(BadInput, match=rf"^Expected .*{re.escape(name)}.*[^.]\.$") as refusal:
            table.verify(tmp_path)
        assert "\n" not in str(refusal.value)
        file.write_bytes(whole)
    table.verify(tmp_path)


def test_a_changed_byte_of_a_page_is_found_where_the_file_has_checksums(tmp_path: Path) -> None:
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    pyarrow.parquet.write_table(pa.table(VISITS), tmp_path / "visits.parquet", **plain)
    whole = (tmp_path / "visits.parquet").read_bytes()
    place = whole.index(b"yes")
    (tmp_path / "visits.parquet").write_bytes(whole[:place] + b"yet" + whole[place + 3 :])
    with pytest.raises(BadInput, match=r"^Expected visits\.parquet to be a readable Parquet file, got: .*[^.]\.$"):
        dataclasses.replace(TABLE, file="visits.parquet").verify(tmp_path)


def test_a_folder_of_several_saved_data_sets_asks_for_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    for part in ("train", "test"):
        saved(pa.table(VISITS), tmp_path / "visits" / part)
    (tmp_path / "visits" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(BadInput, match=r"^Expected \S+ to be one .* parts train, test: .* visits/train\.$"):
        dataclasses.replace(TABLE, file="visits").verify(tmp_path)
    both = dataclasses.replace(TABLE, file="visits/train", test_file="visits/test", test_records=5)
    private, public = both.load(tmp_path)
    assert public is not None
    assert (len(private), len(public)) == (4, 5)


@pytest.mark.parametrize(
    "state",
    [
        {"_data_files": [{"filename": "data-00000-of-00002.arrow"}, {"filename": "state.json"}]},
        {"_data_files": []},
        {"_data_files": [{"filename": "../saved/data-00000-of-00002.arrow"}]},
        {"_data_files": [{"filename": "nowhere.arrow"}]},
        {"_data_files": [{"filename": "data-00000-of-00002.arrow"}], "_indices_files": [{"filename": "i.arrow"}]},
        {"_data_files": 3},
        {},
        [],
    ],
)
def test_a_saved_data_set_that_is_not_whole_is_one_sentence(tmp_path: Path, state: Any) -> None:
    table = written(tmp_path, "saved")
    (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
    with pytest.raises(BadInput, match=r"^Expected saved to be a readable saved data set, got: .*[^.]\.$"):
        table.verify(tmp_path)


@pytest.mark.parametrize("name", TYPED)
def test_without_pyarrow_one_sentence_says_what_to_install(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path, name)
    monkeypatch.setattr("dpsweep.trainers.data.table_files.find_spec", lambda name: None)
    for look in (table.locate, table.verify, table.load):
        with pytest.raises(BadInput, match=r"^Expected pyarrow to be installed.*: pip install 'dpsweep\[arrow\]'\.$"):
            look(tmp_path)
