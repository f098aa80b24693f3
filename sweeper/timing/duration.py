"""A time in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A time as text, in seconds, minutes or hours by its length."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
