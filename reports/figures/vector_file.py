"""A figure as a PDF file for papers, written only where somebody asks for it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from dpsweep.reports.figures.drawing_settings import own_settings

_STYLE: dict[Any, Any] = {"pdf.fonttype": 42, "pdf.compression": 9}
"""TrueType fonts, of which the used glyphs are embedded: publishers refuse matplotlib's own choice, Type 3."""

_NO_METADATA = dict.fromkeys(("CreationDate", "Creator", "Producer"))


def pdf_of(figure: Figure, style: Mapping[Any, Any]) -> bytes:
    """The figure in vectors with embedded fonts; equal figures give equal bytes, since no date is written.

    `style` is the style in which the figure was drawn.
    """
    content = io.BytesIO()
    with own_settings({**style, **_STYLE}):
        figure.savefig(content, format="pdf", facecolor="white", metadata=_NO_METADATA)
    return content.getvalue()
