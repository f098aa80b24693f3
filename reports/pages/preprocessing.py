"""What makes a raw row into a model's input, as the data set's declaration has it: the file that leaves with a model.

What always holds: it is made of the winner's declaration in the plan and of our code alone. No file of the data set is
opened, no class of the user's is imported, and where files lie is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.names.stored_classes import build_own
from dpsweep.accounting.numbers import whole

FILE = "preprocessing.json"
OUTPUTS = ("class", "number")


def declared(dataset: Mapping[str, Any]) -> dict[str, Any] | None:
    """The preprocessing of a data set's declaration, None where only a class of the user's own knows it.

    A declaration of an older version that this one cannot read is no reason to withhold a model that was paid for.
    """
    try:
        form = getattr(build_own(dataset, "dataset"), "preprocessing", None)
    except (DpsweepError, ValueError, TypeError, KeyError, ImportError):
        return None
    if not isinstance(form, Mapping):
        return None
    classes = whole("dataset.classes", dataset["classes"])
    return {
        **form,
        "shape": [whole("dataset.shape", length) for length in dataset["shape"]],
        "classes": classes,
        "output": OUTPUTS[classes == 1],
    }
