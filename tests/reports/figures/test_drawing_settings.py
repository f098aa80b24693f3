"""Pictures are ours: no configuration of matplotlib's changes a byte of them, and none stops a command."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from dpsweep.reports.figures.charts import Boxes, Chart, Curve, Map, draw_charts, draw_maps
from dpsweep.reports.figures.drawing import DATE, Drawing, own_matplotlib_settings
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.statement.one_page import one_page_statement, pdf_bytes_of_page, row_font_size_that_fits
from tests.reports.figures.test_heatmap import SHAPES, panels_of
from tests.reports.statement.test_one_page import claim_with

CURVES = (Curve(label="one", x=(1.0, 2.0), y=(1.0, 3.0)), Curve(label="two", x=(1.0, 2.0), y=(2.0, 1.0)))
ODD: Mapping[Any, Any] = {
    "text.usetex": True,
    "font.size": 30.0,
    "font.family": ["monospace"],
    "font.sans-serif": ["no such font"],
    "savefig.dpi": 17.0,
    "savefig.bbox": "tight",
    "figure.dpi": 31.0,
    "figure.facecolor": "red",
    "figure.autolayout": True,
    "axes.facecolor": "black",
    "axes.formatter.use_locale": True,
    "axes.unicode_minus": False,
    "axes.xmargin": 0.4,
    "lines.linewidth": 9.0,
    "lines.antialiased": False,
    "path.sketch": (3.0, 100.0, 2.0),
    "path.simplify": False,
    "legend.frameon": True,
    "legend.shadow": True,
    "xtick.direction": "in",
    "xtick.bottom": False,
    "image.cmap": "hot",
    "boxplot.showmeans": True,
    "grid.linewidth": 5.0,
    "svg.fonttype": "path",
    "svg.id": "mine",
    "pdf.fonttype": 3,
    "pdf.use14corefonts": True,
    "pdf.compression": 0,
    "text.hinting": "none",
}
"""A user's settings, each of which changes a picture that is drawn under it, or stops it."""


def _chart(title: str = "t") -> Drawing:
    chart = Chart(title=title, x_label="x", y_label="y", curves=CURVES, log_x=True)
    return draw_charts("some", "words", chart, Boxes(title="t", y_label="y", groups=(("one", (1.0, 2.0, 3.0)),)))


def _maps() -> Drawing:
    one = Map(title="t", x_label="x", y_label="y", columns=("1", "2"), rows=("1",), values=((1.0, 2.0),))
    return draw_maps("some", "words", "m", one)


def _heatmap() -> Drawing:
    return draw_joint_and_per_method_heatmaps(panels_of(**SHAPES["2 x 2"]), "accuracy, %")[0]


def _files(picture: Drawing) -> tuple[bytes, ...]:
    assert picture.failure == ""
    return picture.png, picture.svg.encode(), picture.pdf()


DRAWN: Mapping[str, Callable[[], tuple[bytes, ...]]] = {
    "charts": lambda: _files(_chart()),
    "maps": lambda: _files(_maps()),
    "heatmap": lambda: _files(_heatmap()),
    "statement": lambda: (
        pdf_bytes_of_page(one_page_statement(claim_with())),
        str(row_font_size_that_fits(one_page_statement(claim_with()))).encode(),
    ),
}


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(DATE, "1")
    with mpl.rc_context(dict(ODD)):
        yield


@pytest.mark.parametrize("name", DRAWN)
def test_two_curators_draw_the_same_bytes(name: str, request: pytest.FixtureRequest) -> None:
    plain = DRAWN[name]()
    request.getfixturevalue("odd")
    assert DRAWN[name]() == plain
    assert {key: mpl.rcParams[key] for key in ODD}["font.size"] == 30.0, "and their settings are theirs again"


def test_a_date_that_is_none_stops_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATE, "yesterday")
    for draw in DRAWN.values():
        assert b"yesterday" not in b"".join(draw())
    assert os.environ[DATE] == "yesterday"


@pytest.mark.parametrize("title", ["$", "$\\frac$", "a$b$c", "한국어", "\x1b[31m", "\u202e"])
def test_any_name_can_be_drawn(title: str) -> None:
    """A dollar sign starts no formula, and a glyph that the font lacks is a box without a warning."""
    drawn = _chart(title)
    assert drawn.failure == ""
    assert drawn.pdf().startswith(b"%PDF-")
    assert "\x1b" not in drawn.svg
    assert "\u202e" not in drawn.svg


def test_logs_are_silent_within_and_as_before_after(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("matplotlib")
    before = log.level
    with own_matplotlib_settings({}):
        log.warning("no such font")
    assert log.level == before
    assert caplog.text == ""


@pytest.mark.parametrize("draw", [_chart, _maps, _heatmap], ids=["charts", "maps", "heatmap"])
def test_a_picture_that_fails_is_a_value_with_its_reason(
    draw: Callable[[], Drawing], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("latex could not be found")

    monkeypatch.setattr(Figure, "savefig", fails)
    failed = draw()
    assert failed.failure == "RuntimeError: latex could not be found"
    assert (failed.png, failed.svg, failed.pdf()) == (b"", "", b"")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_is_no_failure(stop: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(Figure, "savefig", stops)
    with pytest.raises(stop):
        _chart()


PROGRAM = """
from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
import dpsweep.reports.figures.heatmap
from hashlib import sha256
chart = Chart(title="t", x_label="x", y_label="y", curves=(Curve(label="one", x=(1.0, 2.0), y=(1.0, 3.0)),))
drawn = draw_charts("some", "words", chart)
print(drawn.failure, sha256(drawn.png + drawn.svg.encode() + drawn.pdf()).hexdigest())
"""
GARBAGE = bytes(range(128, 256))
LINES = b"text.usetex: True\nfont.size: 33\nbackend: no_such_backend\nno colon\nno.such.key: 1\nlines.linewidth: wide\n"
AMBIENT: Mapping[str, tuple[Mapping[str, bytes], Mapping[str, str]]] = {
    "none": ({}, {}),
    "in the working folder": ({"matplotlibrc": LINES}, {}),
    "in the working folder, no text": ({"matplotlibrc": GARBAGE}, {}),
    "named, no text": ({"mine": GARBAGE}, {"MATPLOTLIBRC": "mine"}),
    "a style, no text": ({"own/stylelib/mine.mplstyle": GARBAGE}, {"MPLCONFIGDIR": "own"}),
    "a backend that is none": ({}, {"MPLBACKEND": "no_such_backend"}),
    "a backend with windows": ({}, {"MPLBACKEND": "tkagg", "DISPLAY": ""}),
    "no folder for a cache": ({"own": b"a file"}, {"MPLCONFIGDIR": "own"}),
    "another language": ({"matplotlibrc": b"axes.formatter.use_locale: True\n"}, {"LC_ALL": "C", "TZ": "Asia/Seoul"}),
    "a date": ({}, {DATE: "1"}),
}


MORE = frozenset({"in the working folder, no text", "a style, no text", "a backend with windows", "a date"})
"""Cases that a shorter run leaves out: others have the same cause."""


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    """The digest that the first case drew."""
    return {}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in MORE else []) for name in AMBIENT]
)
def test_no_configuration_stops_an_import_or_says_a_word(name: str, tmp_path: Path, digests: dict[str, str]) -> None:
    files, variables = AMBIENT[name]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert digests.setdefault("first", done.stdout) == done.stdout
