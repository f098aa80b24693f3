"""The words that users type for parts of a configuration, where the stored word is an older one.

Learning-rate schedules and falling clip norms were called `schedule` and `bounds`. Stored forms, identities and the
ledger keep these words for ever; configurations, command lines and messages have `lr_schedule` and `clip_schedule`.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPED: Mapping[str, str] = {"schedule": "lr_schedule", "bounds": "clip_schedule"}
"""The typed word for each stored word, if the two differ."""

_STORED = {typed: stored for stored, typed in TYPED.items()}


def typed_key(key: str) -> str:
    """The typed form of a stored key or of a part of a configuration.

    >>> typed_key("bounds.least"), typed_key("trainer.lr"), typed_key("dataset.bounds")
    ('clip_schedule.least', 'trainer.lr', 'dataset.bounds')
    """
    return _renamed(key, TYPED)


def stored_key(key: str) -> str:
    """The stored form of a typed key; the inverse of `typed_key`.

    >>> stored_key("clip_schedule.least"), stored_key("lr_schedule"), stored_key("steps")
    ('bounds.least', 'schedule', 'steps')
    """
    return _renamed(key, _STORED)


def _renamed(key: str, words: Mapping[str, str]) -> str:
    head, dot, rest = key.partition(".")
    return f"{words.get(head, head)}{dot}{rest}"
