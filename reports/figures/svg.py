"""Conversion of a figure's SVG file into a fragment of a page, with unique ids and the page's colours."""

from __future__ import annotations

import re
from typing import Protocol

from markupsafe import Markup, escape

from dpsweep.accounting.printing import visible
from dpsweep.reports.figures.cell_marks import GRID, INK, MUTED, PAPER, SERIES

CSS_PIXELS_PER_POINT = 96 / 72
_PAGE_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", PAPER: "var(--paper)", GRID: "var(--line)"} | {
    colour: f"var(--series{place})" for place, colour in enumerate(SERIES)
}


_NUMBER = r"(-?[\d.]+)"
_CELL = re.compile(
    rf'<path d="M {_NUMBER} {_NUMBER} \nL {_NUMBER} \2 \nL \3 {_NUMBER} \nL \1 \4 \nL \1 \2 \n" '
    r'clip-path="[^"]*" style="fill: (#[0-9a-f]{6})"/>'
)
"""A filled rectangle without an outline, as matplotlib writes a cell of a map; a page may have thousands."""


class InlineDrawing(Protocol):
    """A figure: the name of its file, its alternative text, its SVG text."""

    @property
    def name(self) -> str:
        """Letters, digits and dashes."""
        ...

    @property
    def alt(self) -> str:
        """A description for readers who cannot see the figure."""
        ...

    @property
    def svg(self) -> str:
        """As matplotlib writes it, its texts escaped."""
        ...

    @property
    def failure(self) -> str:
        """Why it could not be drawn; empty if it was."""
        ...


def fragment(picture: InlineDrawing) -> Markup:
    """The picture without external addresses or global styles, with its alternative text as `aria-label`.

    A picture that failed is a sentence that says so, in its place.

    *Guarantee*: texts were escaped when the SVG was written, and the alternative text is escaped here.
    """
    if picture.failure:
        return Markup('<p class="failure">{}</p>').format(failed(picture))
    svg = picture.svg[picture.svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _CELL.sub(r'<path d="M\1 \2H\3V\4H\1z" fill="\5"/>', svg)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{picture.name}-', svg)
    svg = svg.replace("url(#", f"url(#{picture.name}-").replace('href="#', f'href="#{picture.name}-')
    svg = svg.replace("font-family: 'DejaVu Sans'; ", "")
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    return Markup(re.sub(r"<svg [^>]*>", lambda tag: _opening(tag.group(), picture), svg, count=1))


def failed(picture: InlineDrawing) -> str:
    """The sentence in place of a picture that failed."""
    return f"The picture {picture.name} could not be drawn: {visible(picture.failure).rstrip('.')}."


def _opening(tag: str, picture: InlineDrawing) -> str:
    (view,) = re.findall(r'viewBox="([^"]*)"', tag)
    width = round(float(view.split()[2]) * CSS_PIXELS_PER_POINT)
    return (
        f'<svg viewBox="{view}" width="{width}" style="min-width:{round(0.85 * width)}px" role="img" '
        f'aria-label="{escape(visible(picture.alt))}">'
    )
