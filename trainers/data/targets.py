"""Numbers as targets: a public range that is declared, in which targets are clamped, and from which they are scaled.

A model is trained on targets in [0, 1], so the largest error is 1 for every data set. Everything that a person reads is
in the target's own unit: an error there is the scaled error times the width of the range. The range is typed in by the
user and never computed from the records. It is released with a model, whose outputs it turns back into the unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import checked_public_range, clamp_and_scale_to_0_1

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.preprocessing import Form


def check_target_declaration(dataset: DataSet) -> tuple[float, float] | None:
    """The checked public range of a data set's targets, None if its labels are classes; else a ValueError."""
    if not isinstance(dataset.target_unit, str):
        raise ValueError(f"Expected dataset.target_unit={dataset.target_unit!r} to be a text, such as mmHg.")
    if dataset.target is None:
        if dataset.target_unit:
            raise ValueError(f"Expected dataset.target_unit={dataset.target_unit} to be empty without dataset.target.")
        return None
    low, high = checked_public_range("dataset.target", dataset.target)
    if dataset.classes != 1:
        raise ValueError(
            f"Expected dataset.classes={dataset.classes} == 1 with dataset.target=[{low:g},{high:g}]: the label is a "
            "number."
        )
    return low, high


def check_labels_or_target_declared(dataset: DataSet, labels: object) -> None:
    """Refuse a declaration with both a public list of `labels` and a range of numbers, or with none of them."""
    if (labels is None) is (dataset.target is None):
        raise ValueError(
            f"Expected either dataset.labels={labels}, the list of the label's values, or dataset.target="
            f"{dataset.target}, the public range of a label that is a number."
        )


def width_of_target_range(dataset: DataSet) -> float:
    """The factor that turns an error of scaled targets into the target's unit; 1 where targets are not scaled."""
    return 1.0 if dataset.target is None else dataset.target[1] - dataset.target[0]


def scaled_targets_of_array(
    numbers: NDArray[np.generic], records: int, target: tuple[float, float], where: str
) -> NDArray[np.float32]:
    """Finite numbers [n], clamped to their public range and scaled to [0, 1]; anything else is refused."""
    if numbers.dtype.kind not in "biuf":
        raise BadInput(f"Expected {where} to hold real numbers, got {numbers.dtype}.")
    if numbers.shape != (records,):
        raise BadInput(f"Expected {where} of shape [{records}], as many as features, got {list(numbers.shape)}.")
    exact = numbers.astype(np.float64)
    wrong = ~np.isfinite(exact)
    if wrong.any():
        first = int(wrong.argmax())
        raise BadInput(f"Expected {where} to be finite numbers, got {exact[first]} at index {first}.")
    return clamp_and_scale_to_0_1(exact, target).astype(np.float32)


def form_with_target(form: Form, dataset: DataSet) -> Form:
    """The preprocessing form, with the range of the targets, by which outputs are turned back into the unit."""
    if dataset.target is None:
        return form
    unit = {"target_unit": dataset.target_unit} if dataset.target_unit else {}
    return {**form, "target": list(dataset.target), **unit}
