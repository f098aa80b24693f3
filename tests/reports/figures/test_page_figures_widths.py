"""Figures in a page: one scale, rows that fit the column, and few of them."""

from __future__ import annotations

import itertools

import pytest

from dpsweep.reports.figures.page_figures import (
    COLUMN,
    LEAST_SCALE,
    MOST_SCALE,
    SPACE,
    TALLEST,
    figure_scale_for_fewest_rows,
    figure_widths_as_column_shares,
)

SIZES = [
    *[[(357.0, 240.0)] * figures for figures in range(1, 9)],
    [(278.0, 150.0)],
    [(357.0, 240.0), (357.0, 240.0), (230.0, 180.0), (430.0, 190.0), (278.0, 150.0)],
    [(1114.0, 300.0)] * 2,
    [(590.0, 640.0)],
    [(357.0, 240.0), (1114.0, 300.0)],
]


def rows_of(sizes: list[tuple[float, float]], scale: float) -> list[list[float]]:
    """The rows that a browser makes of these figures."""
    rows: list[list[float]] = [[]]
    for width, _ in sizes:
        if rows[-1] and sum(rows[-1]) + scale * width + SPACE * len(rows[-1]) > COLUMN + 1e-6:
            rows.append([])
        rows[-1].append(scale * width)
    return rows


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_figures_have_one_scale_and_fit_their_rows(sizes: list[tuple[float, float]]) -> None:
    scale = figure_scale_for_fewest_rows(sizes)
    widths = [COLUMN * share for share in figure_widths_as_column_shares(sizes)]
    assert widths == pytest.approx([scale * width for width, _ in sizes], abs=COLUMN / 10_000)
    assert scale <= MOST_SCALE
    assert all(sum(row) + SPACE * (len(row) - 1) <= COLUMN + 1e-6 for row in rows_of(sizes, scale))
    assert scale >= LEAST_SCALE or max(width for width, _ in sizes) > COLUMN / LEAST_SCALE


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_no_larger_scale_needs_as_few_rows(sizes: list[tuple[float, float]]) -> None:
    scale = figure_scale_for_fewest_rows(sizes)
    larger = 1.001 * scale
    too_large = larger > MOST_SCALE or larger * max(height for _, height in sizes) > TALLEST
    more_rows = len(rows_of(sizes, larger)) > len(rows_of(sizes, scale))
    too_wide = larger * max(width for width, _ in sizes) > COLUMN
    assert too_large or more_rows or too_wide


def test_maps_of_a_common_size_fill_the_column() -> None:
    """Two, three or more maps of seven columns leave less than a twentieth of the column empty."""
    for figures in range(2, 8):
        sizes = [(357.0, 240.0)] * figures
        first = next(iter(rows_of(sizes, figure_scale_for_fewest_rows(sizes))))
        assert sum(first) + SPACE * (len(first) - 1) > 0.95 * COLUMN


def test_nothing_is_laid_out_without_figures() -> None:
    assert figure_widths_as_column_shares([]) == ()
    assert all(share <= 1 for sizes in itertools.chain(SIZES) for share in figure_widths_as_column_shares(sizes))
