"""A drawn picture with its files, and how every picture is drawn: our inks, and our settings of matplotlib alone.

Matplotlib reads a `matplotlibrc` from the working folder, from `MATPLOTLIBRC` or from the user's folder of
configurations, and a backend from `MPLBACKEND`, while it is imported. None of them changes a picture: everything is
drawn within `own_matplotlib_settings`. None of them stops a command: where an import fails under them, it is
repeated without them. A program that imports us keeps its settings for its own figures.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.printing import escape_invisible_except_line_breaks
from dpsweep.reports.content.panels import MapPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, PAPER, GRID, BLANK = "#1b1c20", "#6b7079", "#fefefd", "#e2e4e9", "#dcdee2"
SERIES = ("#23617a", "#b4551d", "#4c7a34", "#7a4a8c", "#8a6d00", "#5d636e", "#a3171f")
"""Colours of curves, in order; pages replace them by lighter ones in dark mode."""

LIBRARY = "matplotlib"
READ_AT_IMPORT = (LIBRARY, "matplotlib.font_manager", "matplotlib.style")
"""The modules that read the user's configuration."""

SETTINGS = ("MATPLOTLIBRC", "MPLBACKEND", "MPLCONFIGDIR")
DATE = "SOURCE_DATE_EPOCH"
"""Our files have no dates, and matplotlib stops at a value that is no number."""

NOT_OURS = ("backend", "backend_fallback", "interactive", "toolbar")
"""Settings of windows: no figure of ours has one, and a backend is loaded where it is set."""

_PDF_STYLE: dict[Any, Any] = {"pdf.fonttype": 42, "pdf.compression": 9}
"""TrueType fonts, of which the used glyphs are embedded: publishers refuse matplotlib's own choice, Type 3."""

Style = Mapping[Any, Any]
"""Matplotlib's parameters by their names."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A drawn picture: its alternative text, PNG bytes, SVG text, and a function that makes its PDF.

    `panels` are those of a map of scores. `failure` says why it could not be drawn, and is empty otherwise; a picture
    that failed has no files.
    """

    name: str
    alt: str
    panels: tuple[MapPanel, ...] = ()
    png: bytes = b""
    svg: str = ""
    pdf: Callable[[], bytes] = field(default=bytes, compare=False, repr=False)
    failure: str = ""

    def with_rendered_files(self, figure: Callable[[], Figure], style: Style, dpi: int) -> Drawing:
        """With the files of the figure that the function makes, deterministic bytes; or with the reason why it fails.

        `figure` is given finished numbers: no price is computed in it, so no contradiction of prices ends here.
        """
        return self._drawing_or_failure(lambda: self._with_saved_png_and_svg(figure, style, dpi))

    def with_rendered_pdf(self) -> Drawing:
        """With the PDF file, which takes longer than all else about a picture; of a failure the error's kind alone.

        A message may name what is on this machine.
        """
        done = self if self.failure else self._drawing_or_failure(lambda: replace(self, pdf=partial(bytes, self.pdf())))
        return replace(done, failure=done.failure.partition(":")[0], pdf=bytes) if done.failure else done

    def _drawing_or_failure(self, make: Callable[[], Drawing]) -> Drawing:
        try:
            return make()
        except Exception as cause:  # noqa: BLE001 - whatever a drawing library raises, the page of a charged sweep stands
            return replace(self, failure=f"{type(cause).__name__}: {cause}")

    def _with_saved_png_and_svg(self, make: Callable[[], Figure], style: Style, dpi: int) -> Drawing:
        png, svg = io.BytesIO(), io.StringIO()
        with own_matplotlib_settings(style, self.name):
            figure = make()
            if figure.get_layout_engine() is not None:
                figure.draw_without_rendering()
                figure.set_layout_engine("none")  # both files have the layout that was searched here
            figure.savefig(png, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
            no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(svg, format="svg", transparent=True, metadata=no_metadata)
        return replace(
            self,
            png=png.getvalue(),
            svg=escape_invisible_except_line_breaks(svg.getvalue()),
            pdf=cache(partial(figure_as_pdf_bytes, figure, style)),
        )


def figure_as_pdf_bytes(figure: Figure, style: Style) -> bytes:
    """The figure in vectors with embedded fonts; equal figures give equal bytes, since no date is written.

    `style` is the style in which the figure was drawn.
    """
    content = io.BytesIO()
    with own_matplotlib_settings({**style, **_PDF_STYLE}):
        no_metadata = dict.fromkeys(("CreationDate", "Creator", "Producer"))
        figure.savefig(content, format="pdf", facecolor="white", metadata=no_metadata)
    return content.getvalue()


def import_matplotlib() -> None:
    """Imports matplotlib, without the user's configuration if it cannot be imported with it.

    Its complaints about a configuration are not shown: nothing here depends on it.
    """
    with _matplotlib_logging_errors_only():
        try:
            _import_matplotlib_modules()
        except (OSError, ValueError, RuntimeError):  # no text, no permission, no such backend, no place for its cache
            for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
                del sys.modules[name]
            with _no_user_matplotlib_configuration():
                _import_matplotlib_modules()


@contextmanager
def own_matplotlib_settings(style: Style, name: str = "") -> Iterator[None]:
    """Within it matplotlib has its own defaults and this style; `name` is the seed of the ids in an SVG file.

    A glyph that the font lacks is drawn as a box, without a warning: names may be in any script.
    """
    import matplotlib as mpl

    settings: dict[Any, Any] = {key: value for key, value in mpl.rcParamsDefault.items() if key not in NOT_OURS}
    settings |= {"text.parse_math": False, **style} | ({"svg.hashsalt": name} if name else {})
    with (
        _without_environment_variable(DATE),
        _matplotlib_logging_errors_only(),
        warnings.catch_warnings(),
        mpl.rc_context(settings),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _import_matplotlib_modules() -> None:
    for name in READ_AT_IMPORT:
        importlib.import_module(name)


@contextmanager
def _no_user_matplotlib_configuration() -> Iterator[None]:
    """Within it an import of matplotlib has no settings but its own; its cache of fonts is thrown away."""
    with ExitStack() as settings:
        empty = settings.enter_context(tempfile.TemporaryDirectory())
        for name in SETTINGS:
            settings.enter_context(_without_environment_variable(name))
        settings.enter_context(chdir(empty))
        os.environ["MPLCONFIGDIR"] = empty
        yield


@contextmanager
def _without_environment_variable(name: str) -> Iterator[None]:
    """Within it the environment has no such variable."""
    value = os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@contextmanager
def _matplotlib_logging_errors_only() -> Iterator[None]:
    """Within it matplotlib logs errors alone."""
    log = logging.getLogger(LIBRARY)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
