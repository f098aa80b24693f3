"""Pictures and arrays in saved data sets: bounded by the declaration, refused with the first bad row."""

from __future__ import annotations

import dataclasses
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.own_pictures import ImageFolder
from dpsweep.trainers.data.sets.own_saved_sets import HuggingFace
from tests.trainers.data.test_table_files import FORMATS, TYPED

pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")

SHAPE = (3, 4, 5)
PHOTOS = HuggingFace(
    name="photos",
    records=5,
    test_records=0,
    shape=SHAPE,
    classes=2,
    unit="record",
    path="photos",
    features="image",
    label="label",
    labels=("0", "1"),
    bounds=(0, 255),
)
UNITS: dict[str, Any] = {"unit": "patient", "unit_column": "who", "units": 3, "contribution_cap": 2}
ARRAYS = dataclasses.replace(PHOTOS, shape=(2, 3), features="scan", bounds=(-10, 10))
PIXELS = np.random.default_rng(0).integers(0, 256, (5, *SHAPE), dtype=np.uint8)
SCANS = np.arange(30.0).reshape(5, 2, 3) - 15


def png(pixels: np.ndarray) -> bytes:
    stream = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(stream, "png")
    return stream.getvalue()


FILES = [png(pixels) for pixels in PIXELS]


def written(folder: Path, name: str = "saved", **columns: Any) -> HuggingFace:
    """The declaration of a data set in this format, which it writes as the library does."""
    table = {
        "image": [{"bytes": content, "path": f"{place}.png"} for place, content in enumerate(FILES)],
        "scan": SCANS.tolist(),
        "label": [1, 0, 0, 1, 1],
        "who": ["P1", "P2", "P1", "P3", "P1"],
    }
    FORMATS[name](pa.table(table | columns), folder / name)
    return dataclasses.replace(PHOTOS, path=name)


@pytest.mark.parametrize("name", TYPED)
def test_pictures_are_decoded_clamped_and_scaled(tmp_path: Path, name: str) -> None:
    private, public = written(tmp_path, name).load(tmp_path)
    assert public is None
    assert private.labels.tolist() == [1, 0, 0, 1, 1]
    assert torch.equal(private.features, torch.from_numpy(PIXELS))
    assert torch.allclose(private.inputs(slice(0, 5), "cpu"), torch.from_numpy(PIXELS) / 255.0)


@pytest.mark.parametrize("features", ["image", "scan"])
def test_pictures_and_arrays_have_several_labels(tmp_path: Path, features: str) -> None:
    others = {"left": [1, 0, 0, 1, 1], "right": [0, 0, 1, 1, 0]}
    pictures = written(tmp_path, **others)
    one = pictures if features == "image" else dataclasses.replace(ARRAYS, path="saved")
    several = dataclasses.replace(one, label=["left", "right"])
    records, _ = several.load(tmp_path)
    assert records.labels.tolist() == [[1, 0], [0, 0], [0, 1], [1, 1], [1, 0]]
    assert several.preprocessing["label_names"] == list(several.label_names) == ["left", "right"]
    assert several.preprocessing["output"] == "labels"
    assert len({digest.tobytes() for digest in records.digest_of_each_record()}) == 5
    with pytest.raises(ValueError, match=r"^Expected dataset\.classes=3 == 2 >= 2, as many as label names\.$"):
        dataclasses.replace(several, classes=3)


@pytest.mark.parametrize("name", TYPED)
def test_arrays_are_clamped_and_scaled(tmp_path: Path, name: str) -> None:
    written(tmp_path, name)
    private, _ = dataclasses.replace(ARRAYS, path=name).load(tmp_path)
    expected = torch.from_numpy((np.clip(SCANS, -10, 10) + 10) / 20).float()
    assert torch.equal(private.inputs(slice(0, 5), "cpu"), expected)


@pytest.mark.parametrize(
    "scans",
    [
        SCANS.reshape(5, 6).tolist(),
        pa.FixedSizeListArray.from_arrays(pa.array(SCANS.reshape(-1), pa.float32()), 6),
        pa.array(SCANS.astype(int).tolist(), pa.large_list(pa.list_(pa.int8(), 3))),
    ],
)
def test_lists_of_any_kind_hold_the_same_numbers(tmp_path: Path, scans: Any) -> None:
    written(tmp_path, scan=scans)
    private, _ = dataclasses.replace(ARRAYS, path="saved").load(tmp_path)
    expected = torch.from_numpy((np.clip(SCANS, -10, 10) + 10) / 20).float()
    assert torch.equal(private.features, expected)


def test_the_units_are_the_columns_values_and_are_capped(tmp_path: Path) -> None:
    private, _ = dataclasses.replace(written(tmp_path), **UNITS).load(tmp_path)
    assert private.units is not None
    assert private.units.names == (b"P1", b"P2", b"P3")
    assert len(private) == 4, "P1 keeps two of three"


def test_labels_may_be_texts(tmp_path: Path) -> None:
    named = dataclasses.replace(written(tmp_path, label=["dog", "cat", "cat", "dog", "dog"]), labels=("cat", "dog"))
    assert named.load(tmp_path)[0].labels.tolist() == [1, 0, 0, 1, 1]
    assert named.preprocessing["labels"] == ["cat", "dog"]


def test_a_records_inputs_and_contents_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    together, _ = written(tmp_path).load(tmp_path)
    (tmp_path / "one").mkdir()
    columns = {"image": [{"bytes": FILES[2], "path": None}], "scan": [SCANS[2].tolist()], "label": [0], "who": ["x"]}
    alone, _ = written(tmp_path / "one", **columns).load(tmp_path / "one")
    assert torch.equal(alone.features[0], together.features[2])
    assert [*alone.bytes_of_each_record()] == [[*together.bytes_of_each_record()][2]]


def test_a_test_part_is_public_and_plays_no_part_in_the_account(tmp_path: Path) -> None:
    private = dataclasses.replace(written(tmp_path), **UNITS)
    (tmp_path / "photos").mkdir()
    test = written(tmp_path / "photos", who=[None] * 5)
    both = dataclasses.replace(private, test_path=f"photos/{test.path}", test_records=5)
    _, public = both.load(tmp_path)
    assert public is not None
    assert (len(public), public.units) == (5, None)
    assert both.verify(tmp_path) == private.verify(tmp_path)


def test_pictures_are_recognised_in_a_folder_too(tmp_path: Path) -> None:
    known = written(tmp_path).verify(tmp_path)
    for place, content in enumerate(FILES):
        (tmp_path / "folder" / "all").mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / "all" / f"{place}.png").write_bytes(content)
    fields = {"name": "other", "records": 5, "test_records": 0, "shape": SHAPE, "classes": 1, "unit": "record"}
    folder: Any = ImageFolder(path="folder", labels=("all",), **fields)  # type: ignore[arg-type]
    assert folder.verify(tmp_path) == known


def test_arrays_are_recognised_whatever_their_labels(tmp_path: Path) -> None:
    written(tmp_path)
    known = dataclasses.replace(ARRAYS, path="saved").verify(tmp_path)
    written(tmp_path, "visits.parquet", label=[0, 0, 0, 0, 0])
    assert dataclasses.replace(ARRAYS, path="visits.parquet", bounds=(0, 1)).verify(tmp_path) == known


def changed(row: int, value: Any) -> list[Any]:
    scans = SCANS.tolist()
    scans[row] = value
    return scans


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"scan": changed(3, [[1, 2, 3], [4, 5, None]])}, r"scan in row 3 of saved to hold numbers of .*\[2, 3\]"),
        ({"scan": changed(3, [[1, 2, 3], [4, 5]])}, r"scan in row 3 of saved to hold numbers of shape \[2, 3\]"),
        ({"scan": changed(3, [[1, 2, 3]])}, r"scan in row 3 of saved to hold numbers of shape \[2, 3\]"),
        ({"scan": changed(3, None)}, r"scan in row 3 of saved to hold numbers of shape \[2, 3\], without null\."),
        ({"scan": changed(3, [[1, 2, 3], [4, 5, float("nan")]])}, r"scan in saved to be finite .* at index 3\."),
        ({"scan": SCANS[:, :, :, None].tolist()}, r"scan in saved to hold numbers of shape \[2, 3\], got list<"),
        ({"scan": ["a"] * 5}, r"scan in saved to hold numbers of shape \[2, 3\], got string\."),
        ({"scan": [["a"] * 6] * 5}, r"scan in saved to hold numbers of shape \[2, 3\], got list<.*string>\."),
        ({"label": [1, 0, 0, 1, 2]}, r"label in row 4 of saved to be a declared value, got 2\."),
        ({"label": [1, None, 0, 1, 0]}, r"label in row 1 of saved to be a declared value, got null\."),
        (
            {"who": ["P1", None, "P1", "P3", "P1"]},
            r"who in row 1 of saved to say whose record it is, got an empty cell",
        ),
    ],
)
def test_wrong_rows_are_refused_before_anything_is_charged(
    tmp_path: Path, columns: dict[str, Any], sentence: str
) -> None:
    written(tmp_path, **columns)
    arrays = dataclasses.replace(ARRAYS, path="saved", **UNITS)
    for look in (arrays.verify, arrays.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            png(PIXELS[0][:, :3]),
            "image in row 1 of saved to be a picture of 4 x 5 pixels, as dataset.shape says, got 3",
        ),
        (FILES[0][:-40], "image in row 1 of saved to be a whole PNG or JPEG picture, got "),
        (b"", "image in row 1 of saved to be a whole PNG or JPEG picture, got another kind of file."),
        (None, "image in row 1 of saved to hold a picture, got null."),
    ],
)
def test_wrong_pictures_are_refused_before_anything_is_charged(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    images = [{"bytes": one, "path": "a.png"} for one in (FILES[0], content, *FILES[2:])]
    photos = written(tmp_path, image=images)
    for look in (photos.verify, photos.load):
        with pytest.raises(BadInput) as refusal:
            look(tmp_path)
        assert str(refusal.value).startswith(f"Expected {sentence}")


def rewritten(content: bytes, wide: bool = False, **options: Any) -> bytes:
    stream = BytesIO()
    with Image.open(BytesIO(content)) as image:
        other = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 256) if wide else image
        other.save(stream, "png", **options)
    return stream.getvalue()


def test_wrong_pictures_are_named_at_once(tmp_path: Path) -> None:
    images = [{"bytes": one, "path": "a.png"} for one in (b"", *FILES[1:4], b"GIF")]
    with pytest.raises(BadInput) as refusal:
        written(tmp_path, image=images).verify(tmp_path)
    assert str(refusal.value) == (
        "Expected each picture of saved to be a whole PNG or JPEG picture, got another kind of file at image in row 0, "
        "image in row 4."
    )


def test_pictures_are_turned_as_declared(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    images = [{"bytes": rewritten(one, exif=exif), "path": "a.png"} for one in FILES]
    photos = written(tmp_path, image=images)
    with pytest.raises(BadInput, match=r"^Expected each picture of saved to be stored upright, .* row 4; declare"):
        photos.verify(tmp_path)
    turning = dataclasses.replace(photos, orientation="exif")
    assert torch.equal(turning.load(tmp_path)[0].features, torch.from_numpy(PIXELS[:, :, ::-1, ::-1].copy()))
    assert turning.preprocessing == photos.preprocessing | {"orientation": "exif"}
    with pytest.raises(BadInput, match=r"^Expected dataset\.orientation=exif to be stored: scan in saved holds"):
        dataclasses.replace(turning, features="scan", shape=(2, 3)).verify(tmp_path)


def test_pictures_of_16_bits_are_read_in_full_where_the_bounds_say_so(tmp_path: Path) -> None:
    images = [{"bytes": rewritten(one, wide=True), "path": "a.png"} for one in FILES]
    photos = dataclasses.replace(written(tmp_path, image=images), shape=(1, 4, 5), bounds=(0, 65_280))
    private, _ = photos.load(tmp_path)
    grey = [np.asarray(Image.fromarray(one.transpose(1, 2, 0)).convert("L")) for one in PIXELS]
    expected = torch.from_numpy(np.array(grey) / 255).float()
    assert torch.allclose(private.inputs(slice(0, 5), "cpu")[:, 0], expected, atol=1e-6)
    with pytest.raises(BadInput, match=r"8 bits .*, as dataset.bounds=\[0.0, 255.0\] says, .*bounds=\[0, 65535\]"):
        dataclasses.replace(photos, bounds=(0, 255)).verify(tmp_path)


def test_what_holds_no_rows_of_the_declared_kind_is_one_sentence(tmp_path: Path) -> None:
    photos = written(tmp_path, image=[{"path": "a.png"}] * 5)
    with pytest.raises(BadInput, match=r"^Expected image in saved to hold the bytes of pictures, got struct<.*>\.$"):
        photos.verify(tmp_path)
    with pytest.raises(BadInput, match=r"^Expected one column images in saved, got 0\. The nearest name is 'image'\.$"):
        dataclasses.replace(photos, features="images").verify(tmp_path)
    with pytest.raises(BadInput, match=r"^Expected dataset\.shape=\[2, 3\] of \[1 or 3, height, width\]"):
        dataclasses.replace(written(tmp_path, "visits.pq"), shape=(2, 3)).verify(tmp_path)
    (tmp_path / "photos.csv").write_text("image,label\n1,0\n")
    with pytest.raises(BadInput, match=r"^Expected photos\.csv to be a folder of save_to_disk, or a file with one of"):
        dataclasses.replace(photos, path="photos.csv").locate(tmp_path)
    with pytest.raises(BadInput, match=rf"^photos needs {tmp_path}/nowhere: put it there, or say data="):
        dataclasses.replace(photos, path="nowhere").locate(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": []}, r"dataset\.labels=\[\] to be a list of values"),
        ({"classes": 3}, r"dataset\.classes=3 == 2, as many as labels"),
        ({"bounds": (1, 0)}, r"dataset\.bounds=.* finite and rising"),
        ({"path": ""}, r"dataset\.path='' to be a text"),
        ({"orientation": 6}, r"dataset\.orientation=6 to be one of stored, exif, ignored"),
        ({"features": None}, r"dataset\.features=None to be a text"),
        ({"label": "image"}, "to be distinct"),
        ({**UNITS, "unit_column": "image"}, "to be distinct"),
        ({**UNITS, "units": None}, r"with dataset\.units, about how many of unit="),
        ({"test_path": "b"}, r"dataset\.test_records=0 with dataset\.test_path=b"),
        ({"test_path": "photos", "test_records": 2}, "to be another one than"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Expected .*{sentence}"):
        dataclasses.replace(PHOTOS, **wrong)
