"""Writes docs/search/means.txt and the measured parts of docs/search.md, and draws docs/figures/grid_sizes.png.

python docs/generators/grid_sizes.py

All comes from benchmarks/grid_sizes.jsonl. The picture carries its numbers as text, and a test compares them.
"""

from __future__ import annotations

import runpy
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpsweep.reports.advice.advice import NEAR
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.drawing import INK, MUTED, SERIES
from dpsweep.sweeper.commands.hydra_app import CONF

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs" / "search.md", ROOT / "docs" / "figures" / "grid_sizes.png"
MEANS = ROOT / "docs" / "search" / "means.txt"
PRICES = runpy.run_path(str(ROOT / "docs" / "generators" / "price_by_tries.py"))
STUDY = runpy.run_path(str(ROOT / "benchmarks" / "grid_sizes.py"), run_name="imported")
RECIPES = runpy.run_path(str(ROOT / "benchmarks" / "recipes.py"), run_name="imported")
SETTINGS = STUDY["configured"]()
FOUND = STUDY["lines"](STUDY["RESULTS"])
CELLS = STUDY["cells_of"](FOUND)
ONE_POINT, ORACLE = (STUDY["Way"](rule=STUDY[name], points=1) for name in ("ONE_POINT", "ORACLE"))
DEFAULT_MAP = "the default map"
ALONE = "train the default once"
UNDECIDED = "no search is shown to be better than one point, though some means are higher"
"""What is advised where no way is shown to be better than one point: by whether the best mean is near."""

EPSILONS = sorted({epsilon for _, epsilon in CELLS})
DRAWN_AT = 3.0
"""The epsilon of the panels of single data sets."""

UNSTEADY = ("enron", "adult")
"""The data sets on which single runs of one point differ by many points: their last iterates do."""

SMALL = 10_000
"""The most records of a small data set."""

MARKERS = "osD^vP*Xhd"


def searched_sets(epsilon: float) -> list[str]:
    """The data sets that were searched at an epsilon, without those that are told beside the others."""
    return [data for data, other in CELLS if other == epsilon and data not in SETTINGS["beside"]]


def sets_by_size() -> dict[str, list[str]]:
    """The data sets of each size that were searched at every epsilon."""
    measured = [data for data in SETTINGS["data"] if data not in SETTINGS["beside"]]
    every = [data for data in measured if all(data in searched_sets(epsilon) for epsilon in EPSILONS)]
    small = [data for data in every if _declared_records(data) <= SMALL]
    large = [data for data in every if data not in small]
    return {"any number of": every, f"up to {SMALL:,}": small, f"more than {SMALL:,}": large}


def _declared_records(data: str) -> int:
    return int(yaml.safe_load((CONF / "dataset" / f"{data}.yaml").read_text())["dataset"]["records"])


def what_to_do() -> Iterator[str]:
    """The sentence on top of the page, and the table that it rests on."""
    rows, said = [], []
    for size, data in sets_by_size().items():
        if not data:
            continue
        for epsilon in EPSILONS:
            ranked = STUDY["ranked_ways"](CELLS, epsilon, data)
            best, one = ranked[0], next(row for row in ranked if row.way == ONE_POINT)
            is_near = one.below_oracle - best.below_oracle <= 100 * NEAR
            advice = f"search by {best.way}" if one.ranks[0] > 1 else ALONE if is_near else UNDECIDED
            said.append((size, epsilon, advice))
            undecided = sum(row.ranks[0] == 1 for row in ranked)
            named = "all below" if size == next(iter(sets_by_size())) else ", ".join(data)
            rows.append(
                f"| {size} | {named} | {epsilon:g} | {best.way} | {best.below_oracle:.1f} | "
                f"{one.below_oracle:.1f} | {one.ranks[0]} to {one.ranks[1]} | {undecided} of {len(ranked)} |"
            )
    yield f"**{_sentence(said)}**"
    yield ""
    heads = ("records", "data sets", "epsilon", "best mean", "points below the oracle", "of one point", "its ranks")
    yield f"| {' | '.join(heads)} | may be best |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from rows
    yield ""
    yield from _without_unsteady_sets()


def _without_unsteady_sets() -> Iterator[str]:
    """How far the best mean is ahead of one point without the data sets on which single runs differ most."""
    steady = [data for data in sets_by_size()["any number of"] if data not in UNSTEADY]
    ahead = []
    for epsilon in EPSILONS:
        ranked = STUDY["ranked_ways"](CELLS, epsilon, steady)
        one = next(row for row in ranked if row.way == ONE_POINT)
        ahead.append(f"{one.below_oracle - ranked[0].below_oracle:.1f} ({ranked[0].way}) at epsilon {epsilon:g}")
    spreads = [statistics.stdev(CELLS[data, epsilon][ONE_POINT]) for data in UNSTEADY for epsilon in EPSILONS]
    yield (
        f"On {_listed(UNSTEADY)} single runs of one point have standard deviations of {min(spreads):.1f} to "
        f"{max(spreads):.1f} points, since their last weights swing: a search picks a lucky end there. Without these "
        f"two, the best mean is ahead of one point by {_listed(ahead)}."
    )


def _sentence(said: Sequence[tuple[str, float, str]]) -> str:
    """What to do at each size and epsilon: a search where one point is behind another way."""
    parts = []
    for size in dict.fromkeys(size for size, _, _ in said):
        epsilons: dict[str, list[str]] = {}
        for other, epsilon, advice in said:
            if other == size:
                epsilons.setdefault(advice, []).append(f"{epsilon:g}")
        told = [f"{advice} at epsilon {_listed(own)}" for advice, own in epsilons.items()]
        parts.append((size, "; ".join(told)))
    return " ".join(
        f"With {size} records: {told}." for size, told in parts if (size, told) == parts[0] or told != parts[0][1]
    )


def not_run() -> str:
    """How many searches of the settings were made on each data set."""
    known = {(line["data"], line["points"], line["rule"], line["epsilon"], line["round"]) for line in FOUND}
    asked = [*STUDY["searches"](SETTINGS)]
    made = [one for one in asked if (one.data, one.points, one.rule, one.epsilon, one.round) in known]
    counts = Counter(one.data for one in made)
    each = len(asked) // len(SETTINGS["data"])
    rows = _listed([f"{data} {counts[data]}" for data in SETTINGS["data"]])
    return f"Of the {len(asked)} searches that the settings ask for, about {each} a data set, these were made: {rows}."


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def ranks() -> Iterator[str]:
    """For each epsilon: every way, its mean below the oracle, and the ranks that it may have."""
    for epsilon in EPSILONS:
        data = searched_sets(epsilon)
        yield f"epsilon {epsilon:g}, on {_listed(data)}"
        for row in STUDY["ranked_ways"](CELLS, epsilon, data):
            yield f"  {row.way!s:<36}{-row.below_oracle:>6.1f}   ranks {row.ranks[0]:>2} to {row.ranks[1]}"
        yield ""


def drawn_numbers() -> dict[str, dict[str, dict[str, float]]]:
    """What the picture shows: by panel, by rule, by number of points.

    Panels of an epsilon have the mean over data sets of points below the oracle; those of a data set have accuracies.
    """
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for epsilon in EPSILONS:
        own = panels.setdefault(f"epsilon {epsilon:g}", {})
        for row in STUDY["ranked_ways"](CELLS, epsilon, searched_sets(epsilon)):
            own.setdefault(row.way.rule, {})[str(row.way.points)] = round(-row.below_oracle, 2)
    for data in searched_sets(DRAWN_AT):
        own = panels.setdefault(data, {})
        for way, values in sorted(CELLS[data, DRAWN_AT].items()):
            own.setdefault(way.rule, {})[str(way.points)] = round(statistics.fmean(values), 2)
    return panels


def draw(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> bytes:
    """The picture as a PNG that carries its numbers: a panel for each epsilon above, one for each data set below."""
    above = [name for name in panels if name.startswith("epsilon")]
    below = [name for name in panels if name not in above]
    figure = Figure(figsize=(12.5, 7.6))
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 12 * len(below), left=0.055, right=0.8, top=0.86, bottom=0.07, hspace=0.42, wspace=9)
    for names, row in ((above, 0), (below, 1)):
        width = 12 * len(below) // len(names)
        for place, name in enumerate(names):
            axes = figure.add_subplot(grid[row, place * width : (place + 1) * width])
            _draw_panel(axes, name, panels[name], is_mean=row == 0)
    rules = [*SETTINGS["rules"]]
    for place, rule in enumerate(rules):
        y = 0.83 - 0.034 * place
        figure.text(0.83, y, rule, fontsize=9, color=INK, va="center")
        line = figure.add_axes((0.805, y - 0.01, 0.02, 0.02))
        line.plot([0, 1], [0, 0], color=_colour(rule), linestyle=_line(rule), linewidth=1.4)
        line.plot([0.5], [0], color=_colour(rule), marker=MARKERS[place], markersize=4)
        line.set_axis_off()
    for place, (text, style) in enumerate({"one point, no search": "-", "the oracle (dishonest)": ":"}.items()):
        y = 0.83 - 0.034 * (len(rules) + 0.5 + place)
        figure.text(0.83, y, text, fontsize=9, color=MUTED, va="center")
        line = figure.add_axes((0.805, y - 0.01, 0.02, 0.02))
        line.plot([0, 1], [0, 0], color=MUTED, linestyle=style)
        line.set_axis_off()
    for place, text in enumerate(("○ a rule's best number of points", "★ the default map, 6 points of DP-NSGD")):
        figure.text(0.805, 0.83 - 0.034 * (len(rules) + 3 + place), text, fontsize=9, color=MUTED)
    title = "The model that is handed over, by rule and number of points, at one total epsilon"
    figure.text(0.01, 0.96, title, fontsize=11.5, fontweight="bold", color=INK)
    heads = {
        0.92: "Points of accuracy below the oracle, mean over data sets",
        0.455: f"Accuracy in percent at epsilon {DRAWN_AT:g}",
    }
    for y, head in heads.items():
        figure.text(0.01, y, head, fontsize=9, color=MUTED)
    return bytes(PRICES["with_numbers"](charts.render_figure_to_drawing("grid_sizes", "", lambda: figure).png, panels))


def _colour(rule: str) -> str:
    return SERIES[[*SETTINGS["rules"]].index(rule) % len(SERIES)]


def _line(rule: str) -> str:
    """Dashed where the colour is that of an earlier rule."""
    return "-" if [*SETTINGS["rules"]].index(rule) < len(SERIES) else "--"


def _draw_panel(axes: Axes, name: str, rules: Mapping[str, Mapping[str, float]], *, is_mean: bool) -> None:
    """The curves of one panel; two lines for one point and for the oracle."""
    alone = rules[ONE_POINT.rule]["1"]
    oracle = 0.0 if is_mean else rules[ORACLE.rule]["1"]
    axes.axhline(alone, color=MUTED, linewidth=1)
    axes.axhline(oracle, color=MUTED, linewidth=1, linestyle=":")
    lowest = alone
    for place, rule in enumerate(SETTINGS["rules"]):
        own = {int(points): value for points, value in rules.get(rule, {}).items()}
        if not own:
            continue
        style: dict[str, Any] = {
            "color": _colour(rule),
            "marker": MARKERS[place],
            "markersize": 4,
            "linewidth": 1.4,
            "linestyle": _line(rule),
        }
        axes.plot([*own], [*own.values()], **style)
        best = max(own, key=lambda points: own[points])
        axes.plot([best], [own[best]], "o", markersize=9, markerfacecolor="none", color=_colour(rule))
        lowest = min(lowest, statistics.fmean(own.values()))
    charts.style_axes(axes, "", f"{name}: points", "")
    for points, value in rules.get(DEFAULT_MAP, {}).items():
        axes.plot([int(points)], [value], "*", color=INK, markersize=8)
    sizes = SETTINGS["searched"]
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    axes.minorticks_off()
    axes.set_xlim(min(sizes) / 1.25, max(sizes) * 1.25)
    axes.set_ylim(top=oracle + 0.08 * (oracle - lowest) + 0.2)
    axes.tick_params(axis="y", labelsize=8)


def numbers(picture: Path = PICTURE) -> dict[str, Any]:
    """The numbers that a picture carries."""
    return dict(PRICES["stored_numbers"](picture))


def means() -> str:
    """All means and ranks."""
    return "\n".join((*ranks(), STUDY["table"](), ""))


def insert(page: str) -> str:
    """The page with what was measured."""
    parts = {
        "what to do": "\n".join(what_to_do()),
        "what was not run": not_run(),
        "one run by a law": f"```\n{RECIPES['table']()}\n```",
        "recipes compared": f"```\n{RECIPES['compared_table']()}\n```",
    }
    for name, text in parts.items():
        begin, end = f"<!-- begin {name}: python docs/generators/grid_sizes.py -->\n", f"<!-- end {name} -->\n"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    MEANS.write_text(means(), encoding="utf-8")
    PICTURE.write_bytes(draw(drawn_numbers()))
