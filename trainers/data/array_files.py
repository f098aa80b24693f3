"""Arrays in numpy's files, whose headers may lie: what a header declares is compared with the file before it is read.

Nothing is unpickled, and numpy's advice to unpickle is not passed on.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from dpsweep.accounting.printing import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def read_npz(path: Path, names: Sequence[str]) -> tuple[dict[str, NDArray[np.generic]], tuple[str, ...]]:
    """Those of the named arrays that are in an .npz file, and the names of all its arrays.

    Errors: `UnreadableArray`, before memory is taken for numbers that the file cannot hold.
    """
    try:
        with path.open("rb") as stream:
            alone = stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if alone:
            raise UnreadableArray("one array without a name, as numpy.save writes it; numpy.savez writes several")
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(SUFFIX): member for member in archive.infolist()}
            arrays = {name: _member(archive, members[name], name, path) for name in names if name in members}
    except UnreadableArray:
        raise
    except MemoryError as error:
        raise UnreadableArray("it needs more memory than there is") from error
    except _UNREADABLE as error:
        raise UnreadableArray(_reason(error)) from error
    return arrays, tuple(members)


def read_npy(path: Path) -> NDArray[np.generic]:
    """The array in an .npy file; raises `UnreadableArray` as `read_npz` does."""
    try:
        with path.open("rb") as stream:
            _check_header(stream, path.stat().st_size, path.name)
            stream.seek(0)
            return _read(stream)
    except UnreadableArray:
        raise
    except MemoryError as error:
        raise UnreadableArray("it needs more memory than there is") from error
    except _UNREADABLE as error:
        raise UnreadableArray(_reason(error)) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, path: Path) -> NDArray[np.generic]:
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _COMPRESSIONS:
        raise UnreadableArray(f"{visible(name)} is encrypted or compressed in another way than numpy's")
    most = max(SMALL, MOST_DEFLATED * path.stat().st_size)
    if member.file_size > most:
        raise UnreadableArray(f"{visible(name)} declares {member.file_size} bytes, more than the file can hold")
    with archive.open(member) as stream:
        _check_header(stream, member.file_size, name)
    with archive.open(member) as stream:
        return _read(stream)


def _check_header(stream: IO[bytes], size: int, name: str) -> None:
    """Compares what the header of an array declares with the size of the file in bytes."""
    name = visible(name)
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise UnreadableArray(f"{name} has version {'.'.join(map(str, version))} of numpy's format, not for numbers")
    shape, _, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise UnreadableArray(_NO_NUMBERS.format(name=name))
    declared, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if declared != held or any(length < 0 for length in shape):
        raise UnreadableArray(
            f"{name} declares {' x '.join(map(str, shape)) or 'one'} of {dtype}, {declared} bytes, and has {held}"
        )


def _read(stream: Any) -> NDArray[np.generic]:
    array: NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
    return array


def _reason(error: Exception) -> str:
    """The error in one line; numpy's own words on a header may advise to unpickle."""
    text = " ".join(str(error).split()).rstrip(".")
    return "it is damaged, or no file of arrays" if "pickle" in text or not text else visible(text)
