"""A key that compares a long frozen value by identity, for caches: comparing or hashing its content would take long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class ByIdentity(Generic[Value]):
    """A value compared by identity. A cache that holds the key holds the value, so its identity is not used again."""

    value: Value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value
