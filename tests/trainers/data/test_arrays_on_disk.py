"""Arrays on disk: the same records, parts and batches as an .npz file's, read row by row, passed once."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.sealed_parts import SealedParts
from dpsweep.trainers.data import arrays_on_disk
from dpsweep.trainers.data.arrays_on_disk import RecordPass, RowFile
from dpsweep.trainers.data.records import FeatureRows, Records
from dpsweep.trainers.data.sets.own_arrays import Arrays, Npz
from dpsweep.trainers.data.split import number_of_sealed_part, pseudo_random_part_mask, split_off_holdout

ADD = Adjacency.ADD_OR_REMOVE_ONE
COUNT = 300
GIVEN: dict[str, Any] = {
    **{"name": "scans", "records": COUNT, "test_records": 0, "shape": (3, 2), "classes": 4, "unit": "record"},
    **{"features": "x", "labels": "y", "bounds": (0, 255)},
}
DISK, NPZ = Arrays(path="scans", **GIVEN), Npz(path="scans.npz", **GIVEN)
UNITS: dict[str, Any] = {"unit": "patient", "unit_column": "who", "units": 60, "contribution_cap": 3}
PASS = RecordPass._pass_over_records


def written(folder: Path, kind: str = "uint8", **others: Any) -> Path:
    """The same arrays in both kinds of files."""
    rng = np.random.default_rng(7)
    arrays = {
        "x": rng.uniform(0, 255, (COUNT, 3, 2)).astype(kind),
        "y": rng.integers(0, 4, COUNT),
        "who": rng.integers(0, 60, COUNT),
        **others,
    }
    np.savez(folder / "scans.npz", **arrays)
    (folder / "scans").mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / "scans" / f"{name}.npy", array)
    return folder


def both(folder: Path, **declared: Any) -> tuple[Records, Records]:
    one, other = (dataclasses.replace(of, **declared).load(folder)[0] for of in (DISK, NPZ))
    assert one.is_on_disk
    assert not other.is_on_disk
    return one, other


def no_pass(*_: Any) -> Any:
    raise AssertionError("the records are passed again")


@pytest.mark.parametrize("bounds", [(0, 255), (-10, 300), (20, 100)])
@pytest.mark.parametrize("kind", ["uint8", "int16", "float16", "float32", "float64", ">f4", "bool"])
def test_records_parts_and_batches_are_those_of_the_same_npz_file(
    tmp_path: Path, kind: str, bounds: tuple[float, float]
) -> None:
    folder = written(tmp_path, kind)
    one, other = both(folder, bounds=bounds)
    assert one.scaling == other.scaling
    assert torch.equal(one.labels, other.labels)
    assert [*one.bytes_of_each_record()] == [*other.bytes_of_each_record()]
    for index in (slice(3, 90, 2), np.array([5, 6, 7, 299, 0, 0]), np.arange(COUNT) % 3 == 0, np.array([], dtype=int)):
        assert torch.equal(one.inputs(index, "cpu"), other.inputs(index, "cpu"))
        assert torch.equal(one.select(index).stored_features(), other.select(index).stored_features())
    ours, theirs = (split_off_holdout(records, fraction=0.3, adjacency=ADD) for records in (one, other))
    assert ours.holdout is not None
    assert theirs.holdout is not None
    for mine, its in ((ours.train, theirs.train), (ours.holdout, theirs.holdout)):
        assert torch.equal(mine.inputs(slice(None), "cpu"), its.inputs(slice(None), "cpu"))
        assert torch.equal(mine.labels, its.labels)
    sealed = SealedParts(share=0.4, parts=2)
    assert np.array_equal(number_of_sealed_part(one, sealed, ADD), number_of_sealed_part(other, sealed, ADD))
    assert DISK.verify(folder) == NPZ.verify(folder), "one account pays for both"


def test_units_and_the_records_that_they_keep_are_those_of_the_same_npz_file(tmp_path: Path) -> None:
    one, other = both(written(tmp_path), **UNITS)
    assert one.units is not None
    assert other.units is not None
    assert one.units.names == other.units.names
    assert np.array_equal(one.units.of, other.units.of)
    assert len(one) == len(other) < COUNT
    assert torch.equal(one.stored_features(), other.stored_features())
    assert np.array_equal(pseudo_random_part_mask(one, 0.5, ADD), pseudo_random_part_mask(other, 0.5, ADD))


def test_many_threads_read_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_on_disk, "_ALONE_BYTES", 0)
    monkeypatch.setattr(arrays_on_disk, "_BLOCK_BYTES", 100)
    one, other = both(written(tmp_path))
    drawn = np.random.default_rng(0).integers(0, COUNT, 1000)
    assert torch.equal(one.inputs(drawn, "cpu"), other.inputs(drawn, "cpu"))
    assert np.array_equal(pseudo_random_part_mask(one, 0.5, ADD), pseudo_random_part_mask(other, 0.5, ADD))
    assert DISK.verify(tmp_path) == NPZ.verify(tmp_path)


def test_the_records_are_passed_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = written(tmp_path), tmp_path / "cache"
    known = DISK.verify_with_cache(folder, cache)
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    with monkeypatch.context() as patched:
        patched.setattr(RecordPass, "_pass_over_records", no_pass)
        assert DISK.verify_with_cache(folder, cache) == known
        records, _ = DISK.load_with_cache(folder, cache)
        mask = pseudo_random_part_mask(records, 0.5, ADD)
        for name in ("x", "y"):
            path = folder / "scans" / f"{name}.npy"
            content = path.read_bytes()
            path.write_bytes(content)
            with pytest.raises(AssertionError, match="passed again"):
                DISK.load_with_cache(folder, cache)
            with patched.context() as allowed:
                allowed.setattr(RecordPass, "_pass_over_records", PASS)
                assert DISK.verify_with_cache(folder, cache) == known
    expected, _ = NPZ.load(folder)
    assert np.array_equal(mask, pseudo_random_part_mask(expected, 0.5, ADD))


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:-8],
        lambda content: content.replace(b'"content": "', b'"content": "zz'),
        lambda content: b"",
        lambda content: b"[1]\n" + content,
    ],
)
def test_what_was_kept_and_then_edited_counts_for_nothing(tmp_path: Path, edit: Callable[[bytes], bytes]) -> None:
    folder, cache = written(tmp_path), tmp_path / "cache"
    known = DISK.verify_with_cache(folder, cache)
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    kept.write_bytes(edit(content))
    assert DISK.verify_with_cache(folder, cache) == known
    assert kept.read_bytes() == content
    one, other = DISK.load_with_cache(folder, cache)[0], NPZ.load(folder)[0]
    assert np.array_equal(pseudo_random_part_mask(one, 0.5, ADD), pseudo_random_part_mask(other, 0.5, ADD))


def test_other_bounds_and_other_units_are_another_pass(tmp_path: Path) -> None:
    folder, cache = written(tmp_path), tmp_path / "cache"
    for number, declared in enumerate(({}, {"bounds": (20, 100)}, UNITS), start=1):
        one = dataclasses.replace(DISK, **declared).load_with_cache(folder, cache)[0]
        other = dataclasses.replace(NPZ, **declared).load(folder)[0]
        assert np.array_equal(pseudo_random_part_mask(one, 0.5, ADD), pseudo_random_part_mask(other, 0.5, ADD))
        assert len([*cache.iterdir()]) == number


def test_without_room_for_it_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert DISK.verify_with_cache(written(tmp_path), tmp_path / "file" / "cache") == NPZ.verify(tmp_path)


def test_a_change_during_the_pass_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path)

    def passed_and_changed(one: RecordPass, labels: Any) -> Any:
        found = PASS(one, labels)
        np.save(folder / "scans" / "y.npy", np.zeros(COUNT, dtype=int))
        return found

    monkeypatch.setattr(RecordPass, "_pass_over_records", passed_and_changed)
    with pytest.raises(BadInput, match=r"^Expected x in scans to stay as it is while it is read: it was changed\.$"):
        DISK.verify_with_cache(folder, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_cut_under_a_job_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    records, _ = DISK.load(written(tmp_path))
    with (tmp_path / "scans" / "x.npy").open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(OSError, match="cut while it was read"):
        records.inputs(slice(None), "cpu")


def test_another_process_opens_the_file_itself(tmp_path: Path) -> None:
    records, _ = DISK.load(written(tmp_path))
    chosen = records.select(np.array([4, 200]))
    content = pickle.dumps(chosen)
    again = pickle.loads(content)
    assert len(content) < 5000
    assert torch.equal(again.inputs(slice(None), "cpu"), chosen.inputs(slice(None), "cpu"))
    assert isinstance(again.features, FeatureRows)
    assert again.to("cpu").features is again.features


def test_replaced_features_have_no_hashes_of_others(tmp_path: Path) -> None:
    records, _ = DISK.load(written(tmp_path))
    changed = dataclasses.replace(records, features=records.stored_features() // 2)
    expected = Records(features=changed.stored_features(), labels=records.labels)
    assert np.array_equal(pseudo_random_part_mask(changed, 0.5, ADD), pseudo_random_part_mask(expected, 0.5, ADD))


def test_a_missing_file_is_one_sentence_and_a_declaration_opens_none(tmp_path: Path) -> None:
    for name in ("x", "y"):
        folder = written(tmp_path)
        (folder / "scans" / f"{name}.npy").unlink()
        for look in (DISK.locate, DISK.verify, DISK.load):
            with pytest.raises(BadInput, match=rf"^scans needs {tmp_path}/scans/{name}\.npy: put it there, or say"):
                look(folder)
    assert "scans needs" in DISK.missing_files(Path("/nowhere"))
    assert not DISK.is_local, "a plan asks files of this kind for nothing"


def spoiled(index: tuple[int, ...], value: float) -> np.ndarray:
    features = np.zeros((COUNT, 3, 2), dtype=np.float32)
    features[index] = value
    return features


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": spoiled((250, 0, 1), np.nan)}, r"x in scans to be finite numbers, got another at index 250\.$"),
        ({"x": spoiled((7, 2, 0), -np.inf)}, r"x in scans to be finite numbers, got another at index 7\.$"),
        ({"x": np.zeros((COUNT, 3, 2), complex)}, r"x in scans to hold real numbers, got complex128\.$"),
        ({"x": np.zeros((COUNT, 3))}, r"x in scans of shape \[n, 3, 2\], got \[300, 3\]\.$"),
        ({"x": np.asfortranarray(np.zeros((COUNT, 3, 2)))}, r".*x\.npy to be a whole \.npy .*: .* column by column"),
        ({"y": np.full(COUNT, 4)}, r"y in scans in 0\.\.3, got 4 at index 0\.$"),
        ({"y": np.zeros(COUNT)}, r"y in scans to hold whole numbers, got float64\.$"),
        ({"y": np.zeros(5, int)}, r"y in scans of shape \[300\], as many as features, got \[5\]\.$"),
        ({"who": np.zeros(COUNT)}, r"who in scans to hold texts or whole numbers, got float64\.$"),
        ({"who": np.array(["P"] * 299 + [" "])}, r"who in scans to say whose .* at index 299\.$"),
    ],
)
def test_wrong_arrays_are_refused_with_the_first_that_is_wrong(
    tmp_path: Path, arrays: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays_on_disk, "_BLOCK_BYTES", 1000)
    declared = dataclasses.replace(DISK, **UNITS) if "who" in arrays else DISK
    folder = written(tmp_path, **arrays)
    for look in (declared.verify, declared.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(folder)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["x", "y"])
def test_objects_and_cut_files_are_refused_unread(tmp_path: Path, name: str) -> None:
    path = written(tmp_path) / "scans" / f"{name}.npy"
    content = path.read_bytes()
    np.save(path, np.array([Path()] * COUNT, dtype=object), allow_pickle=True)
    objects = path.read_bytes()
    for damaged in (objects, content[:-1], content + b"0", content[:50], b"", b"x,y\n"):
        path.write_bytes(damaged)
        for look in (DISK.verify, DISK.load):
            with pytest.raises(BadInput, match=rf"^Expected {path} to be a whole \.npy file of numbers, got: .*\.$"):
                look(tmp_path)


def test_no_row_is_read_for_the_shape_of_an_array(tmp_path: Path) -> None:
    """A file of 2^43 bytes that has none on the disk: only its header is read."""
    path = tmp_path / "x.npy"
    header = np.lib.format
    with path.open("wb") as stream:
        header.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (2**33, 1024)})
        start = stream.tell()
        stream.truncate(start + 2**43)
    file = RowFile.from_header(path)
    assert (file.shape, file.row_bytes) == ((2**33, 1024), 1024)
    assert not file.read_rows(np.array([2**33 - 1, 0])).any()
