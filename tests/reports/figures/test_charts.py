"""Charts: legends have room, maps of many panels break into rows."""

from __future__ import annotations

import io
import re

import matplotlib as mpl
import numpy as np
import pytest

from dpsweep.reports.figures.charts import Boxes, Chart, Curve, Map, draw_charts, draw_maps
from dpsweep.reports.figures.drawing import GRID, INK, MUTED, SERIES


def picture(png: bytes) -> np.ndarray:
    return np.asarray(mpl.image.imread(io.BytesIO(png)))[:, :, :3].mean(axis=2)


@pytest.mark.parametrize("curves", [0, 1, 3, 4, 8, 11])
def test_no_legend_is_cut_off(curves: int) -> None:
    """Below everything that is drawn there is white paper, whatever the number of names."""
    many = tuple(Curve(label=f"curve of number {place}", x=(1.0, 2.0), y=(1.0, 2.0)) for place in range(curves))
    drawn = picture(draw_charts("some", "words", Chart(title="t", x_label="x", y_label="y", curves=many)).png)
    assert drawn[-6:].min() > 0.99
    assert (drawn[-90:].min() < 0.9) == (curves > 2), "and no more of it than the names need"


def test_boxes_alone_have_no_legend() -> None:
    boxes = Boxes(title="t", y_label="y", groups=(("one", (1.0, 2.0, 3.0)),))
    assert picture(draw_charts("some", "words", boxes).png).shape[0] == 720


def test_many_maps_break_into_rows() -> None:
    def drawn(panels: int) -> tuple[int, ...]:
        one = Map(title="t", x_label="x", y_label="y", columns=("1", "2"), rows=("1",), values=((1.0, 2.0),))
        return picture(draw_maps("some", "words", "m", *([one] * panels)).png).shape

    assert drawn(3)[0] == drawn(1)[0]
    assert drawn(4) == (drawn(1)[0] + 720, drawn(2)[1])
    assert drawn(6)[1] == drawn(3)[1]


def test_no_ink_is_left_out_that_pages_exchange_at_night() -> None:
    """A text or line without a colour of its own is black, on a black page too."""
    curves = tuple(Curve(label=f"curve {place}", x=(1.0, 2.0), y=(1.0, 2.0)) for place in range(3))
    chart = Chart(title="t", x_label="x", y_label="y", curves=curves, log_x=True, at=(1.5,), levels=(1.2,))
    boxes = Boxes(title="t", y_label="y", groups=(("one", (1.0, 2.0, 3.0)),))
    one = Map(title="t", x_label="x", y_label="y", columns=("1", "2"), rows=("1",), values=((1.0, 2.0),))
    for drawn in (draw_charts("some", "words", chart, boxes), draw_maps("some", "words", "m", one)):
        texts = re.findall(r"<text style=\"([^\"]*)\"", drawn.svg)
        assert len(texts) > 5
        assert [text for text in texts if INK not in text] == []
        strokes = set(re.findall(r"stroke: (#\w+)", drawn.svg))
        assert strokes <= {INK, MUTED, GRID, *SERIES}
