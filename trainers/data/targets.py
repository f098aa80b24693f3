"""Targets that are no class: numbers in a public range, and several labels of a record, each of them 0 or 1.

A model is trained on targets in [0, 1], so the largest error is 1 for every data set. Everything that a person reads is
in the target's own unit: an error there is the scaled error times the width of the range. The range is typed in by the
user and never computed from the records. It is released with a model, whose outputs it turns back into the unit.

Several labels have public names, and a model has one output for each of them, the log-odds of its second value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.arrays import check_labels_are_class_numbers, require_one_for_each_record
from dpsweep.trainers.data.columns import (
    checked_public_range,
    checked_public_texts,
    clamp_and_scale_to_0_1,
    positions_in_list,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.data.columns import TableColumn
    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.mismatches import Mismatches
    from dpsweep.trainers.data.preprocessing import Form

_PRIME = 2**61 - 1
"""More than the numbers of 60 labels, and less than eight bytes hold."""


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
    require_one_for_each_record(numbers, records, "biuf", "real numbers", where)
    exact = numbers.astype(np.float64)
    wrong = ~np.isfinite(exact)
    if wrong.any():
        first = int(wrong.argmax())
        raise BadInput(f"Expected {where} to be finite numbers, got {exact[first]} at index {first}.")
    return clamp_and_scale_to_0_1(exact, target).astype(np.float32)


def checked_label_names(dataset: DataSet, values: Sequence[str] | None) -> tuple[str, ...]:
    """The checked names of the labels of a record that has several; a ValueError for names that are no such list.

    `values` are the names of both values of each label, None if they are 0 and 1.
    """
    names = dataset.label_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ValueError(f"Expected dataset.label_names={names!r} to be a list of names.")
    if not names:
        return ()
    texts = checked_public_texts("dataset.label_names", names)
    if dataset.classes != len(texts) or len(texts) < 2:
        raise ValueError(f"Expected dataset.classes={dataset.classes} == {len(texts)} >= 2, as many as label names.")
    if dataset.target is not None:
        raise ValueError("Expected dataset.target=null where a record has several labels.")
    if values is not None and len(values) != 2:
        raise ValueError(
            f"Expected dataset.labels={list(values)} to be the two values of each label, the one that counts as 1 last."
        )
    return texts


def names_of_label_columns(label: object) -> tuple[str, ...]:
    """The columns of several labels, from a list in a data set's YAML; empty for the column of one label."""
    return tuple(label) if isinstance(label, Sequence) and not isinstance(label, str) else ()


def check_labels_of_array_declaration(dataset: DataSet) -> None:
    """Checks and completes the declaration of labels in an array: classes, numbers in a range, or several labels."""
    object.__setattr__(dataset, "label_names", checked_label_names(dataset, None))
    object.__setattr__(dataset, "target", check_target_declaration(dataset))
    if dataset.classes == 1 and dataset.target is None:
        raise ValueError("Expected dataset.target, the public range of labels that are numbers, with classes=1.")


def labels_of_array(
    labels: NDArray[np.generic], records: int, dataset: DataSet, where: str
) -> NDArray[np.int64] | NDArray[np.float32]:
    """The checked labels in an array: classes of int64 [n], scaled targets of float32 [n], or several [n, k]."""
    if dataset.label_names:
        return several_labels_of_array(labels, records, dataset.label_names, where)
    if dataset.target is not None:
        return scaled_targets_of_array(labels, records, dataset.target, where)
    check_labels_are_class_numbers(labels, records, dataset.classes, where)
    return labels.astype(np.int64)


def labels_of_columns(
    columns: Sequence[TableColumn], dataset: DataSet, values: Sequence[str], found: Mismatches
) -> NDArray[np.generic]:
    """The labels in these columns: numbers of classes, scaled targets, or several labels of 0 and 1 [n, k].

    Mismatches are added to `found`.
    """
    if dataset.target is not None:
        (column,) = columns
        numbers = column.numbers(found)
        advice = " A label is never filled in: leave such rows out of the file."
        found.add(column, column.places_of_empty_cells(), "to have a number", lambda value: advice)
        return clamp_and_scale_to_0_1(numbers, dataset.target).astype(np.float32)
    positions = [positions_in_list(column, values, found) for column in columns]
    return np.column_stack(positions).astype(np.float32) if dataset.label_names else positions[0]


def one_number_per_record(labels: NDArray[np.generic]) -> list[int]:
    """A number for the labels of each record, for its digest: the class, or several labels as binary digits, modulo."""
    if labels.ndim == 1:
        return [int(label) for label in labels.tolist()]
    return [int("".join(str(int(label)) for label in row), 2) % _PRIME for row in labels.tolist()]


def several_labels_of_array(
    labels: NDArray[np.generic], records: int, names: Sequence[str], where: str
) -> NDArray[np.float32]:
    """Labels of 0 and 1 [n, k] as float32; anything else is refused."""
    if labels.shape != (records, len(names)):
        raise BadInput(
            f"Expected {where} of shape [{records}, {len(names)}], a column for each label, got {list(labels.shape)}."
        )
    wrong = ~np.isin(labels, (0, 1)).all(axis=1) if labels.dtype.kind in "biuf" else np.ones(records, dtype=np.bool_)
    if wrong.any():
        first = int(wrong.argmax())
        raise BadInput(f"Expected {where} to be 0 or 1, got {labels[first].tolist()} at index {first}.")
    return labels.astype(np.float32)


def form_with_target(form: Form, dataset: DataSet) -> Form:
    """The preprocessing form, with the range of the targets or the names of several labels, which explain outputs."""
    if dataset.label_names:
        return {**form, "label_names": list(dataset.label_names), "output": "labels"}
    if dataset.target is None:
        return form
    unit = {"target_unit": dataset.target_unit} if dataset.target_unit else {}
    return {**form, "target": list(dataset.target), **unit}
