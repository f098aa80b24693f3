"""PDF files of figures: the same bytes again, no date, fonts embedded as publishers want them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpsweep.reports.figures.charts import Chart, Curve, Map, draw_charts, draw_maps
from dpsweep.reports.figures.figure_layout import lay_out_panels
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from tests.reports.figures.test_heatmap import SHAPES, panels_of

CURVES = (Curve(label="one", x=(1.0, 2.0), y=(1.0, 3.0)), Curve(label="two", x=(1.0, 2.0), y=(2.0, 1.0)))
ONE = Map(title="t", x_label="x", y_label="y", columns=("1", "2"), rows=("1",), values=((1.0, 2.0),))
DRAWN: dict[str, Callable[[], bytes]] = {
    "a map": lambda: draw_joint_and_per_method_heatmaps(panels_of(**SHAPES["2 x 2"]), "accuracy, %")[0].pdf(),
    "a chart": lambda: draw_charts("some", "words", Chart(title="t", x_label="x", y_label="y", curves=CURVES)).pdf(),
    "maps": lambda: draw_maps("some", "words", "m", ONE).pdf(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_gives_the_same_bytes_again(name: str) -> None:
    first = DRAWN[name]()
    assert first.startswith(b"%PDF-")
    assert DRAWN[name]() == first
    assert b"Date" not in first
    assert b"Matplotlib" not in first


@pytest.mark.parametrize("name", DRAWN)
def test_fonts_are_embedded_and_none_is_of_type_3(name: str) -> None:
    drawn = DRAWN[name]()
    assert b"/FontFile2" in drawn
    assert b"/Subtype /Type3" not in drawn


def test_a_map_of_seven_columns_fits_a_column_of_a_paper() -> None:
    """Its texts keep 5 points or more in a column of 3.3 inches, but for the halves of intervals below the scores."""
    shape = SHAPES["two methods"]
    (_, picture, _) = draw_joint_and_per_method_heatmaps(panels_of(**shape), "accuracy, %")
    inches = lay_out_panels(picture.panels).width
    assert 6.5 * min(1.0, 3.3 / inches) > 5
