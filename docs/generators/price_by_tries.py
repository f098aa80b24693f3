"""Draws docs/figures/price_by_tries.png: epsilon by the expected number of tries, under five rules.

python docs/generators/price_by_tries.py

The picture carries its numbers as text, and a test computes some of them again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import PlanEvent, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.notation import delta_text_rounded_down
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    Composition,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Threshold,
)
from dpsweep.reports.figures import charts
from dpsweep.reports.figures import drawing as marks
from dpsweep.reports.reproduction import one_run

NAME = "price_by_tries"
PICTURE = Path(__file__).parents[1] / "figures" / f"{NAME}.png"
DELTA, NOISE = 1e-5, 2.0
ADD = Adjacency.ADD_OR_REMOVE_ONE
PANEL = Panel(claimants=(Pld(), Rdp()))
TRIES = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 35, 48, 65, 90, 120, 160, 220, 300)

RULES: dict[str, SelectionRule] = {
    "composition": Composition(),
    "Poisson selection": PoissonSelection(),
    "random stopping": RandomStopping(delta=DELTA),
    "threshold": Threshold(threshold=0.9, delta=DELTA),
    "private selection": PrivateSelection(),
}
ATTACKED = ("Poisson selection", "private selection")
COLOURS = dict(zip(RULES, (marks.SERIES[place] for place in (1, 3, 4, 2, 0)), strict=True))

SIZE, PLACE = (7.4, 4.5), (0.07, 0.115, 0.7, 0.755)
X_TICKS, Y_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 300), (3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150)
FEW_COLOURS, DIGITS, MARGIN = 128, 4, 0.9


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Upper bounds on epsilon at each number of tries, and lower bounds by the attack where it is drawn."""

    tries: tuple[int, ...]
    epsilons: tuple[float, ...]
    attacks: tuple[float, ...]


def prices(name: str, tries: Sequence[int] = TRIES) -> Prices:
    """The prices of a rule."""
    events = [RULES[name].event([_run()] * count) for count in tries]
    attacks = [lower_bound(event.training, DELTA, ADD) for event in events] if name in ATTACKED else []
    return Prices(
        tries=tuple(tries),
        epsilons=tuple(round(PANEL.epsilon(event, DELTA, ADD), DIGITS) for event in events),
        attacks=tuple(round(one, DIGITS) for one in attacks),
    )


def draw(drawn: Mapping[str, Prices]) -> bytes:
    """The picture as a PNG that carries its numbers."""
    figure = Figure(figsize=SIZE)
    FigureCanvasAgg(figure)
    axes = figure.add_axes(PLACE)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, own in drawn.items():
        colour = COLOURS[name]
        axes.plot(own.tries, own.epsilons, color=colour, linewidth=2.0, alpha=0.5 if own.attacks else 1.0)
        if own.attacks:
            axes.plot(own.tries, own.attacks, color=colour, linewidth=1.3, linestyle=(0, (3, 2)))
            axes.fill_between(own.tries, own.attacks, own.epsilons, color=colour, alpha=0.12, linewidth=0)
        axes.annotate(
            f"{name} {own.epsilons[-1]:.1f}",
            (own.tries[-1], own.epsilons[-1]),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_xlim(TRIES[0], TRIES[-1])
    every = [one for own in drawn.values() for one in (*own.epsilons, *own.attacks)]
    axes.set_ylim(MARGIN * min(every), max(every) / MARGIN)
    for axis, ticks in ((axes.xaxis, X_TICKS), (axes.yaxis, Y_TICKS)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    charts.style_axes(axes, "", "expected number of tries (composition: number of runs)", "epsilon")
    figure.text(PLACE[0], 0.945, "The price of a search", fontsize=11.5, fontweight="bold", color=marks.INK)
    run = f"One run: {one_run.RATE:.0%} of the records a step, {one_run.STEPS:,} steps, noise multiplier {NOISE:g}"
    figure.text(PLACE[0], 0.9, f"{run}; delta {delta_text_rounded_down(DELTA)}", fontsize=8.5, color=marks.MUTED)
    kinds = [
        Line2D([], [], color=marks.INK, linewidth=2.0, label="proven upper bound"),
        Line2D([], [], color=marks.INK, linewidth=1.3, linestyle=(0, (3, 2)), label="lower bound by an attack"),
    ]
    axes.legend(handles=kinds, frameon=False, fontsize=8, labelcolor=marks.INK, loc="upper left")
    return with_numbers(
        charts.render_figure_to_drawing(NAME, "", lambda: figure).png,
        {name: asdict(own) for name, own in drawn.items()},
    )


def numbers(picture: Path = PICTURE) -> dict[str, Prices]:
    """The numbers that a picture carries."""
    stored = stored_numbers(picture)
    return {name: Prices(**{key: tuple(value) for key, value in own.items()}) for name, own in stored.items()}


def stored_numbers(picture: Path) -> dict[str, Any]:
    """The numbers that `with_numbers` stored in a picture."""
    with Image.open(picture) as image:
        return dict(json.loads(image.info["numbers"]))


def with_numbers(png: bytes, numbers: Mapping[str, Any]) -> bytes:
    """The picture in few colours, with its numbers as text."""
    information, made = PngInfo(), io.BytesIO()
    information.add_text("numbers", json.dumps(numbers))
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(FEW_COLOURS).save(made, format="png", optimize=True, pnginfo=information)
    return made.getvalue()


def _run() -> PlanEvent:
    step = poisson_gaussian(sample_rate=one_run.RATE, noise_multiplier=NOISE)
    return PlanEvent(training=repeat(step, one_run.STEPS))


if __name__ == "__main__":
    PICTURE.write_bytes(draw({name: prices(name) for name in RULES}))
