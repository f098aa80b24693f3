"""Published files, identified by checksum: pretrained weights and vocabularies, local or in an installed package.

The account does not cover the data that they were trained on. They count as public, which is right only if no private
record was among their training data. The checksum is part of a trial's configuration, so a plan records the weights
that its sweep started from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Pretrained(Protocol):
    """A module that starts from published weights, for every seed."""

    def published(self) -> Mapping[str, Tensor]:
        """All published parameters by name."""
        ...


@dataclass(frozen=True, kw_only=True)
class Published:
    """A file identified by its checksum, in an installed package, or without package at an absolute path."""

    package: str | None
    file: str
    sha256: str

    def path(self) -> Path:
        """The path of the file; raises ValueError if the file is missing or has another checksum."""
        path = self._folder() / self.file
        self._check(path, _digest(path) if path.is_file() else None)
        return path

    def content(self) -> bytes:
        """The bytes of the file; raises ValueError if the file is missing or has another checksum."""
        path = self._folder() / self.file
        content = path.read_bytes() if path.is_file() else None
        self._check(path, None if content is None else hashlib.sha256(content).hexdigest())
        return content or b""

    def _check(self, path: Path, digest: str | None) -> None:
        if digest != self.sha256:
            result = "nothing" if digest is None else f"sha256={digest}"
            raise ValueError(f"Expected file={path} to have sha256={self.sha256}, found {result}.")

    def _folder(self) -> Path:
        if self.package is None:
            return Path("/")
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            name = self.package.replace("_", "-")
            raise ValueError(f"Expected package={name} to be installed: pip install --no-deps {name}.")
        return Path(spec.origin).parent


def digest_of(path: Path) -> str | None:
    """The SHA-256 of a file, or of a folder: that of its files' names and SHA-256 in order; None if it is missing.

    In a folder: `find * -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`.
    """
    if not path.is_dir():
        return _digest(path) if path.is_file() else None
    names = sorted(str(file.relative_to(path).as_posix()) for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{_digest(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
