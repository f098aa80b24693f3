"""Arrays larger than memory: rows of an .npy file, which are read when a batch asks for them.

A file is passed once, before anything is charged. The pass checks every number, computes the content by which the
ledger recognises the data, and keeps each record's hashes by the public keys that decide its part, so that no job
passes all records again. Invariants:

* A row is read as `bounded_records` would store it: inputs, parts and contents are those of the same .npz file.
* What a pass found holds for the very files that it read: their sizes, inodes and times of change are compared to the
  nanosecond, and what was kept has a checksum. In any doubt the records are passed again.
* By a record's hashes anyone can test guesses of it. So they are kept where their owner alone can read, as the frozen
  features are.

Rows are read by position from an open file and not through mapped pages: a job holds no more than its batches, a file
that is cut in the meantime is an error and no signal, and several threads wait for the disk at the same time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, mode_with_group
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.files import remove_stale_temporary_files
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.arrays import (
    are_bytes_within_bounds,
    check_features_are_finite_of_shape,
    clamp_and_scale,
    first_bytes_of_content,
    read_npy_header,
)

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from dpsweep.trainers.data.columns import Bounds

_BLOCK_BYTES = 2**24
"""Bytes that are read at a time in a pass."""

_READERS, _ALONE_BYTES = 8, 2**20
"""Threads that read the rows of a batch, and the bytes that one thread reads alone."""

_SUFFIX = ".hashes"
_SETTLED_SECONDS = 0.1
"""The age of a file from which a further change is sure to change its time of change."""


class _OpenFile:
    """A file that is read by position, from any thread; it is closed with the last reference."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._lock = threading.Lock()

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self._descriptor)

    def read_into(self, view: memoryview, position: int) -> None:
        """Fills `view` with the bytes from `position` on; raises OSError if the file ends before."""
        while len(view):
            count = self._read_some(view, position)
            if not count:
                raise OSError("a file of records was cut while it was read")
            view, position = view[count:], position + count

    def read_ahead(self, position: int, size: int) -> None:
        """Asks the system to read these bytes before they are asked for; some systems cannot."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def _read_some(self, view: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._descriptor, [view], position)
        with self._lock:
            os.lseek(self._descriptor, position, os.SEEK_SET)
            content = os.read(self._descriptor, len(view))
        view[: len(content)] = content
        return len(content)


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """An .npy file whose rows are read by position; `shape` is [m, *shape], and rows begin at byte `offset`."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int

    @classmethod
    def from_header(cls, path: Path) -> RowFile:
        """The file as its header declares it; raises `UnreadableArray` if its size differs, or it has no numbers."""
        shape, dtype, offset = read_npy_header(path)
        return cls(path=path, shape=shape, dtype=dtype, offset=offset)

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def read_rows(self, positions: NDArray[np.int64]) -> NDArray[np.generic]:
        """The rows at these positions [k, *shape], in their order; neighbours are read at once."""
        rows: NDArray[np.generic] = np.empty((len(positions), *self.shape[1:]), dtype=self.dtype)
        view, size = memoryview(rows.reshape(-1).view(np.uint8)), self.row_bytes  # type: ignore[arg-type]

        def read_runs(part: Sequence[tuple[int, int]]) -> None:
            for first, end in part:
                self._file.read_into(view[first * size : end * size], self.offset + int(positions[first]) * size)

        runs = list(_runs_of_neighbours(positions))
        if len(runs) == 1 or len(view) <= _ALONE_BYTES:
            read_runs(runs)
            return rows
        with ThreadPoolExecutor(_READERS) as readers:
            parts = [runs[reader::_READERS] for reader in range(_READERS)]
            for one in [readers.submit(read_runs, part) for part in parts]:
                one.result()
        return rows

    def read_ahead(self, positions: NDArray[np.int64]) -> None:
        """Asks the system, in a thread, to read these rows into its own memory before they are asked for.

        No row is handed over: the batch reads them as ever, and meets every error itself.
        """

        def ask_for_all() -> None:
            with suppress(OSError):
                for first, end in _runs_of_neighbours(positions):
                    start = self.offset + int(positions[first]) * self.row_bytes
                    self._file.read_ahead(start, (end - first) * self.row_bytes)

        threading.Thread(target=ask_for_all, name="read ahead", daemon=True).start()

    def blocks(self) -> Iterator[tuple[int, NDArray[np.generic]]]:
        """All rows, some at a time, each time with the position of the first."""
        count = max(1, _BLOCK_BYTES // max(1, self.row_bytes))
        for first in range(0, self.shape[0], count):
            yield first, self.read_rows(np.arange(first, min(first + count, self.shape[0])))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: another process opens the file itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _file(self) -> _OpenFile:
        return _OpenFile(self.path)


def _runs_of_neighbours(positions: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The first places and ends of the longest runs whose positions follow each other."""
    ends = [*(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return zip([0, *ends[:-1]], ends, strict=True) if len(positions) else iter(())


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedRows:
    """The rows of a file, clamped to public `bounds` as they are read; `hashes` [m, size] are known by their keys."""

    file: RowFile
    bounds: Bounds
    hashes: Mapping[bytes, NDArray[np.uint8]]

    @property
    def shape(self) -> tuple[int, ...]:
        """[m, *shape]."""
        return self.file.shape

    @property
    def dtype(self) -> torch.dtype:
        """uint8 if bytes need no clamping, else float32."""
        import torch

        return torch.uint8 if are_bytes_within_bounds(self.file.dtype, self.bounds) else torch.float32

    def read_rows(self, positions: NDArray[np.int64]) -> torch.Tensor:
        """The rows at these positions [k, *shape], in their order."""
        import torch

        return torch.from_numpy(_bounded(self.file.read_rows(positions), self.bounds))

    def read_ahead(self, positions: NDArray[np.int64]) -> None:
        """Asks the system to read these rows before they are asked for."""
        self.file.read_ahead(positions)

    def known_hashes(self, key: bytes) -> NDArray[np.uint8] | None:
        """The hashes by this public key of all records of the file [m, size], if they are known."""
        return self.hashes.get(key)

    def __getstate__(self) -> dict[str, Any]:
        """Without hashes, which another process that reads batches does not need."""
        return {"file": self.file, "bounds": self.bounds, "hashes": {}}


def _bounded(rows: NDArray[np.generic], bounds: Bounds) -> NDArray[np.generic]:
    return rows if are_bytes_within_bounds(rows.dtype, bounds) else clamp_and_scale(rows, bounds)


@dataclass(frozen=True, kw_only=True)
class FileStates:
    """The sizes, inodes and times of files, by which a change is noticed."""

    states: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of_files(cls, paths: Sequence[Path]) -> FileStates:
        """The states now, once a further change of any of the files is sure to change them."""
        found = [path.stat() for path in paths]
        if any(0 <= time.time() - one.st_ctime < _SETTLED_SECONDS for one in found):
            time.sleep(_SETTLED_SECONDS)
            found = [path.stat() for path in paths]
        return cls(states=tuple((one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns) for one in found))


@dataclass(frozen=True, kw_only=True, eq=False)
class PassedRecords:
    """What a pass over all records found: their content, and their hashes [m, size] by public keys."""

    content: Content
    hashes: Mapping[bytes, NDArray[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class RecordPass:
    """A pass over the rows of a file and their labels; `sizes` are the bytes of the hashes by each public key.

    `files` are those that were read so far, in the states that they had before; `where` names the array in errors.
    """

    file: RowFile
    bounds: Bounds
    sizes: Mapping[bytes, int]
    files: Sequence[Path]
    states: FileStates
    where: str

    def find_or_pass_records(self, labels: NDArray[np.generic], cache: Path | None) -> PassedRecords:
        """What an earlier pass over the same files kept in the folder `cache`, or what a pass now finds.

        Errors: `BadInput`, one sentence with the index of the first record that is wrong.
        """
        path = None if cache is None else cache / f"{self._identity(labels)}{_SUFFIX}"
        known = None if path is None else self._read_kept_or_none(path)
        if known is not None:
            return known
        try:
            found, table = self._pass_over_records(labels)
        except OSError as error:
            raise BadInput(f"Expected {self.where} to be readable, got: {error}.") from error
        if FileStates.of_files(self.files) != self.states:
            raise BadInput(f"Expected {self.where} to stay as it is while it is read: it was changed.")
        if path is not None and len(table):
            with suppress(OSError):  # without room on the disk every job passes the records
                self._keep(path, found, table)
        return found

    def _identity(self, labels: NDArray[np.generic]) -> str:
        read = hashlib.sha256(f"{labels.dtype.str} {labels.shape}".encode() + np.ascontiguousarray(labels).tobytes())
        files = [str(file.absolute()) for file in self.files]
        text = json.dumps([files, list(self.bounds), self._columns, read.hexdigest()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def _columns(self) -> list[tuple[str, int]]:
        return [(key.decode(), size) for key, size in self.sizes.items()]

    def _pass_over_records(self, labels: NDArray[np.generic]) -> tuple[PassedRecords, NDArray[np.uint8]]:
        count = self.file.shape[0]
        table = np.empty((count, sum(self.sizes.values())), dtype=np.uint8)
        hashes = self._columns_of_table(table)
        content = hashlib.sha256(first_bytes_of_content(self.file.dtype, self.file.shape))
        little = self.file.dtype.newbyteorder("<")

        def hash_rows(key: bytes, first: int, contents: Sequence[bytes]) -> None:
            size = self.sizes[key]
            joined = b"".join(hashlib.blake2b(one, digest_size=size, key=key).digest() for one in contents)
            hashes[key][first : first + len(contents)] = np.frombuffer(joined, dtype=np.uint8).reshape(-1, size)

        with ThreadPoolExecutor(len(self.sizes) + 1) as hashers:
            for first, rows in self.file.blocks():
                check_features_are_finite_of_shape(rows, self.file.shape[1:], self.where, first)
                pending = [hashers.submit(content.update, rows.astype(little, copy=False).tobytes())]
                stored = _bounded(rows, self.bounds)
                stored = stored.astype(stored.dtype.newbyteorder("<"), copy=False)
                part = labels[first : first + len(rows)].astype(labels.dtype.newbyteorder("<"))
                contents = [label.tobytes() + row.tobytes() for label, row in zip(part, stored, strict=True)]
                pending += [hashers.submit(hash_rows, key, first, contents) for key in self.sizes]
                for one in pending:
                    one.result()
        return PassedRecords(content=Content(digest=content.digest()), hashes=hashes), table

    def _columns_of_table(self, table: NDArray[np.uint8]) -> dict[bytes, NDArray[np.uint8]]:
        ends = np.cumsum(list(self.sizes.values())).tolist()
        return {key: table[:, first:end] for key, first, end in zip(self.sizes, [0, *ends[:-1]], ends, strict=True)}

    def _keep(self, path: Path, found: PassedRecords, table: NDArray[np.uint8]) -> None:
        make_folder_and_missing_parents(path.parent)
        head = {
            "states": self.states.states,
            "content": found.content.digest.hex(),
            "sha256": hashlib.sha256(table.data).hexdigest(),
        }
        write_recomputable_file(path, f"{json.dumps(head)}\n".encode(), table.data)

    def _read_kept_or_none(self, path: Path) -> PassedRecords | None:
        """What was kept of these files in their present states; None if it is of others, or damaged."""
        try:
            with path.open("rb") as stream:
                head = json.loads(stream.readline())
                start = stream.tell()
                states = tuple(tuple(one) for one in head["states"])
                if states != self.states.states or hashlib.file_digest(stream, "sha256").hexdigest() != head["sha256"]:
                    return None
            shape = (self.file.shape[0], sum(self.sizes.values()))
            table = np.memmap(path, dtype=np.uint8, mode="r", offset=start, shape=shape)
            content = Content(digest=bytes.fromhex(head["content"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return PassedRecords(content=content, hashes=self._columns_of_table(table))


def write_recomputable_file(path: Path, *parts: bytes | memoryview) -> None:
    """Writes a file by one atomic rename, readable by its owner alone.

    It is not flushed: a power cut may lose it.
    Errors: OSError if there is no room; what was written by then is removed.
    """
    remove_stale_temporary_files(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    handle = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode_with_group(partial))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(parts)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
