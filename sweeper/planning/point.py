"""A point of a grid before it is priced, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the grid: its method, its swept values, its resolved configuration.

    `final` is the run that follows the search if this point wins. `default_axes` says that the grid has no axes for
    the method, so that it runs over default ones.
    """

    method: str
    axes: Mapping[str, Any]
    config: Mapping[str, Any]
    final: Point | None = None
    default_axes: bool = False
