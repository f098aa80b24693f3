"""Who may read a page."""

from __future__ import annotations

from enum import StrEnum


class Audience(StrEnum):
    """The two pages of a sweep."""

    CURATOR = "curator"
    PUBLIC = "public"

    @property
    def banner(self) -> str:
        """The line on top of the page."""
        return {
            Audience.CURATOR: "Curator only. This page shows more than the price covers: do not pass it on.",
            Audience.PUBLIC: "Public. This page shows only what the price below covers and may be passed on.",
        }[self]
