"""Arrays of the user: read from numpy's files, and turned into records by public constants alone.

The headers of numpy's files may lie: what a header declares is compared with the file before it is read. Nothing is
unpickled, and numpy's advice to unpickle is not passed on. Arrays are clamped to bounds and scaled to [0, 1]; an error
message names the index of the first record that is wrong.
"""

from __future__ import annotations

import itertools
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.trainers.data.columns import clamp_and_scale_to_0_1
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.data.columns import Bounds


SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MOST_DEFLATED, SMALL = 1032, 1 << 16
"""Bytes that one byte of DEFLATE stands for at most (RFC 1951: 258 bytes in two bits), and what is read unasked."""

_ENCRYPTED = 1
_NO_NUMBERS = (
    "{name} has Python objects, which can be read only as code that runs: save it with a type of numbers, as in "
    "numpy.asarray({name}, dtype=float)"
)
_UNREADABLE = (OSError, EOFError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile)
"""What damaged files make numpy and zipfile raise."""


class UnreadableArray(ValueError):
    """A file that is no file of arrays of numbers; the message is the reason."""


def read_npz_arrays_and_names(
    path: Path, names: Sequence[str]
) -> tuple[dict[str, NDArray[np.generic]], tuple[str, ...]]:
    """Those of the named arrays that are in an .npz file, and the names of all its arrays.

    Errors: `UnreadableArray`, before memory is taken for numbers that the file cannot hold.
    """
    with _errors_as_unreadable_array():
        with path.open("rb") as stream:
            alone = stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if alone:
            raise UnreadableArray("one array without a name, as numpy.save writes it; numpy.savez writes several")
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(SUFFIX): member for member in archive.infolist()}
            arrays = {name: _read_npz_member(archive, members[name], name, path) for name in names if name in members}
        return arrays, tuple(members)


def read_npz_shape_and_type(path: Path, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """The shape and type of an array in an .npz file, whose numbers are not read; raises `UnreadableArray`."""
    with _errors_as_unreadable_array(), zipfile.ZipFile(path) as archive:
        if f"{name}{SUFFIX}" not in archive.namelist():
            raise UnreadableArray(f"no {escape_invisible_characters(name)}")
        member = archive.getinfo(f"{name}{SUFFIX}")
        with archive.open(member) as stream:
            shape, _, dtype = _check_npy_header_against_size(stream, member.file_size, name)
            return shape, dtype


def read_npy(path: Path) -> NDArray[np.generic]:
    """The array in an .npy file; raises `UnreadableArray` as `read_npz_arrays_and_names` does."""
    with _errors_as_unreadable_array(), path.open("rb") as stream:
        _check_npy_header_against_size(stream, path.stat().st_size, path.name)
        stream.seek(0)
        return _read_npy_stream(stream)


def read_npy_header(path: Path) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """The shape and type of the array in an .npy file, and where its numbers begin; they are not read.

    Errors: `UnreadableArray`, also for an array that is stored column by column: its rows cannot be read one by one.
    """
    with _errors_as_unreadable_array(), path.open("rb") as stream:
        shape, by_column, dtype = _check_npy_header_against_size(stream, path.stat().st_size, path.name)
        if by_column and len(shape) > 1:
            raise UnreadableArray("it is stored column by column: save numpy.ascontiguousarray of it")
        return shape, dtype, stream.tell()


@contextmanager
def _errors_as_unreadable_array() -> Iterator[None]:
    """Turns what damaged files make numpy and zipfile raise into `UnreadableArray`, in one line."""
    try:
        yield
    except UnreadableArray:
        raise
    except MemoryError as error:
        raise UnreadableArray("it needs more memory than there is") from error
    except _UNREADABLE as error:
        raise UnreadableArray(_error_in_one_line(error)) from error


def _read_npz_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, path: Path) -> NDArray[np.generic]:
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _COMPRESSIONS:
        raise UnreadableArray(
            f"{escape_invisible_characters(name)} is encrypted or compressed in another way than numpy's"
        )
    most = max(SMALL, MOST_DEFLATED * path.stat().st_size)
    if member.file_size > most:
        raise UnreadableArray(
            f"{escape_invisible_characters(name)} declares {member.file_size} bytes, more than the file can hold"
        )
    with archive.open(member) as stream:
        _check_npy_header_against_size(stream, member.file_size, name)
    with archive.open(member) as stream:
        return _read_npy_stream(stream)


def _check_npy_header_against_size(
    stream: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Compares what the header of an array declares with the size of the file in bytes.

    Returns the shape, whether it is stored column by column, and the type.
    """
    name = escape_invisible_characters(name)
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise UnreadableArray(f"{name} has version {'.'.join(map(str, version))} of numpy's format, not for numbers")
    shape, by_column, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise UnreadableArray(_NO_NUMBERS.format(name=name))
    declared, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if declared != held or any(length < 0 for length in shape):
        raise UnreadableArray(
            f"{name} declares {' x '.join(map(str, shape)) or 'one'} of {dtype}, {declared} bytes, and has {held}"
        )
    return shape, by_column, dtype


def _read_npy_stream(stream: Any) -> NDArray[np.generic]:
    array: NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
    return array


def _error_in_one_line(error: Exception) -> str:
    """The error in one line; numpy's own words on a header may advise to unpickle."""
    text = " ".join(str(error).split()).rstrip(".")
    return "it is damaged, or no file of arrays" if "pickle" in text or not text else escape_invisible_characters(text)


_BYTE = 255
_ROWS, _NUMBERS = 4096, 2**20
"""Rows that are checked at a time, and numbers that are scaled at a time, each of them in eight bytes."""


def check_features_are_finite_of_shape(
    features: NDArray[np.generic], shape: tuple[int, ...], where: str, first: int = 0
) -> None:
    """Refuse anything but finite real numbers [n, *shape]; `first` is the index of the first record of a block."""
    check_features_are_real_of_shape(features.dtype, features.shape, shape, where)
    for start in range(0, len(features) if features.dtype.kind == "f" else 0, _ROWS):
        finite = np.isfinite(features[start : start + _ROWS]).reshape(-1, int(np.prod(shape))).all(axis=1)
        if not finite.all():
            index = first + start + int(finite.argmin())
            raise BadInput(f"Expected {where} to be finite numbers, got another at index {index}.")


def check_features_are_real_of_shape(
    dtype: np.dtype[np.generic], stored: tuple[int, ...], shape: tuple[int, ...], where: str
) -> None:
    """Refuse anything but real numbers [n, *shape], by the type and the shape that are stored."""
    if dtype.kind not in "biuf":
        raise BadInput(f"Expected {where} to hold real numbers, got {dtype}.")
    if not stored or stored[1:] != shape:
        raise BadInput(f"Expected {where} of shape [n, {', '.join(map(str, shape))}], got {list(stored)}.")


def require_one_for_each_record(values: NDArray[np.generic], records: int, kinds: str, what: str, where: str) -> None:
    """Refuse an array of another type than numpy's `kinds`, in words `what`, or of another shape than [records]."""
    if values.dtype.kind not in kinds:
        raise BadInput(f"Expected {where} to hold {what}, got {values.dtype}.")
    if values.shape != (records,):
        raise BadInput(f"Expected {where} of shape [{records}], as many as features, got {list(values.shape)}.")


def check_labels_are_class_numbers(labels: NDArray[np.generic], records: int, classes: int, where: str) -> None:
    """Refuse anything but whole numbers [n] in 0..classes-1."""
    require_one_for_each_record(labels, records, "biu", "whole numbers", where)
    wrong = (labels < 0) | (labels >= classes)  # type: ignore[operator]
    if wrong.any():
        first = int(wrong.argmax())
        raise BadInput(f"Expected {where} in 0..{classes - 1}, got {labels[first]} at index {first}.")


def unit_identifier_of_each_record(units: NDArray[np.generic], records: int, where: str) -> list[bytes]:
    """The units that texts or whole numbers [n] identify, one for each record; an empty text is refused."""
    require_one_for_each_record(units, records, "iuU", "texts or whole numbers", where)
    texts = [str(unit).strip() for unit in units.tolist()]
    if "" in texts:
        raise BadInput(f"Expected {where} to say whose record it is, got nothing at index {texts.index('')}.")
    return [text.encode("utf-8", "surrogateescape") for text in texts]


def content_hash_of_features(features: NDArray[np.generic]) -> Content:
    """The content that identifies a data set: its features alone, since other labels are about the same people."""
    stored = features.dtype.newbyteorder("<")
    rows = (features[start : start + _ROWS] for start in range(0, len(features), _ROWS))
    kind = first_bytes_of_content(features.dtype, features.shape)
    return Content.from_chunks(itertools.chain((kind,), (block.astype(stored).tobytes() for block in rows)))


def first_bytes_of_content(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """What the content of features begins with: their type and shape; their little-endian numbers follow."""
    return f"{dtype.newbyteorder('<').str} {shape}".encode()


def bounded_records(features: NDArray[np.generic], labels: NDArray[np.generic], bounds: Bounds) -> Records:
    """Checked features, clamped to public `bounds` and scaled to [0, 1], and their labels: classes, or float32.

    Bytes are stored unchanged, in a quarter of the memory, if the bounds include 0 and 255.
    """
    return _records_of_bounded(features, labels, bounds, None)


def bounded_records_in_place(features: NDArray[np.generic], labels: NDArray[np.generic], bounds: Bounds) -> Records:
    """Does what `bounded_records` does, in the memory of `features` if they are float32; they are lost then."""
    return _records_of_bounded(features, labels, bounds, features if are_floats_of_records(features.dtype) else None)


def _records_of_bounded(
    features: NDArray[np.generic], labels: NDArray[np.generic], bounds: Bounds, into: NDArray[np.generic] | None
) -> Records:
    """The records of checked features, written into this array, or a new one, unless bytes stay as they are."""
    import torch

    stored = features
    if not are_bytes_within_bounds(features.dtype, bounds):
        stored = np.empty(features.shape, dtype=np.float32) if into is None else into
        at_once = max(1, _NUMBERS // max(1, math.prod(features.shape[1:])))
        for start in range(0, len(features), at_once):
            rows = slice(start, start + at_once)
            stored[rows] = clamp_and_scale(features[rows], bounds)
    return Records(
        features=torch.from_numpy(np.ascontiguousarray(stored)),
        labels=torch.from_numpy(labels if labels.dtype == np.float32 else labels.astype(np.int64)),
        scaling=scaling_of_bounded_features(features.dtype, bounds),
    )


def are_floats_of_records(dtype: np.dtype[np.generic]) -> bool:
    """Whether features have the type in which scaled features are stored."""
    return dtype == np.float32 and dtype.isnative


def are_bytes_within_bounds(dtype: np.dtype[np.generic], bounds: Bounds) -> bool:
    """Whether features are bytes that need no clamping."""
    low, high = bounds
    return dtype == np.uint8 and low <= 0 and high >= _BYTE


def scaling_of_bounded_features(dtype: np.dtype[np.generic], bounds: Bounds) -> Scaling:
    """The scaling of stored features: bytes are scaled in each batch, other numbers before they are stored."""
    low, high = bounds
    within = are_bytes_within_bounds(dtype, bounds)
    return Scaling(scale=high - low, mean=low / (high - low)) if within else Scaling()


def clamp_and_scale(features: NDArray[np.generic], bounds: Bounds) -> NDArray[np.float32]:
    """Numbers clamped to `bounds` and scaled to [0, 1], float32; computed in float64."""
    return clamp_and_scale_to_0_1(features.astype(np.float64), bounds).astype(np.float32)
