"""PDF files without the work that repeats: hundreds of tests write a release, whose figures have few sets of glyphs.

Matplotlib takes the used glyphs out of a font for each file, which is a third of the time of writing a release. Here it
does so once for each font and set of glyphs; tests/test_embedded_fonts.py shows that the files stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

from matplotlib.backends import _backend_pdf_ps as backend

SUBSETS = backend.get_glyphs_subset


@dataclass(frozen=True, kw_only=True)
class SavedFont:
    """A part of a font, as the content of its file."""

    content: bytes

    def save(self, stream: BytesIO, **_: object) -> None:
        """Writes the font, as fontTools' font does."""
        stream.write(self.content)


@contextmanager
def subset_once(font_file: Any, glyphs: Iterable[int]) -> Iterator[Any]:
    """The part of a font with these glyphs."""
    yield _part(font_file, frozenset(glyphs))


def embed_quickly() -> None:
    """From now on this process embeds fonts so; releases of matplotlib before 3.11 give parts another form."""
    if hasattr(backend, "SubsetResults"):
        backend.get_glyphs_subset = subset_once


def embed_as_matplotlib_does() -> None:
    """Embeds fonts as a fresh program does."""
    backend.get_glyphs_subset = SUBSETS


@cache
def _part(font_file: Any, glyphs: frozenset[int]) -> Any:
    with SUBSETS(font_file, set(glyphs)) as part:
        font = SavedFont(content=backend.font_as_file(part.font).getvalue())
        return backend.SubsetResults(font, part.glyph_index_map)
