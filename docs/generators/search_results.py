"""Writes the table of docs/search.md and draws docs/figures/search.png, from benchmarks/searching.jsonl.

python docs/generators/search_results.py

The picture carries its numbers as text, and a test compares them.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpsweep.reports.figures import charts
from dpsweep.reports.figures import drawing as marks

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs" / "search.md", ROOT / "docs" / "figures" / "search.png"
BEGIN, END = "<!-- begin table: python docs/generators/search_results.py -->\n", "<!-- end table -->\n"
PRICES = runpy.run_path(str(ROOT / "docs" / "generators" / "price_by_tries.py"))
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "searching.py"), run_name="imported")
EPSILON = 3.0
LEFT, RIGHT, ROW, HEAD = 0.225, 0.99, 0.22, 0.95
"""The edges of the panels as shares of the width; the heights of a row and of the head, in inches."""


def cells() -> dict[str, dict[str, list[float]]]:
    """Mean and half interval of each pictured way on each data set at `EPSILON`, in the order of the first data set."""
    found = BENCHMARK["cells_of"](BENCHMARK["lines"](BENCHMARK["RESULTS"]))
    pictured = {*yaml.safe_load(BENCHMARK["SETTINGS"].read_text())["pictured"], BENCHMARK["ORACLE"]}
    own: dict[str, dict[str, list[float]]] = {}
    for (way, data, epsilon), values in found.items():
        if epsilon == EPSILON and way in pictured:
            mean = round(sum(values) / len(values), 4)
            own.setdefault(data, {})[way] = [mean, round(BENCHMARK["margin"](values), 4)]
    first = next(iter(own.values()))
    order = sorted(first, key=lambda way: first[way][0])
    return {data: {way: ways[way] for way in order if way in ways} for data, ways in own.items()}


def draw(drawn: Mapping[str, Mapping[str, Sequence[float]]]) -> bytes:
    """The picture as a PNG that carries its numbers: a panel for each data set, a row for each way."""
    ways = list(next(iter(drawn.values())))
    maps = {name for name, way in BENCHMARK["evidence"]()["ways"].items() if way["shows_map"]}
    height = ROW * len(ways) + HEAD
    figure = Figure(figsize=(12.5, height))
    FigureCanvasAgg(figure)
    width = (RIGHT - LEFT) / len(drawn)
    for place, (data, own) in enumerate(drawn.items()):
        axes = figure.add_axes((LEFT + place * width, 0.45 / height, width * 0.88, ROW * len(ways) / height))
        for row, way in enumerate(ways):
            if way not in own:
                continue
            mean, margin = (100 * number for number in own[way])
            colour = marks.MUTED if way == BENCHMARK["ORACLE"] else marks.SERIES[0 if way in maps else 1]
            axes.plot([mean - margin, mean + margin], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot([mean], [row], "o", color=colour, markersize=5)
        axes.set_ylim(-0.7, len(ways) - 0.3)
        means = [100 * mean for mean, _ in own.values()]
        axes.set_xlim(min(means) - 2, max(means) + 1.5)
        charts.style_axes(axes, "", f"{data}, %", "")
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(ways)), ways if place == 0 else [""] * len(ways), fontsize=8, color=marks.INK)
        axes.tick_params(axis="y", length=0)
    title = f"The model that is handed over, at a total epsilon of {EPSILON:g}"
    figure.text(0.01, 1 - 0.28 / height, title, fontsize=11.5, fontweight="bold", color=marks.INK)
    for x, name, colour in ((0.01, "shows a map too", 0), (0.13, "shows one model, or scores of few points", 1)):
        figure.text(x, 1 - 0.5 / height, f"● {name}", fontsize=8.5, color=marks.SERIES[colour])
    return PRICES["with_numbers"](charts.render_figure_to_drawing("search", "", lambda: figure).png, drawn)


def numbers(picture: Path = PICTURE) -> dict[str, Any]:
    """The numbers that a picture carries."""
    return dict(PRICES["stored_numbers"](picture))


def insert(page: str) -> str:
    """The page with the table of what was measured."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}```\n{BENCHMARK['table']()}\n```\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_bytes(draw(cells()))
