"""A point of a grid before it is priced: plain values, whoever composed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the grid: its method, its swept values, its resolved configuration.

    Keys of both are stored keys (`accounting/names/typed_names.py`).
    """

    method: str
    axes: Mapping[str, Any]
    config: Mapping[str, Any]
