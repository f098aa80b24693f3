"""Tables and bars on a terminal; the only module that imports rich.

Every text is visible (`accounting/printing.py`), and none is markup: `[red]` in a name is six characters.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from dpsweep.accounting.printing import escape_invisible_characters

PLAIN = box.SIMPLE_HEAD
FRAME = box.HEAVY_HEAD
TITLE = "table.title"
"""The style of a title, by rich's name."""

Justify = Literal["left", "right"]


class TerminalTable:
    """A table whose cells are visible text; a header may have a line break of ours."""

    def __init__(self, title: str = "", **layout: Any) -> None:
        shown = Text(escape_invisible_characters(title), style=TITLE) if title else None
        self.table = Table(title=shown, title_justify="left", **layout)

    def add_column(self, header: str = "", *, justify: Justify = "left", **layout: Any) -> None:
        """Adds a column; `header` is a text of this program's."""
        self.table.add_column(header, justify=justify, **layout)

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Adds a row."""
        self.table.add_row(*(Text(escape_invisible_characters(cell)) for cell in cells), style=style)


class Terminal:
    """Standard output as a terminal: prints sentences and tables; without `soft_wrap` it breaks long lines at words."""

    def __init__(self, *, soft_wrap: bool = False) -> None:
        self._wrap = soft_wrap
        self.console = Console(highlight=False, markup=False, emoji=False)

    def print_line(self, sentence: str, style: str | None = None) -> None:
        """Prints a sentence."""
        self.console.print(Text(escape_invisible_characters(sentence)), style=style, soft_wrap=self._wrap)

    def print_table(self, table: TerminalTable) -> None:
        """Prints a table."""
        self.console.print(table.table, soft_wrap=self._wrap)


def progress_bar_on_terminal(terminal: Terminal, width: int, *, disable: bool) -> Progress:
    """A bar with the fields `counts` and `state` of its task."""
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=_column_of_minimum_width(6)),
        BarColumn(bar_width=width, table_column=_column_of_minimum_width(width)),
        TextColumn("{task.fields[counts]}", markup=False, table_column=_column_of_minimum_width(3)),
        TimeElapsedColumn(table_column=_column_of_minimum_width(7)),
        TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=terminal.console,
        disable=disable,
    )


def can_draw_progress_bar(console: Console) -> bool:
    """Whether a bar can be drawn: on a terminal, and in a notebook that has ipywidgets."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def _column_of_minimum_width(width: int) -> Column:
    """A column that a narrow terminal does not shorten."""
    return Column(no_wrap=True, min_width=width)
