"""Pictures in folders by class: what is read, what is refused, and that classes and sizes are the declaration's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.sets.own_pictures import ImageFolder
from dpsweep.trainers.data.split import pseudo_random_part_mask
from dpsweep.trainers.features.interface import InputForm

SHAPE = (3, 4, 5)
PHOTOS = ImageFolder(
    name="photos",
    records=6,
    test_records=0,
    shape=SHAPE,
    classes=3,
    unit="record",
    path="photos",
    labels=("healthy", "sick", "unclear"),
)
UNITS = {"unit": "patient", "unit_column": "patient", "units": 3, "contribution_cap": 2}
BY_PATTERN = dataclasses.replace(PHOTOS, unit_pattern=r".*/(?P<patient>P\d+)_.*", **UNITS)
BY_TABLE = dataclasses.replace(PHOTOS, unit_file="photos/patients.csv", **UNITS)
NAMES = ("healthy/P1_1.png", "sick/P1_2.png", "sick/P1_3.png", "healthy/P2_1.png", "sick/left/P3_1.png")


def pixels(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def picture(path: Path, array: np.ndarray, mode: str | None = None, **options: Any) -> None:
    """Writes an array [channels, height, width]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.ascontiguousarray(array.transpose(1, 2, 0).squeeze()))
    (image if mode is None else image.convert(mode)).save(path, **options)


def written(folder: Path) -> Path:
    for seed, name in enumerate(NAMES):
        picture(folder / "photos" / name, pixels(seed))
    lines = [f"{name},{name.rsplit('/')[-1].split('_')[0]}" for name in NAMES]
    (folder / "photos" / "patients.csv").write_text("\n".join(["file,patient", *lines]) + "\n")
    (folder / "photos" / "healthy" / ".DS_Store").write_bytes(b"what systems leave there")
    return folder


def test_pictures_are_read_in_the_order_of_their_names_with_the_declared_classes(tmp_path: Path) -> None:
    private, public = PHOTOS.load(written(tmp_path))
    assert public is None
    assert private.units is None
    order = [0, 1, 2, 3, 4]
    assert torch.equal(private.features, torch.from_numpy(np.array([pixels(seed) for seed in order])))
    assert private.labels.tolist() == [0, 1, 1, 0, 1]
    assert torch.allclose(private.inputs(slice(0, 5), "cpu"), private.features / 255.0)


def test_the_normalisation_is_the_declarations(tmp_path: Path) -> None:
    scaled = dataclasses.replace(PHOTOS, mean=0.5, std=0.25)
    private, _ = scaled.load(written(tmp_path))
    assert torch.allclose(private.inputs(slice(0, 5), "cpu"), (private.features / 255.0 - 0.5) / 0.25)
    form = scaled.preprocessing
    assert (form["kind"], form["mean"], form["std"], form["labels"]) == ("array", 0.5, 0.25, [*PHOTOS.labels])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_colours_are_those_that_the_shape_declares(tmp_path: Path, channels: int, mode: str) -> None:
    name = "sick/a.jpg" if mode == "CMYK" else "sick/a.png"
    picture(tmp_path / "photos" / name, pixels(0), mode)
    private, _ = dataclasses.replace(PHOTOS, shape=(channels, 4, 5)).load(tmp_path)
    with Image.open(tmp_path / "photos" / name) as image:
        expected = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(4, 5, channels)
    assert torch.equal(private.features[0], torch.from_numpy(expected.transpose(2, 0, 1).copy()))


def test_transparency_is_left_out(tmp_path: Path) -> None:
    palette = Image.fromarray(pixels(0).transpose(1, 2, 0)).convert("P")
    (tmp_path / "photos" / "sick").mkdir(parents=True)
    palette.save(tmp_path / "photos" / "sick" / "a.png", transparency=bytes(range(256)))
    private, _ = PHOTOS.load(tmp_path)
    expected = np.asarray(palette.convert("RGB")).transpose(2, 0, 1).copy()
    assert torch.equal(private.features[0], torch.from_numpy(expected))


@pytest.mark.parametrize("by_unit", [BY_PATTERN, BY_TABLE], ids=["pattern", "table"])
def test_the_units_are_those_of_the_names_or_of_the_table_and_are_capped(tmp_path: Path, by_unit: ImageFolder) -> None:
    private, _ = by_unit.load(written(tmp_path))
    assert private.units is not None
    assert private.units.names == (b"P1", b"P2", b"P3")
    assert sorted(private.units.of.tolist()) == [0, 0, 1, 2], "P1 keeps two of three, in two classes"
    assert by_unit.verify(tmp_path) == PHOTOS.verify(tmp_path)


def test_a_records_inputs_and_contents_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    together, _ = PHOTOS.load(written(tmp_path))
    alone = tmp_path / "alone"
    picture(alone / "photos" / NAMES[2], pixels(2))
    found, _ = PHOTOS.load(alone)
    assert torch.equal(found.features[0], together.features[2])
    assert [*found.bytes_of_each_record()] == [[*together.bytes_of_each_record()][2]]


def test_a_part_is_decided_by_the_file_and_its_label_and_not_by_its_name(tmp_path: Path) -> None:
    """Decoders of JPEG differ between machines, the bytes of a file do not."""
    known, _ = PHOTOS.load(written(tmp_path))
    (tmp_path / "photos" / "sick" / "P1_2.png").rename(tmp_path / "photos" / "sick" / "other.png")
    renamed, _ = PHOTOS.load(tmp_path)
    assert sorted(renamed.bytes_of_each_record()) == sorted(known.bytes_of_each_record())
    (tmp_path / "photos" / "sick" / "other.png").rename(tmp_path / "photos" / "healthy" / "other.png")
    relabelled, _ = PHOTOS.load(tmp_path)
    assert len({*relabelled.bytes_of_each_record()} & {*known.bytes_of_each_record()}) == 4
    mask = pseudo_random_part_mask(known, 0.5, Adjacency.ADD_OR_REMOVE_ONE)
    changed = dataclasses.replace(known, features=known.features + 1)
    assert np.array_equal(mask, pseudo_random_part_mask(changed, 0.5, Adjacency.ADD_OR_REMOVE_ONE))


def test_another_label_moves_no_record_to_another_position(tmp_path: Path) -> None:
    """Under replacement of one record, positions decide the part of a record."""
    known, _ = PHOTOS.load(written(tmp_path))
    (tmp_path / "photos" / NAMES[3]).rename(tmp_path / "photos" / "sick" / "P2_1.png")
    found, _ = PHOTOS.load(tmp_path)
    assert torch.equal(found.features, known.features)
    assert (found.labels != known.labels).nonzero().flatten().tolist() == [3]


def test_the_pictures_are_recognised_under_any_name_class_and_place(tmp_path: Path) -> None:
    known = PHOTOS.verify(written(tmp_path))
    for seed, name in enumerate(NAMES):
        picture(tmp_path / "copies" / "all" / f"{9 - seed}{Path(name).suffix}", pixels(seed))
    copies = dataclasses.replace(PHOTOS, name="copies", path="copies", labels=("all",), classes=1, mean=0.5)
    assert copies.verify(tmp_path) == known
    picture(tmp_path / "copies" / "all" / "more.png", pixels(9))
    assert copies.verify(tmp_path) != known


def test_a_test_folder_is_public_and_plays_no_part_in_the_account(tmp_path: Path) -> None:
    known = PHOTOS.verify(written(tmp_path))
    both = dataclasses.replace(BY_PATTERN, test_path="public", test_records=1)
    picture(tmp_path / "public" / "sick" / "a.jpg", pixels(7))
    private, public = both.load(tmp_path)
    assert public is not None
    assert (len(private), len(public), public.units) == (4, 1, None)
    assert both.verify(tmp_path) == known
    (tmp_path / "public" / "sick" / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(BadInput, match=r"^Expected sick/a\.jpg in public to be a whole PNG or JPEG picture"):
        both.verify(tmp_path)


def test_a_class_without_a_folder_and_a_folder_without_pictures_are_fine(tmp_path: Path) -> None:
    (tmp_path / "photos" / "sick").mkdir(parents=True)
    private, _ = PHOTOS.load(tmp_path)
    assert private.features.shape == (0, *SHAPE)
    assert PHOTOS.verify(tmp_path)
    assert BY_PATTERN.load(tmp_path)[0].number_of_units == 0


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({}, "photos"),
        ({"path": "nowhere"}, "nowhere"),
        ({"path": "here", "test_path": "elsewhere", "test_records": 1}, "elsewhere"),
        ({"path": "here", "unit_file": "who.csv", **UNITS}, r"who\.csv"),
    ],
)
def test_an_absent_folder_is_one_sentence_with_the_next_step(
    tmp_path: Path, changed: dict[str, Any], missing: str
) -> None:
    (tmp_path / "here").mkdir()
    absent = dataclasses.replace(PHOTOS, **changed)
    for look in (absent.locate, absent.verify, absent.load):
        with pytest.raises(BadInput, match=rf"^photos needs {tmp_path}/{missing}: put it there, or say data="):
            look(tmp_path)


def test_bad_pictures_are_one_sentence_before_anything_is_charged(tmp_path: Path) -> None:
    place = written(tmp_path) / "photos" / "sick" / "P9_1.png"
    picture(place, pixels(0, (3, 60, 50)))
    large = place.read_bytes()
    picture(place, pixels(0))
    whole = place.read_bytes()
    cases = {
        "sick/P9_1.png in photos to be a picture of 4 x 5 pixels, as dataset.shape says, got 60 x 50": large,
        "sick/P9_1.png in photos to be a whole PNG or JPEG picture, got another kind of file.": b"GIF89a" + whole,
        "sick/P9_1.png in photos to be a whole PNG or JPEG picture, got": whole[:-30],
        "sick/P9_1.png in photos to be a whole PNG": b"",
        "sick/P9_1.png in photos to be a whole PNG or": whole[:60] + b"\xff" * 9 + whole[69:],
    }
    for sentence, content in cases.items():
        place.write_bytes(content)
        for look in (PHOTOS.verify, PHOTOS.load):
            with pytest.raises(BadInput) as refusal:
                look(tmp_path)
            assert str(refusal.value).startswith(f"Expected {sentence}")
            assert "\n" not in str(refusal.value)


def test_pictures_of_16_bits_are_read_in_full_where_the_scale_says_so(tmp_path: Path) -> None:
    wide = np.random.default_rng(3).integers(0, 65_536, (4, 5), dtype=np.uint16)
    picture(tmp_path / "photos" / "sick" / "a.png", wide[None])
    with pytest.raises(BadInput, match=r"^Expected sick/a\.png in photos to have 8 bits a channel, as dataset\.scale="):
        PHOTOS.verify(tmp_path)
    grey = dataclasses.replace(PHOTOS, shape=(1, 4, 5), scale=65_535.0, mean=0.5, std=0.5)
    private, _ = grey.load(tmp_path)
    assert private.features.dtype == torch.float32
    assert np.array_equal(private.features[0, 0].numpy(), wide)
    expected = torch.from_numpy((wide / 65_535 - 0.5) / 0.5).float()
    assert torch.allclose(private.inputs(slice(0, 1), "cpu")[0, 0], expected, atol=1e-6)
    form = grey.preprocessing
    assert (form["bounds"], form["scale"]) == ([0.0, 65_535.0], 65_535.0)
    assert PHOTOS.preprocessing["bounds"] is None
    extracted = InputForm(shape=(1, 4, 5), preprocessing=form)
    assert extracted.input_range == (-1.0, 1.0), "an extractor of bytes gets the range of bytes"
    picture(tmp_path / "photos" / "sick" / "b.png", pixels(0))
    with pytest.raises(BadInput, match=r"^Expected sick/b\.png in photos to have 16 bits a channel, as .* got 8"):
        grey.verify(tmp_path)


def test_pictures_are_turned_as_declared_and_the_form_says_so(tmp_path: Path) -> None:
    lying = pixels(0, (3, 5, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(tmp_path / "photos" / "sick" / "a.png", lying, exif=exif)
    with pytest.raises(BadInput, match=r"^Expected sick/a\.png in photos to be stored upright, .* orientation 6: "):
        PHOTOS.verify(tmp_path)
    turning = dataclasses.replace(PHOTOS, orientation="exif")
    private, _ = turning.load(tmp_path)
    assert np.array_equal(private.features[0].numpy(), np.rot90(lying, -1, (1, 2)))
    assert turning.preprocessing == PHOTOS.preprocessing | {"orientation": "exif"}
    assert "orientation" not in PHOTOS.preprocessing
    untouched = dataclasses.replace(PHOTOS, orientation="ignored", shape=(3, 5, 4))
    assert np.array_equal(untouched.load(tmp_path)[0].features[0].numpy(), lying)
    assert untouched.preprocessing["orientation"] == "ignored"
    assert turning.verify(tmp_path) == untouched.verify(tmp_path)


def test_all_pictures_that_cannot_be_used_are_named_at_once(tmp_path: Path) -> None:
    written(tmp_path)
    for place in range(23):
        (tmp_path / "photos" / "sick" / f"P9_{place:02}.png").write_bytes(b"")
    picture(tmp_path / "photos" / "unclear" / "Q1_1.png", pixels(0, (3, 5, 5)))
    for look in (PHOTOS.verify, PHOTOS.load):
        with pytest.raises(BadInput) as refusal:
            look(tmp_path)
        told = str(refusal.value)
        assert "sick/P9_19.png and 3 more; and to be a picture of 4 x 5 pixels" in told
        assert told.endswith("got 5 x 5 at unclear/Q1_1.png; resize pictures one at a time.")
        assert "\n" not in told


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (
            "unknown/a.png",
            r"the folders in photos to be among dataset\.labels=\['healthy', .*\], got 'unknown': if",
        ),
        ("a.png", r"a\.png in photos to lie in the folder of a class\."),
        ("sick/notes.txt", r"sick/notes\.txt in photos to be a \.png or \.jpg or \.jpeg\."),
    ],
)
def test_what_has_no_declared_class_is_refused(tmp_path: Path, file: str, sentence: str) -> None:
    place = written(tmp_path) / "photos" / file
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"")
    with pytest.raises(BadInput, match=f"^Expected {sentence}"):
        PHOTOS.verify(tmp_path)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (NAMES[1:], r"healthy/P1_1\.png to say whose record it is, by a row in photos/patients\.csv\."),
        ((*NAMES, NAMES[0]), r"healthy/P1_1\.png to have one unit in photos/patients\.csv, got two\."),
        (("",), r"file in line 2 of photos/patients\.csv to say whose record it is, got an empty cell\."),
    ],
)
def test_a_picture_without_one_unit_is_refused(tmp_path: Path, lines: tuple[str, ...], sentence: str) -> None:
    rows = [f"{name},P{place}" for place, name in enumerate(lines)]
    (written(tmp_path) / "photos" / "patients.csv").write_text("\n".join(["file,patient", *rows]) + "\n")
    for look in (BY_TABLE.verify, BY_TABLE.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}$"):
            look(tmp_path)


def test_a_name_that_the_pattern_does_not_match_is_refused(tmp_path: Path) -> None:
    picture(written(tmp_path) / "photos" / "sick" / "scan.png", pixels(8))
    with pytest.raises(
        BadInput, match=r"^Expected sick/scan\.png to say whose record it is, by dataset\.unit_pattern="
    ):
        BY_PATTERN.verify(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": []}, r"dataset\.labels=\[\] to be a list of values"),
        ({"labels": ["a", "a", "b"]}, "to be distinct"),
        ({"classes": 2}, r"dataset\.classes=2 == 3, as many as labels"),
        ({"shape": (4, 5)}, r"dataset\.shape=\[4, 5\] of \[1 or 3, height, width\]"),
        ({"shape": (4, 5, 3)}, r"dataset\.shape=\[4, 5, 3\] of \[1 or 3, height, width\]"),
        ({"std": 0.0}, "std=0.0 > 0"),
        ({"orientation": "upright"}, r"dataset\.orientation='upright' to be one of stored, exif, ignored"),
        ({"path": ""}, r"dataset\.path='' to be a text"),
        ({"test_path": ""}, r"dataset\.test_path='' to be null or a text"),
        ({"test_path": "./photos", "test_records": 3}, r"dataset\.test_path=\./photos to be another one than"),
        ({"test_records": 3}, r"dataset\.test_records=3 with dataset\.test_path=None"),
        ({"unit_pattern": "(?P<patient>.*)"}, r"dataset\.unit_pattern=.* to be null where no dataset\.unit_column"),
        ({"unit_file": "who.csv"}, r"dataset\.unit_file=who\.csv to be null"),
        (UNITS, r"with either dataset\.unit_pattern or dataset\.unit_file"),
        ({**UNITS, "unit_pattern": "(?P<patient>.*)", "unit_file": "who.csv"}, "with either"),
        ({**UNITS, "unit_pattern": "(?P<user>.*)"}, r"to have the group \(\?P<patient>\.\.\.\)"),
        ({**UNITS, "unit_pattern": "(?P<patient>"}, "to be a regular expression, got"),
        ({**UNITS, "unit_pattern": 3}, "to be a regular expression, got"),
        ({**UNITS, "unit_file": ""}, "to name a table"),
        ({**UNITS, "unit_file": "who.csv", "unit_column": "file"}, "to name a table"),
        ({**UNITS, "unit_file": "who.csv", "units": None}, r"with dataset\.units, about how many of unit="),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Expected .*{sentence}"):
        dataclasses.replace(PHOTOS, **wrong)
