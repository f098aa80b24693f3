"""The coloured cells of a map; the only module that imports seaborn.

Seaborn uses scipy's statistics for density estimates only, and has its own where they are missing. No map needs them,
and they take longer to import than seaborn and pandas together, so seaborn is imported as if they were missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize

STATISTICS = "scipy.stats"


@contextmanager
def _missing(name: str) -> Iterator[None]:
    """Within it this module cannot be imported, unless it was imported before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # the import system's own sign for a module that is missing
    try:
        yield
    finally:
        del sys.modules[name]


with _missing(STATISTICS):
    import seaborn as sns


def colour_cells(
    axes: Axes, values: np.ndarray, colours: Colormap, norm: Normalize, *, line_width: float, line_colour: str
) -> None:
    """Draws a cell for each value [rows, columns], the first row on top; a cell whose value is nan stays empty."""
    sns.heatmap(
        values,
        ax=axes,
        cmap=colours,
        vmin=norm.vmin,
        vmax=norm.vmax,
        cbar=False,
        xticklabels=False,
        yticklabels=False,
        linewidths=line_width,
        linecolor=line_colour,
    )
    axes.set(xlabel="", ylabel="")
