"""Widths of figures in a page, so that rows of them fill its column and all have one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

COLUMN, SPACE = 1072.0, 40.0
"""CSS pixels of the narrowest column in which figures stand side by side, and between two figures."""

LEAST_SCALE, MOST_SCALE, TALLEST = 1.05, 1.45, 840.0
"""Scales from a figure's own size at which texts are legible and not larger than headings; the largest height."""

Size = tuple[float, float]


def common_scale(sizes: Sequence[Size]) -> float:
    """The scale of all figures of these sizes (width, height in CSS pixels): the largest one with the fewest rows.

    Figures stay in their order. A figure that is wider than the column at `LEAST_SCALE` sets a smaller scale.

    >>> [round(common_scale([(360, 250)] * figures), 2) for figures in (1, 2, 3, 4)]
    [1.45, 1.43, 1.43, 1.43]
    """
    fits = min(COLUMN / width for width, _ in sizes)
    most = min(fits, MOST_SCALE, max(LEAST_SCALE, TALLEST / max(height for _, height in sizes)))
    if most <= LEAST_SCALE:
        return most
    fewest = _rows(sizes, LEAST_SCALE)
    candidates = (scale for scale in (most, *_full_rows(sizes)) if LEAST_SCALE <= scale <= most)
    return max((scale for scale in candidates if _rows(sizes, scale) <= fewest), default=LEAST_SCALE)


def shares(sizes: Sequence[Size]) -> tuple[float, ...]:
    """The width of each figure as a share of the column, rounded down, at their common scale."""
    scale = common_scale(sizes) if sizes else 1.0
    return tuple(int(10_000 * scale * width / COLUMN) / 10_000 for width, _ in sizes)


def _full_rows(sizes: Sequence[Size]) -> Iterator[float]:
    """The scales at which some consecutive figures fill a row exactly."""
    for first in range(len(sizes)):
        for last in range(first + 1, len(sizes) + 1):
            room = COLUMN - SPACE * (last - first - 1)
            yield room / sum(width for width, _ in sizes[first:last])


def _rows(sizes: Sequence[Size], scale: float) -> int:
    """The number of rows that figures need, each placed in the last row if it fits there."""
    rows, used = 1, -SPACE
    for width, _ in sizes:
        used += SPACE + scale * width
        if used > COLUMN + 1e-6:
            rows, used = rows + 1, scale * width
    return rows
