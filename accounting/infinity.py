"""JSON has no infinity: an epsilon that protects nobody is written as a word, which `float` reads again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WORD = "infinity"


def in_words(form: Any) -> Any:
    """The same plain values with the word for every infinity among them.

    >>> in_words({"epsilon": math.inf, "parts": [1.0, math.inf]})
    {'epsilon': 'infinity', 'parts': [1.0, 'infinity']}
    >>> float("infinity") == math.inf
    True
    """
    if isinstance(form, Mapping):
        return {key: in_words(value) for key, value in form.items()}
    if isinstance(form, (list, tuple)):
        return [in_words(value) for value in form]
    return WORD if isinstance(form, float) and form == math.inf else form
