"""Values that are derived from recent events and plans, found by the identity of these.

Long events are slow to hash and to compare, and a plan asks for the same values of the same event many times.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values of at most `most` objects. An object that is kept is alive, so no other one has its identity."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[int, tuple[object, Value]] = {}

    def of(self, key: object) -> Value | None:
        """The value of this very object, None if none is kept."""
        kept = self._kept.get(id(key))
        return None if kept is None else kept[1]

    def keep(self, key: object, value: Value) -> Value:
        """Keeps the value of an object and returns it; forgets all others where there are too many."""
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[id(key)] = (key, value)
        return value
