"""A sweep's numbers as tables: each cell has a text and a sort key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.ledger.statement import charge_facts, paid_attempts
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up, short_population_name
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.formatting import axis_label, method_label, setting_text
from dpsweep.reports.content.panels import Cell as MapCell
from dpsweep.reports.content.panels import MapPanel, Mark
from dpsweep.reports.content.score_scale import ScoreScale
from dpsweep.reports.content.sweep_table import State, Sweep

TITLES = {
    "state": "outcome",
    "interval": "95 % interval",
    "steps_run": "steps",
    "seconds": "time",
    "attempts_charged": "charged",
    "share": "share of the charge",
    "trial": "folder in trials/",
}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One cell of a sheet: its text and its sort key."""

    text: str
    key: float | str | None = None
    marked: bool = False

    @property
    def sort_key(self) -> str:
        """The key to six digits, which is what a page sorts by; empty if the text is the same or there is no key."""
        written = f"{self.key:.6g}" if isinstance(self.key, (int, float)) else self.key or ""
        return "" if written == self.text else written


Cell = Item | str | tuple[str, float | None]
"""A cell as an item, as its text, or as its text and its sort key."""


def _item_from_cell(cell: Cell) -> Item:
    if isinstance(cell, Item):
        return cell
    return Item(text=cell) if isinstance(cell, str) else Item(text=cell[0], key=cell[1])


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table with a caption, columns and rows; the first item of a row names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Item, ...], ...]

    @classmethod
    def from_cells(cls, caption: str, columns: Iterable[str], rows: Iterable[Iterable[Cell]]) -> Sheet:
        """The sheet with these cells, as texts or with sort keys."""
        return cls(
            caption=caption, columns=tuple(columns), rows=tuple(tuple(map(_item_from_cell, row)) for row in rows)
        )

    def rows_as_dicts(self) -> list[dict[str, float | str]]:
        """The rows by column, with each item's sort key, or its text if it has none; equal headings get a number."""
        names = [
            f"{name} ({before + 1})" if (before := self.columns[:place].count(name)) else name
            for place, name in enumerate(self.columns)
        ]
        return [
            {name: item.text if item.key is None else item.key for name, item in zip(names, row, strict=True)}
            for row in self.rows
        ]


def charges_sheet(bill: Bill) -> Sheet:
    """The charges of this sweep, one row each."""
    by_part = [
        {
            (part, name): bound
            for part, bounds in charge_facts(charge).bounds_by_part.items()
            for name, bound in bounds.items()
        }
        for charge in bill.charges
    ]
    voices = list(dict.fromkeys(voice for bounds in by_part for voice in bounds))
    reasons = {"plan": "the plan", "repeat": "a repeat"}
    rows: list[tuple[Cell, ...]] = []
    for charge, own in zip(bill.charges, by_part, strict=True):
        bounds, facts = [own.get(voice) for voice in voices], charge_facts(charge)
        rows.append(
            (
                *(
                    reasons.get(facts.reason, facts.reason),
                    (str(paid_attempts(charge)), paid_attempts(charge)),
                ),
                *(
                    (epsilon_text_rounded_up(charge.epsilon), charge.epsilon),
                    (delta_text_rounded_up(charge.delta), charge.delta),
                ),
                facts.claimed_by,
                *(("" if bound is None else epsilon_text_rounded_up(bound), bound) for bound in bounds),
            )
        )
    columns = (
        "Charge for",
        "runs",
        "epsilon",
        "delta",
        "claimed by",
        *(f"epsilon by {name}, {short_population_name(part)}" for part, name in voices),
    )
    return Sheet.from_cells("Charges of this sweep", columns, rows)


def runs_sheet(sweep: Sweep, columns: Sequence[str]) -> Sheet:
    """One row per run in the order of the sweep's table, the final run last, with the swept keys and these columns."""
    scale = sweep.score_scale
    own = {"accuracy": scale.heading(sweep.score_label), "gap": scale.gap_title}
    titles = [{**TITLES, **own}.get(name, name) for name in columns]
    winner, axes = sweep.winner_id, sweep.keys_that_tell_runs_apart
    rows = [
        (
            Item(text=str(label), key=label, marked=row["trial"] == winner),
            Item(text=method_label(str(row["method"]))),
            *(_item_of_value(row[key]) for key in axes),
            *(_item_of_row_and_column(name, row, scale) for name in columns),
        )
        for label, row in zip(sweep.run_labels, sweep.all_run_rows.to_dict("records"), strict=True)
    ]
    return Sheet(
        caption=f"All {sweep.runs.nouns}",
        columns=(sweep.runs.noun, "method", *(axis_label(key) for key in axes), *titles),
        rows=tuple(rows),
    )


def panel_sheet(panel: MapPanel) -> Sheet:
    """A panel's numbers, arranged as in the picture."""
    down = panel.down.label or panel.label
    rows = [
        (
            Item(text=panel.down.ticks[row]),
            *(
                item_from_map_cell(panel.cells.get((row, column)), panel.scale)
                for column in range(len(panel.across.values))
            ),
        )
        for row in reversed(range(len(panel.down.values)))
    ]
    across = [f"{panel.across.label} {tick}".strip() for tick in panel.across.ticks]
    return Sheet(caption=panel.name, columns=(down, *across), rows=tuple(rows))


def _item_of_row_and_column(name: str, row: Mapping[Hashable, Any], scale: ScoreScale) -> Item:
    if name == "interval":
        low, high = row["accuracy_low"], row["accuracy_high"]
        if low is None or high is None or row["state"] != State.FINISHED:
            return Item(text="")
        return Item(text=scale.interval_text(low, high), key=scale.ends(low, high)[0])
    value = row[name]
    if value is None:
        return Item(text="")
    if name == "accuracy":
        return Item(text=scale.text(value), key=scale.number(value))
    if name == "gap":
        score = row["accuracy"]
        return Item(text=scale.gap_text(score, value), key=scale.gap(score, value))
    if name == "share":
        return Item(text=f"{value:.1%}", key=value)
    if name == "seconds":
        return Item(text=notation.duration_text(value), key=value)
    return _item_of_value(value)


def _item_of_value(value: object) -> Item:
    key = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return Item(text="" if value is None else setting_text(value), key=key)


def item_from_map_cell(cell: MapCell | None, scale: ScoreScale) -> Item:
    """A cell of a map in words: its score with its interval, or its state."""
    if cell is None:
        return Item(text="not in the grid")
    if cell.state is not State.FINISHED or cell.accuracy is None:
        return Item(text=cell.state.value)
    text = scale.text(cell.accuracy)
    if cell.low is not None and cell.high is not None:
        text += f" ({scale.interval_text(cell.low, cell.high)})"
    if cell.runs > 1:
        text += f", mean of {cell.runs} runs"
    if cell.compared is not None:
        text += f", compared by {scale.text(cell.compared)}"
    words = {Mark.BEST: ", best", Mark.CHOSEN: ", chosen", Mark.AS_GOOD: ", not significantly worse"}
    return Item(text=text + words.get(cell.mark, ""), marked=cell.mark in (Mark.BEST, Mark.CHOSEN))
