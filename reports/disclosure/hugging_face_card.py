"""The model card of a release for the Hugging Face hub: the release's own card, without the code that an export has."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.reports.pages.model_card import card_of_release
from dpsweep.reports.pages.released_package import ReleasedPackage


@dataclass(frozen=True, kw_only=True)
class HuggingFaceCard:
    """The card in Markdown, below its YAML."""

    file: str = "README.md"

    def text(self, package: ReleasedPackage) -> str:
        """The card."""
        return card_of_release(package.page, package.claim)
