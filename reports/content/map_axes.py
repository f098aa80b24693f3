"""Which swept keys span a map of points, and the order of their values; for pages, and for a sweep that still runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpsweep.reports.content.formatting import axis_label


def across_down_and_facets(values: Mapping[str, Sequence[object]]) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(across, down, facets): varying keys first, then lr, then numeric keys, then keys with more of these values."""
    ranked = sorted(
        values,
        key=lambda key: (
            len(values[key]) < 2,
            axis_label(key) != "lr",
            not are_all_numbers(values[key]),
            -len(values[key]),
        ),
    )
    across, down, *rest = [*ranked, None, None][: max(2, len(ranked))]
    return across, down, tuple(key for key in rest if key is not None and len(values[key]) > 1)


def distinct_values(column: Iterable[object]) -> list[object]:
    """The distinct values: numbers in ascending order, names in order of appearance."""
    steps: list[object] = []
    for value in column:
        if not any(equal_with_bools_apart(value, step) for step in steps):
            steps.append(value)
    return sorted(steps, key=float) if are_all_numbers(steps) else steps  # type: ignore[arg-type]


def are_all_numbers(steps: Iterable[object]) -> bool:
    """Whether all values are numbers; `True` is none."""
    return all(isinstance(step, (int, float)) and not isinstance(step, bool) for step in steps)


def equal_with_bools_apart(left: object, right: object) -> bool:
    """Equality that distinguishes `True` from 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)
