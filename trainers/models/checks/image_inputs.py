"""The check that a record's shape is that of an image."""

from __future__ import annotations


def require_image(shape: tuple[int, ...], smallest: int) -> None:
    """Raises ValueError unless `shape` is (channels, height, width), at least `smallest` pixels high and wide."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"Expected shape={list(shape)} to be (channels, height, width), "
            f"at least {smallest} high and wide; model=logistic and model=mlp take any shape."
        )
