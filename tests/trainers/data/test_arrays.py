"""A header that lies is refused in one sentence, before memory is taken for what it declares."""

from __future__ import annotations

import io
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest
import torch
from numpy.lib import format as npy

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.arrays import (
    UnreadableArray,
    bounded_records,
    bounded_records_in_place,
    read_npy,
    read_npz_arrays_and_names,
)
from dpsweep.trainers.data.sets.images import parse_idx
from dpsweep.trainers.data.table_files import FORMATS, ArrowTable
from tests.trainers.data.sets.test_own_arrays import NPZ, written

ENOUGH = 1 << 22
"""Bytes that a refusal may take: no liar here declares less than a hundred times as much."""

HUGE = 1 << 40
Shape = tuple[int, ...]


def array(shape: Shape, content: bytes = bytes(48), descr: str = "<f8") -> bytes:
    """An .npy file with this shape in its header, whatever it holds."""
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue() + content


def archive(folder: Path, x: bytes, *, compression: int = zipfile.ZIP_STORED) -> Path:
    path = folder / "scans.npz"
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", array((3,), np.arange(3).tobytes(), "<i8"))
    return path


def refused(read: Callable[[], object], error: type[Exception]) -> str:
    """The one sentence of the refusal, which took little memory and no warning."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings(), pytest.raises(error) as caught:
            warnings.simplefilter("error")
            read()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sentence = str(caught.value)
    assert most < ENOUGH
    assert "\n" not in sentence
    assert "allow_pickle" not in sentence
    assert "max_header_size" not in sentence
    return sentence


LIARS = {
    "more than there is": array((HUGE, 1, 2)),
    "a little more": array((4, 1, 2)),
    "less": array((2, 1, 2)),
    "more than an address": array((1 << 62, 1 << 62)),
    "negative": array((-3, 1, 2)),
    "twice negative": array((-3, -1, 2)),
    "texts": array((HUGE,), descr="<U1000000"),
    "no header": b"\x93NUMPY",
    "another version": b"\x93NUMPY\x09\x09" + bytes(90),
    "a long header": b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little") + b" " * (1 << 20),
    "nothing": b"",
}


@pytest.mark.parametrize("name", LIARS)
def test_a_header_that_lies_is_refused(name: str, tmp_path: Path) -> None:
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive(tmp_path, LIARS[name], compression=compression)
        for look in (NPZ.verify, NPZ.load):
            sentence = refused(lambda look=look: look(tmp_path), BadInput)
            assert sentence.startswith("Expected scans.npz to be a whole .npz file of numbers, got: ")
    (tmp_path / "alone.npy").write_bytes(LIARS[name])
    refused(lambda: read_npy(tmp_path / "alone.npy"), UnreadableArray)


def test_a_directory_that_lies_is_refused(tmp_path: Path) -> None:
    """The list of an archive's files and the header agree on a size that the whole file cannot have."""
    path = archive(tmp_path, array((1 << 28,)), compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    size = (len(array((1 << 28,), b"")) + (8 << 28)) % (1 << 32)
    central = content.index(b"PK\x01\x02")
    content[central + 24 : central + 28] = size.to_bytes(4, "little")
    path.write_bytes(content)
    assert "declares" in refused(lambda: read_npz_arrays_and_names(path, ("x",)), UnreadableArray)


def test_what_deflates_best_is_read(tmp_path: Path) -> None:
    zeros = np.zeros(1 << 20)
    np.savez_compressed(tmp_path / "zeros.npz", x=zeros)
    arrays, listed = read_npz_arrays_and_names(tmp_path / "zeros.npz", ("x", "y"))
    assert listed == ("x",)
    assert np.array_equal(arrays["x"], zeros)


@pytest.mark.parametrize("make", [np.zeros, lambda shape: np.zeros(shape, order="F")])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_honest_arrays_are_read(shape: Shape, make: Callable[[Shape], np.ndarray], tmp_path: Path) -> None:
    honest = make(shape) + 1
    np.save(tmp_path / "one.npy", honest)
    assert np.array_equal(read_npy(tmp_path / "one.npy"), honest)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression_is_refused(kind: int, tmp_path: Path) -> None:
    path = archive(tmp_path, array((6,)), compression=kind)
    assert "compressed in another way" in refused(lambda: read_npz_arrays_and_names(path, ("x",)), UnreadableArray)


def test_python_objects_have_a_way_out_of_ours(tmp_path: Path) -> None:
    written(tmp_path, np.array([[[0, None]]] * 3, dtype=object))
    sentence = refused(lambda: NPZ.verify(tmp_path), BadInput)
    assert sentence.endswith("save it with a type of numbers, as in numpy.asarray(x, dtype=float).")
    np.save(tmp_path / "one.npy", np.array([Path()], dtype=object), allow_pickle=True)
    assert "Python objects" in refused(lambda: read_npy(tmp_path / "one.npy"), UnreadableArray)


def test_a_stranger_names_no_array_that_a_terminal_obeys(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", **{"\x1b[31m": np.array([None])})
    with pytest.raises(UnreadableArray, match=r"^\\x1b\[31m has Python objects"):
        read_npz_arrays_and_names(tmp_path / "odd.npz", ("\x1b[31m",))


@pytest.mark.parametrize("count", [2, 1 << 31, (1 << 32) - 1])
def test_an_idx_file_that_lies_is_refused(count: int) -> None:
    content = b"".join(word.to_bytes(4, "big") for word in (0x0803, count, 28, 28)) + bytes(28 * 28)
    sentence = refused(lambda: parse_idx(content, "images", (28, 28)), BadInput)
    assert sentence == f"Expected {count * 784} bytes of data in images, got 784."


@pytest.mark.parametrize(("kind", "suffix"), [("parquet", ".parquet"), ("arrow", ".arrow"), ("stream", ".arrow")])
def test_an_arrow_table_that_lies_takes_no_memory(kind: str, suffix: str, tmp_path: Path) -> None:
    """Numbers in its metadata are exchanged for the largest ones: it is refused, or reads as what is there."""
    pa = pytest.importorskip("pyarrow", reason="needs pip install 'dpsweep[arrow]'")
    import pyarrow.parquet

    table = pa.table({"x": list(range(1000)), "y": [float(row) for row in range(1000)]})
    path = tmp_path / "table"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table)
    honest, refusals, before = path.read_bytes(), 0, getrusage(RUSAGE_SELF).ru_maxrss
    for place in (*range(0, 400, 8), *range(len(honest) - 1200, len(honest) - 8, 8)):
        content = bytearray(honest)
        content[place : place + 8] = b"\xff" * 7 + b"\x7f"
        path.write_bytes(content)
        try:
            ArrowTable(path=path, file="table", format=FORMATS[suffix]).read_columns(("x", "y"))
        except BadInput as refusal:
            refusals += 1
            assert "\n" not in str(refusal)
    assert refusals > 20
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 1 << 16, "KiB; a page of Parquet is set aside, and not touched"


@pytest.mark.parametrize("kind", ["float32", ">f4", "float64", "int16", "uint8"])
def test_records_in_the_memory_of_their_features_are_the_same(kind: str) -> None:
    features = np.random.default_rng(0).uniform(0, 100, (50, 3)).astype(kind)
    labels = np.zeros(50, dtype=np.int64)
    before = bounded_records(features, labels, (10.0, 90.0))
    assert (before.stored_features() <= 1).all()
    assert features.max() > 90, "they are as they were"
    after = bounded_records_in_place(features, labels, (10.0, 90.0))
    assert torch.equal(after.stored_features(), before.stored_features())
    assert (features.max() <= 1) == (kind == "float32")
