"""The import of a class of the user's by its path, as Hydra does it."""

from __future__ import annotations

from typing import Any

from dpsweep.trainers.user_modules import name_module


def user_class(path: str) -> Any:
    """The class, function or other object at a dotted path; raises `ImportError` or `ValueError` if there is none.

    To import Hydra takes a tenth of the time of `import torch`, which the process that times steps of our own classes
    need not spend.
    """
    from hydra.utils import get_object

    name_module(path)
    return get_object(path)
