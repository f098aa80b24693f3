"""Draws docs/figures/correlated_noise.png: what bands of correlated noise gain over independent noise.

python docs/generators/correlated_noise.py

The gains are those of benchmarks/correlated_noise.py, for the best of three methods.
"""

from __future__ import annotations

import io
import runpy
from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dpsweep.reports.figures.charts import render_figure_to_drawing
from dpsweep.reports.figures.drawing import INK, MUTED
from dpsweep.reports.figures.heatmap import legible_ink, write_centred_text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "figures" / "correlated_noise.png"
WIDTH, HEIGHT, TOP, MOST_COLOURS = 2.5, 2.0, 0.75, 128

Cell = tuple[str, int, float]


def draw(gains: Mapping[int, Mapping[Cell, float]]) -> bytes:
    """The picture as PNG: a row of maps for each data set, a map for each number of bands."""
    data = list(dict.fromkeys(cell[0] for cells in gains.values() for cell in cells))
    epochs = sorted({epochs for cells in gains.values() for _, epochs, _ in cells})
    epsilons = sorted({epsilon for cells in gains.values() for _, _, epsilon in cells})
    most = max(abs(gain) for cells in gains.values() for gain in cells.values())

    def figure_of_maps() -> Figure:
        figure = Figure(figsize=(WIDTH * len(gains) + 0.5, HEIGHT * len(data) + TOP))
        FigureCanvasAgg(figure)
        height = figure.get_figheight()
        grid = figure.subplots(len(data), len(gains), squeeze=False)
        figure.subplots_adjust(left=0.1, right=0.98, top=1 - TOP / height, bottom=0.45 / height, wspace=0.1, hspace=0.5)
        for row, name in zip(grid, data, strict=True):
            for place, (axes, bands) in enumerate(zip(row, gains, strict=True)):
                own = [[gains[bands].get((name, one, epsilon), nan) for epsilon in epsilons] for one in epochs]
                _draw_map(axes, own, most)
                axes.set_title(f"{name}, {bands} bands", fontsize=9, color=INK)
                axes.set_xticks(range(len(epsilons)), [f"{one:g}" for one in epsilons], fontsize=8)
                axes.set_yticks(range(len(epochs)), ["" if place else str(one) for one in epochs], fontsize=8)
                if not place:
                    axes.set_ylabel("epochs", fontsize=8, color=INK)
        for axes in grid[-1]:
            axes.set_xlabel("epsilon", fontsize=8, color=INK)
        title = "Points of accuracy that correlated noise gains over independent noise"
        figure.text(0.02, 1 - 0.24 / height, title, fontsize=10.5, fontweight="bold", color=INK)
        how = "best of three methods, learning rates tuned alike, equal epsilon"
        figure.text(0.02, 1 - 0.42 / height, how, fontsize=8, color=MUTED)
        return figure

    made = io.BytesIO()
    with Image.open(io.BytesIO(render_figure_to_drawing("correlated_noise", "", figure_of_maps).png)) as picture:
        picture.convert("RGB").quantize(MOST_COLOURS).save(made, format="png", optimize=True)
    return made.getvalue()


def _draw_map(axes: Axes, rows: Sequence[Sequence[float]], most: float) -> None:
    """A map of gains [epochs, epsilons]; a cell that was not run is left blank."""
    image = axes.imshow(rows, cmap="RdBu", vmin=-most, vmax=most, aspect="auto", origin="lower")
    for y, row in enumerate(rows):
        for x, gain in enumerate(row):
            if not isnan(gain):
                write_centred_text(axes, x, y, f"{gain:+.1f}", 8, legible_ink(image.cmap(image.norm(gain))))
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


if __name__ == "__main__":
    study: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "correlated_noise.py"), run_name="imported")
    PICTURE.write_bytes(draw(study["gains"](study["lines"](), study["BEST"])))
