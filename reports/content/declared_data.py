"""The data set of a plan as dpsweep's own class declares it; no file is opened and no class of the user is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.names.stored_classes import build_own


def declared_by(dataset: Mapping[str, Any], name: str) -> Any:
    """A member of a data set: `preprocessing`, `caution`.

    None if the data set has none, if it is a class of the user, or if this version cannot read the declaration.
    """
    try:
        return getattr(build_own(dataset, "dataset"), name)
    except (DpsweepError, ValueError, TypeError, KeyError, ImportError):
        return None
