"""Laws over everything that reads a user's data: a record or a person more changes nothing about the others."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.stored_names.tags import HOMES, tags_of_family_text
from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.sets.own_arrays import Arrays, Npz, TorchDataset
from dpsweep.trainers.data.sets.own_pictures import ImageFolder
from dpsweep.trainers.data.sets.own_saved_sets import HuggingFace
from dpsweep.trainers.data.sets.own_tables import Table, TextSequences, TextTable
from dpsweep.trainers.data.split import pseudo_random_part_mask
from dpsweep.trainers.features.cache import FeatureCache
from dpsweep.trainers.features.extracted import Extracted
from tests.trainers.data.test_table_files import FORMATS
from tests.trainers.extractors import SIZE
from tests.trainers.features.test_extracted import extractor

pytestmark = pytest.mark.usefixtures("trusting")

pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")

ADD = Adjacency.ADD_OR_REMOVE_ONE
SHAPE, CAP = (1, 2, 3), 3
Row = tuple[str, int, int]
"""A person, the seed of the record's pixels, and its label."""

PEOPLE: tuple[Row, ...] = tuple(
    (f"P{person}", 10 * person + visit, (person + visit) % 2) for person in range(12) for visit in range(1 + person % 5)
)
DECLARED: dict[str, Any] = {"name": "own", "records": len(PEOPLE), "classes": 2, "unit": "record"}
UNITS: dict[str, Any] = {"unit": "patient", "unit_column": "who", "units": 12, "contribution_cap": CAP}


def pixels(row: Row) -> np.ndarray:
    return np.random.default_rng(row[1]).integers(0, 256, SHAPE, dtype=np.uint8)


def columns(rows: Sequence[Row]) -> dict[str, Any]:
    numbers = np.array([pixels(row).reshape(-1) for row in rows], dtype=np.int64).reshape(-1, 6)
    named = {f"x{place}": numbers[:, place] for place in range(6)}
    return {**named, "label": [row[2] for row in rows], "who": pa.array([row[0] for row in rows], pa.string())}


def table(folder: Path, rows: Sequence[Row], name: str) -> Table:
    FORMATS[name](pa.table(columns(rows)), folder / name)
    bounds = {f"x{place}": (0.0, 255.0) for place in range(6)}
    return Table(**DECLARED, shape=(6,), file=name, label="label", labels=("0", "1"), bounds=bounds)


def folder_of_pictures(folder: Path, rows: Sequence[Row]) -> ImageFolder:
    for person, seed, label in rows:
        path = folder / "pictures" / str(label) / f"{person}_{seed}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels((person, seed, label))[0]).save(path)
    (folder / "pictures").mkdir(exist_ok=True)
    return ImageFolder(**DECLARED, test_records=0, shape=SHAPE, path="pictures", labels=("0", "1"))


def saved_set(folder: Path, rows: Sequence[Row]) -> HuggingFace:
    arrays = pa.array([pixels(row).tolist() for row in rows], pa.list_(pa.list_(pa.list_(pa.uint8()))))
    FORMATS["saved"](pa.table(columns(rows) | {"image": arrays}), folder / "saved")
    given: dict[str, Any] = {"path": "saved", "features": "image", "label": "label", "labels": (0, 1)}
    return HuggingFace(**DECLARED, **given, test_records=0, shape=SHAPE, bounds=(0, 255))


def arrays_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    return {
        "x": np.array([pixels(row) for row in rows], dtype=np.uint8).reshape(-1, *SHAPE),
        "y": np.array([row[2] for row in rows], dtype=np.int64),
        "who": np.array([row[0] for row in rows], dtype=str),
    }


def arrays(folder: Path, rows: Sequence[Row]) -> Arrays:
    for name, array in arrays_of(rows).items():
        np.save(folder / f"{name}.npy", array)
    given: dict[str, Any] = {"path": str(folder), "features": "x", "labels": "y", "bounds": (0, 255)}
    return Arrays(**DECLARED, **given, test_records=0, shape=SHAPE)


def npz(folder: Path, rows: Sequence[Row]) -> Npz:
    np.savez(folder / "own.npz", **arrays_of(rows))
    given: dict[str, Any] = {"path": "own.npz", "features": "x", "labels": "y", "bounds": (0, 255)}
    return Npz(**DECLARED, **given, test_records=0, shape=SHAPE)


class Pictures(torch.utils.data.Dataset[Any]):
    """The arrays of an .npz file, one by one."""

    def __init__(self, path: str) -> None:
        arrays = np.load(path)
        self.x, self.y, self.who = arrays["x"], arrays["y"], arrays["who"]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.x[index], int(self.y[index])


def torch_dataset(folder: Path, rows: Sequence[Row]) -> TorchDataset:
    np.savez(folder / "torch.npz", **arrays_of(rows))
    source = {"_target_": f"{__name__}.Pictures", "path": str(folder / "torch.npz")}
    return TorchDataset(**DECLARED, test_records=0, shape=SHAPE, source=source, bounds=(0, 255))


@dataclass(frozen=True, kw_only=True)
class Shades:
    """A vocabulary of the numbers 0 to 255, which stand for shades from 0 to 1."""

    words: int = 256
    padding: int = 0
    file: str | None = None
    sha256: str | None = None

    def check_vocabulary_file(self) -> None:
        """There is no file."""

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> np.ndarray:
        rows = [list(map(int, text.split())) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, length) / np.float32(255)


def text_table(folder: Path, rows: Sequence[Row]) -> TextTable:
    texts = [" ".join(map(str, pixels(row).reshape(-1))) for row in rows]
    named = columns(rows)
    stored = {"text": pa.array(texts, pa.string()), "label": named["label"], "who": named["who"]}
    FORMATS["visits.csv"](pa.table(stored), folder / "own.csv")
    given: dict[str, Any] = {"file": "own.csv", "text": "text", "label": "label", "labels": ("0", "1")}
    return TextTable(**DECLARED, **given, shape=(6,), vocabulary=Shades())


def text_sequences(folder: Path, rows: Sequence[Row]) -> TextSequences:
    text_table(folder, rows)
    given: dict[str, Any] = {"file": "own.csv", "text": "text", "cut": True}
    return TextSequences(**DECLARED | {"classes": 256}, **given, shape=(6,), vocabulary=Shades())


READERS: dict[str, Callable[[Path, Sequence[Row]], Any]] = {
    **{f"table {name}": lambda folder, rows, name=name: table(folder, rows, name) for name in FORMATS},
    "text_table": text_table,
    "text_sequences": text_sequences,
    "image_folder": folder_of_pictures,
    "hugging_face": saved_set,
    "npz": npz,
    "arrays": arrays,
    "torch_dataset": torch_dataset,
}


def declared(reader: str, folder: Path, rows: Sequence[Row], *, by_unit: bool = False) -> DataSet:
    """The declaration of these rows, which are written into a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    dataset = READERS[reader](folder, rows)
    pattern = {"unit_pattern": r".*/(?P<who>P\d+)_.*"} if reader == "image_folder" else {}
    return dataclasses.replace(dataset, **UNITS, **pattern) if by_unit else dataset


def loaded(reader: str, folder: Path, rows: Sequence[Row], *, by_unit: bool = False) -> Records:
    return declared(reader, folder, rows, by_unit=by_unit).load(folder)[0]


def by_person(records: Records) -> dict[bytes, tuple[Counter[bytes], bool]]:
    """Each unit's records and its part of a split."""
    assert records.units is not None
    mask, found = pseudo_random_part_mask(records, 0.5, ADD), {}
    for content, unit, part in zip(records.bytes_of_each_record(), records.units.of, mask, strict=True):
        counts, _ = found.setdefault(records.units.names[unit], (Counter(), bool(part)))
        counts[content] += 1
    return found


def test_every_reader_of_a_users_data_is_listed() -> None:
    own = {tag for tag in tags_of_family_text("dataset").split(", ") if ".data.sets.own_" in HOMES[tag]}
    assert own == {reader.split()[0] for reader in READERS}
    assert "image_folder" in own


@pytest.mark.parametrize("reader", READERS)
def test_a_person_more_changes_nothing_about_the_others(reader: str, tmp_path: Path) -> None:
    known = by_person(loaded(reader, tmp_path / "known", PEOPLE, by_unit=True))
    assert max(counts.total() for counts, _ in known.values()) == CAP
    assert len({part for _, part in known.values()}) == 2
    more = [("P99", seed, seed % 2) for seed in range(900, 909)]
    rows = [*PEOPLE[:9], *more[:4], *PEOPLE[9:], *more[4:]]
    found = by_person(loaded(reader, tmp_path / "more", rows, by_unit=True))
    counts, _ = found.pop(b"P99")
    assert counts.total() == CAP
    assert found == known


@pytest.mark.parametrize("reader", READERS)
def test_a_record_less_moves_no_other_record_to_another_part(reader: str, tmp_path: Path) -> None:
    def parts(folder: str, rows: Sequence[Row]) -> dict[bytes, bool]:
        records = loaded(reader, tmp_path / folder, rows)
        return dict(
            zip(records.bytes_of_each_record(), pseudo_random_part_mask(records, 0.5, ADD).tolist(), strict=True)
        )

    known = parts("known", PEOPLE)
    assert len(known) == len(PEOPLE)
    for gone in (0, 7, len(PEOPLE) - 1):
        found = parts(f"without {gone}", [*PEOPLE[:gone], *PEOPLE[gone + 1 :]])
        assert len(found) == len(known) - 1
        assert found.items() <= known.items()


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gives_the_same_inputs(reader: str, tmp_path: Path) -> None:
    records = loaded(reader, tmp_path, PEOPLE)
    inputs = {tuple(row) for row in records.inputs(slice(None), "cpu").flatten(1).mul(255).round().int().tolist()}
    assert inputs == {tuple(pixels(row).reshape(-1).tolist()) for row in PEOPLE}


@pytest.mark.parametrize("reader", READERS)
def test_no_records_are_fine(reader: str, tmp_path: Path) -> None:
    dataset = declared(reader, tmp_path, (), by_unit=True)
    assert dataset.verify(tmp_path)
    assert dataset.load(tmp_path)[0].number_of_units == 0


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "text_sequences"])
@pytest.mark.parametrize("by_unit", [False, True])
def test_frozen_features_keep_units_labels_and_split(reader: str, by_unit: bool, tmp_path: Path) -> None:
    of = declared(reader, tmp_path, PEOPLE, by_unit=by_unit)
    raw, _ = of.load(tmp_path)
    extracted = Extracted(of=of, extractor=extractor(tmp_path))
    found = extracted.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "cache"))
    assert found.features.shape == (len(raw), SIZE)
    assert torch.equal(found.labels, raw.labels)
    assert found.units is raw.units
    assert [*found.bytes_of_each_record()] == [digest.tobytes() for digest in raw.digest_of_each_record()]
    if by_unit:
        assert np.array_equal(pseudo_random_part_mask(found, 0.5, ADD), pseudo_random_part_mask(raw, 0.5, ADD))
    chosen = found.select(np.array([4, 2]))
    assert [*chosen.bytes_of_each_record()] == [[*found.bytes_of_each_record()][place] for place in (4, 2)]


@pytest.mark.parametrize("reader", READERS)
def test_the_data_are_recognised_again_and_other_data_are_not(reader: str, tmp_path: Path) -> None:
    known = declared(reader, tmp_path / "known", PEOPLE).verify(tmp_path / "known")
    again = declared(reader, tmp_path / "again", PEOPLE, by_unit=True).verify(tmp_path / "again")
    assert again == known
    assert declared(reader, tmp_path / "fewer", PEOPLE[1:]).verify(tmp_path / "fewer") != known


def test_sequences_have_no_frozen_features(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^Expected features=none with dataset\.name=own, whose records are token"):
        Extracted(of=declared("text_sequences", tmp_path, PEOPLE), extractor=extractor(tmp_path))
