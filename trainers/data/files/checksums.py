"""Reading of files with verified checksums: plain, gzipped or in an archive."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path


def read_contents(paths: tuple[Path, ...], md5: Mapping[str, str | None]) -> dict[str, bytes]:
    """The decompressed contents of every file named in `md5`, found among `paths`.

    Guarantee: each has its checksum, where one is known; nothing has been parsed before.
    Errors: `BadInput`, one sentence that names the file.
    """
    return dict(_verified(paths, md5))


def verify_contents(
    paths: tuple[Path, ...], md5: Mapping[str, str | None], private: Collection[str]
) -> tuple[Content, ...]:
    """The content of each of the `private` files, read once and not kept.

    Guarantee: every file named in `md5`, private or not, has its checksum, where one is known; nothing has been parsed.
    Errors: `BadInput`, one sentence that names the file.
    """
    for name in private:
        if name not in md5:
            raise BadInput(f"Expected a checksum of {name}, which holds private records.")
    return tuple(Content.of((content,)) for name, content in _verified(paths, md5) if name in private)


def _verified(paths: tuple[Path, ...], md5: Mapping[str, str | None]) -> Iterator[tuple[str, bytes]]:
    """The names and contents, file after file; raises at the end if a file named in `md5` is missing."""
    missing = dict.fromkeys(md5)
    for path in paths:
        try:
            for name, content in _members(path):
                if name in md5:
                    if (expected := md5[name]) is not None:
                        _verify(content, expected, name, path)
                    missing.pop(name, None)
                    yield name, content
        except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
            raise BadInput(f"{path} cannot be read, it may be cut off ({error}): fetch it again.") from error
    for name in missing:
        raise BadInput(f"Expected {name} in {', '.join(map(str, paths))}.")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The names and contents in a file: an archive's members, or the decompressed file itself."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as tape:
            for entry in tape:
                if (file := tape.extractfile(entry)) is not None:
                    yield PurePosixPath(entry.name).name, file.read()
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield PurePosixPath(member.filename).name, archive.read(member)
    elif path.suffix == ".gz":
        yield path.stem, gzip.decompress(path.read_bytes())
    else:
        yield path.name, path.read_bytes()


def _verify(content: bytes, expected: str, name: str, path: Path) -> None:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != expected:
        within = "" if path.name.removesuffix(".gz") == name else f" in {path}"
        raise BadInput(
            f"Expected md5={expected} of the contents of {name if within else path}{within}, got {digest}: "
            f"this is not the official file."
        )
