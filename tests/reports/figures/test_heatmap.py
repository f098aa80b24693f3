"""Pictures of every shape: nothing overlaps, sizes are as declared, no global style is touched."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpsweep.reports.content.panels import MapPanel, Mark, build_map_panels, colour_scale_ends
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale, score_scale_of_config
from dpsweep.reports.content.sweep_table import State, read_sweep
from dpsweep.reports.figures.figure_layout import lay_out_panels
from dpsweep.reports.figures.heatmap import (
    PNG_DPI,
    draw_joint_and_per_method_heatmaps,
    legible_ink,
    matplotlib_figure_of_panels,
)

LR, CLIP = "trainer.lr", "trainer.clip_norm"


def steps(how_many: int, factor: float = 2.0) -> tuple[float, ...]:
    return tuple(0.0123 * factor**step for step in range(how_many))


SHAPES: dict[str, dict[str, Any]] = {
    "one point": {"axes": {"dpsgd": {LR: (0.1,)}}},
    "no axis": {"axes": {"dpsgd": {}}},
    "2 x 2": {
        "axes": {"dpsgd": {LR: (0.1, 0.2), CLIP: (1, 2)}},
        "fates": {0: "failed", 1: "diverged", 2: "killed"},
    },
    "1 x 7": {"axes": {"dpsgd": {LR: steps(7), CLIP: (1.0,)}}},
    "7 x 1": {"axes": {"dpsgd": {CLIP: steps(7), LR: (0.1,)}}},
    "12 x 10": {
        "axes": {"dpsgd": {LR: steps(12), CLIP: steps(10, 1.7)}},
        "fates": {5: "not run", 7: "diverged"},
    },
    "all failed": {
        "axes": {"dpsgd": {LR: (0.1, 0.2), CLIP: (1, 2)}},
        "fates": dict.fromkeys(range(4), "failed"),
    },
    "two methods": {"axes": {"dpsgd": {LR: steps(7), CLIP: steps(5)}, "dpnsgd": {LR: steps(7), CLIP: steps(5)}}},
    "three noises": {
        "axes": {"dpsgd": {LR: steps(3), CLIP: (1, 2)}, "dpadam": {LR: steps(3), CLIP: (1, 2)}},
        "noises": (1.5, 2.0, 3.0),
    },
    "many panels, long names": {
        "axes": {
            "dpadam_of_a_very_long_name_that_somebody_chose": {
                LR: (0.1, 0.2),
                "trainer.a_rather_long_quantity_name": ("<b>&$x$_^{", "another long value here"),
                "trainer.beta1": (0.9, 0.99),
                "model": ("one_hidden_layer_of_a_hundred", "resnet20"),
            }
        },
        "noises": (1.5, 2.0),
    },
}


def panels_of(
    axes: dict[str, dict[str, tuple[Any, ...]]],
    noises: tuple[float, ...] = (4.0,),
    fates: dict[int, str] | None = None,
) -> tuple[MapPanel, ...]:
    """Panels of a tidy table as `table.read` makes it."""
    points = [
        {"method": method, "noise_multiplier": noise} | dict(zip(own, values, strict=True))
        for method, own in axes.items()
        for noise, *values in itertools.product(noises, *own.values())
    ]
    scores = [0.5 + 0.4 * ((place * 37) % 101) / 101 for place in range(len(points))]
    names = dict.fromkeys(key for own in axes.values() for key in own)
    columns: dict[str, list[Any]] = {name: [point.get(name) for point in points] for name in names}
    columns |= {name: [point[name] for point in points] for name in ("method", "noise_multiplier")}
    columns |= {
        "state": [State((fates or {}).get(place, "finished")) for place in range(len(points))],
        "accuracy": scores,
        "accuracy_low": [score - 0.02 for score in scores],
        "accuracy_high": [score + 0.02 for score in scores],
    }
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
    return build_map_panels(frame, tuple(names))


def scale_of_numbers(width: float) -> ScoreScale:
    dataset = {"target": (0.0, width), "target_unit": "mmHg"}
    return score_scale_of_config({"loss": {"kind": "absolute_error"}, "dataset": dataset})


SCALES = {"percent": PERCENT} | {f"{width:g} mmHg": scale_of_numbers(width) for width in (2e-4, 1, 325, 5e5)}


def test_a_map_of_numbers_says_errors_and_colours_the_smallest_like_the_best() -> None:
    scale = scale_of_numbers(325)
    panels = [replace(panel, scale=scale) for panel in panels_of(**SHAPES["2 x 2"])]
    drawn = matplotlib_figure_of_panels(panels, colour_scale_ends(panels), scale.heading("mean absolute error"))
    texts = [text.get_text() for axes in drawn.axes for text in axes.findobj(mpl.text.Text)]
    cells = [cell for panel in panels for cell in panel.cells.values() if cell.state is State.FINISHED]
    for cell in cells:
        assert cell.accuracy is not None
        assert f"{325 * (1 - cell.accuracy):.1f}" in texts
    assert "±6.5" in texts
    assert "mean absolute error, mmHg" in " ".join(text.replace("\n", " ") for text in texts)
    best = next(cell for cell in cells if cell.mark is Mark.BEST)
    assert best.accuracy == max(cell.accuracy or 0 for cell in cells)
    alt = draw_joint_and_per_method_heatmaps(panels, "x")[0].alt
    errors = sorted(325 * (1 - (cell.accuracy or 0)) for cell in cells)
    assert f"scores from {errors[-1]:.1f} to {errors[0]:.1f} mmHg" in alt


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_text_overlaps_or_leaves_the_figure(shape: str, scale: ScoreScale) -> None:
    panels = [replace(panel, scale=scale) for panel in panels_of(**SHAPES[shape])]
    drawn = matplotlib_figure_of_panels(panels, colour_scale_ends(panels), scale.heading("noisy accuracy"))
    assert isinstance(drawn.canvas, FigureCanvasAgg)
    drawn.canvas.draw()
    renderer = drawn.canvas.get_renderer()
    texts = [
        text for axes in drawn.axes for text in axes.findobj(mpl.text.Text) if text.get_text() and text.get_visible()
    ]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    for (name, box), (other, there) in itertools.combinations(boxes, 2):
        assert not box.overlaps(there), f"{name!r} touches {other!r}"
    width, height = drawn.canvas.get_width_height()
    for name, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, name


@pytest.mark.parametrize("shape", ["2 x 2", "three noises", "all failed"])
def test_pictures_have_their_declared_size_and_leave_no_trace(shape: str) -> None:
    before = dict(mpl.rcParams)
    drawn = draw_joint_and_per_method_heatmaps(panels_of(**SHAPES[shape]), "accuracy, %")
    assert dict(mpl.rcParams) == before
    assert pyplot.get_fignums() == []
    assert [picture.name for picture in drawn] == [
        "heatmap",
        *(f"heatmap-{name}" for name in SHAPES[shape]["axes"]),
    ]
    for picture in drawn:
        assert picture.png[:8] == b"\x89PNG\r\n\x1a\n"
        pixels = struct.unpack(">II", picture.png[16:24])
        layout = lay_out_panels(picture.panels)
        assert pixels == (
            round(layout.width * PNG_DPI),
            round(layout.height * PNG_DPI),
        )
        assert picture.svg.rstrip().endswith("</svg>")


def test_states_are_named_in_words_and_the_best_by_name(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    whole = draw_joint_and_per_method_heatmaps(build_map_panels(sweep.table, sweep.swept_keys), "noisy accuracy, %")[0]
    for word in (
        "failed",
        "diverged",
        "killed",
        "not run",
        "best of its search",
        "best of its method",
        "lr",
        "clip_norm",
    ):
        assert f">{word}</text>" in whole.svg


def test_a_figure_is_made_without_drawing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing it once for each panel would take a third of the time of a picture of many."""
    monkeypatch.setattr(Figure, "draw", lambda *_: pytest.fail("it was drawn"))
    panels = panels_of(**SHAPES["three noises"])
    assert len(matplotlib_figure_of_panels(panels, colour_scale_ends(panels), "accuracy, %").axes) == len(panels) + 2


def test_maps_of_many_cells_are_drawn_without_labels() -> None:
    (small,) = lay_out_panels(panels_of({"dpsgd": {LR: steps(12), CLIP: steps(10)}})).places
    (large,) = lay_out_panels(panels_of({"dpsgd": {LR: steps(40, 1.1), CLIP: steps(40, 1.1)}})).places
    assert small.annotated
    assert not large.annotated
    assert large.width < 8


def test_a_methods_name_never_leaves_the_folder() -> None:
    assert (
        draw_joint_and_per_method_heatmaps(panels_of({"../../dpsgd": {LR: (0.1,)}}), "x")[1].name
        == "heatmap-------dpsgd"
    )


BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "no colour": [[0.2126, 0.7152, 0.0722]] * 3,
}
"""What becomes of linear RGB in eyes that lack a kind of cone. *Source*: Machado, Oliveira, Fernandes 2009, Table 1."""


def luminance(colours: Any, blindness: str) -> Any:
    """Of colours in sRGB [n, 3], as such an eye sees them."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    return np.clip(linear @ np.transpose(BLINDNESS[blindness]), 0, 1) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_who_sees_few_colours_sees_the_same_order_and_every_mark(blindness: str) -> None:
    panels = panels_of({"dpsgd": {LR: steps(8), CLIP: steps(6)}})
    drawn = matplotlib_figure_of_panels(panels, colour_scale_ends(panels), "accuracy, %")
    drawn.canvas.draw()
    (axes,) = [one for one in drawn.axes if one.collections]
    mesh = axes.collections[0]
    scores, colours = np.ravel(mesh.get_array()), np.reshape(mesh.get_facecolor(), (-1, 4))[:, :3]
    seen = luminance(colours, blindness)
    assert (np.diff(seen[np.argsort(scores)]) > 0).all(), "the better, the lighter"
    inks = np.array([mpl.colors.to_rgb(legible_ink(colour)) for colour in colours])
    ends = np.sort([seen, luminance(inks, blindness)], axis=0)
    assert ((ends[1] + 0.05) / (ends[0] + 0.05)).min() > 4, "texts and stars"
    frames = [patch for patch in axes.patches if patch.get_zorder() == 4]
    light, dark = ({mpl.colors.to_hex(patch.get_edgecolor()) for patch in frames[half::2]} for half in (0, 1))
    assert (light, dark) == ({"#ffffff"}, {"#000000"}), "a frame is seen over every colour: 21 to 1 within itself"
