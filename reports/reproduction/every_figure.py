"""`make reproduce FIGURE=all`: every figure of a scale, the shortest first, in pieces that a time limit or Ctrl-C ends.

Nothing is remembered beside the figures' own folders: a figure that is made is left out, one that was begun continues,
so the same command again makes what is missing.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.errors import DpsweepError, ExitCode
from dpsweep.accounting.printing import print_error, print_line, print_lines
from dpsweep.reports.reproduction.finding import Computed, figure_names, find_figure
from dpsweep.reports.reproduction.training import (
    PLAN,
    TrainingFailed,
    check_known_scale_and_no_data_override,
    run_plan_and_read_lines,
)

ALL = "all"
"""The name that stands for every figure."""

MADE = "findings.json"
"""A file that a figure's folder has once it is made."""

DRAWN = "curator"
"""A folder that a sweep's folder has once the sweep's page is drawn: a plan alone leaves none."""

_TIME = re.compile(r"time\W+about ([\d.]+) (s|min|h|days)\b")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}

Make = Callable[[str], None]
"""Makes one figure by name; raises `DpsweepError` if it cannot."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A figure that is still to be made, and the estimated seconds of its training; infinite if nobody knows."""

    name: str
    seconds: float

    @property
    def name_and_time_text(self) -> str:
        """The figure and its time, for readers."""
        return f"{self.name}: {_duration_text(self.seconds)}"


def make_missing_figures_within_hours(
    make: Make, scale: str, overrides: Sequence[str], root: Path, hours: float
) -> int:
    """Makes each missing figure that fits in the hours; returns an exit code: that of the first that cannot be made."""
    check_known_scale_and_no_data_override("NAME", scale, overrides)
    pieces, codes = _figures_to_make_and_exit_codes(scale, overrides, root)
    print_line(f"To make: {_figures_to_make_text(pieces) or 'nothing, all figures are made'}.", flush=True)
    code = make_figures_within_hours(pieces, make, hours)
    return code if code == ExitCode.STOPPED or not codes else codes[0]


def make_figures_within_hours(pieces: Sequence[Piece], make: Make, hours: float) -> int:
    """Makes each figure that fits in what is left of the hours by its estimate; returns an exit code.

    A figure whose time nobody knows is begun as long as any time is left. One that fails stops no other, and the code
    is that of the first; one that the user stops ends the command.
    """
    began, later, codes = time.monotonic(), [], []
    for piece in pieces:
        left = 3600 * hours - (time.monotonic() - began)
        if left <= 0 or left < piece.seconds < math.inf:
            later.append(piece)
            continue
        print_lines(f"\n{piece.name_and_time_text}; Ctrl-C stops it, and the same command continues it.", flush=True)
        try:
            make(piece.name)
        except DpsweepError as error:
            print_error(error)
            codes.append(int(error.exit_code))
            if error.exit_code == ExitCode.STOPPED:
                return int(ExitCode.STOPPED)
    if later:
        print_lines(
            f"\nLeft for later by HOURS={hours:g}: {_figures_to_make_text(later)}. The same command makes them."
        )
    return codes[0] if codes else 0


def _figures_to_make_and_exit_codes(scale: str, overrides: Sequence[str], root: Path) -> tuple[list[Piece], list[int]]:
    """The figures that are still to be made, the shortest first, and the exit codes of those that cannot be planned."""
    pieces: list[Piece] = []
    codes: list[int] = []
    for name in figure_names():
        try:
            pieces += _figure_if_still_to_make(name, scale, overrides, root)
        except DpsweepError as error:
            print_error(f"{name} is left out: {error}")
            codes.append(int(error.exit_code))
    return sorted(pieces, key=lambda piece: piece.seconds), codes


def _figure_if_still_to_make(name: str, scale: str, overrides: Sequence[str], root: Path) -> Iterator[Piece]:
    """The figure, unless its folder has it as it is planned now."""
    figure = find_figure(name)
    if isinstance(figure, Computed):
        if not (root / name / MADE).is_file():
            yield Piece(name=name, seconds=0.0)
        return
    folder = root / name / scale
    words = run_plan_and_read_lines(name, scale, overrides, folder)
    plan = next((found[1] for line in words if (found := PLAN.match(line))), None)
    if plan is None:
        raise TrainingFailed(ExitCode.BUG, folder)
    sweep = folder / "sweeps" / plan
    if not ((folder / MADE).is_file() and (sweep / DRAWN).is_dir()):
        yield Piece(name=name, seconds=training_seconds_from_plan_text("\n".join(words)) * _untrained_share(sweep))


def training_seconds_from_plan_text(words: str) -> float:
    """The time that a plan prints, in seconds; infinite if it prints none.

    >>> training_seconds_from_plan_text("time: about 28 min on this machine")
    1680.0
    >>> training_seconds_from_plan_text("time: unknown")
    inf
    """
    found = _TIME.search(words)
    return math.inf if found is None else float(found[1]) * _SECONDS[found[2]]


def _untrained_share(sweep: Path) -> float:
    """The share of a sweep's runs that have no result."""
    if not (sweep / "plan.json").is_file():
        return 1.0
    runs = sum(map(len, json.loads((sweep / "plan.json").read_text())["blocks"]))
    return 1 - min(runs, len(list(sweep.glob("trials/*/result.json")))) / runs


def _figures_to_make_text(pieces: Sequence[Piece]) -> str:
    return "; ".join(piece.name_and_time_text for piece in pieces)


def _duration_text(seconds: float) -> str:
    """A time for readers.

    >>> _duration_text(0), _duration_text(30), _duration_text(3000), _duration_text(9000), _duration_text(math.inf)
    ('seconds', 'about 30 s', 'about 50 min', 'about 2.5 h', 'a time that nobody knows')
    """
    if math.isinf(seconds):
        return "a time that nobody knows"
    if seconds < 90:
        return f"about {math.ceil(seconds)} s" if seconds else "seconds"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
