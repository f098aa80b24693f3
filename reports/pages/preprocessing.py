"""The preprocessing of a raw row into a model's input, from the data set's declaration; released with the model.

Invariant: its only sources are the winner's declaration in the plan and dpsweep's code. No file of the data set is
opened, no class of the user is imported, and no path is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsweep.accounting.numbers import whole
from dpsweep.reports.content.declared_data import declared_by
from dpsweep.reports.content.frozen_features import FrozenFeatures

FILE = "preprocessing.json"
OUTPUTS = ("class", "number")


def declared(dataset: Mapping[str, Any], features: FrozenFeatures | None = None) -> dict[str, Any] | None:
    """The preprocessing of a data set's declaration, None if only a class of the user defines it.

    If the inputs are frozen `features`, the settings of their extractor are in it. It is also None for an older
    version's declaration that cannot be read: the model is released without it.
    """
    form = declared_by(dataset, "preprocessing")
    if not isinstance(form, Mapping):
        return None
    classes = whole("dataset.classes", dataset["classes"])
    return {
        **form,
        "shape": [whole("dataset.shape", length) for length in dataset["shape"]],
        "classes": classes,
        "output": form.get("output", OUTPUTS[classes == 1]),
        **({"features": features.released} if features else {}),
    }
