"""What a user types for a part of a configuration, where it is stored under the word that it had before.

Learning-rate schedules and falling clip norms were called `schedule` and `bounds`. Stored forms, identities and the
ledger keep these words for ever; configurations, command lines and sentences have `lr_schedule` and `clip_schedule`.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPED: Mapping[str, str] = {"schedule": "lr_schedule", "bounds": "clip_schedule"}
"""The word that is typed for each word that is stored, where the two differ."""

_STORED = {typed: stored for stored, typed in TYPED.items()}


def typed_key(key: str) -> str:
    """A stored key, or a part of a configuration, as it is typed.

    >>> typed_key("bounds.least"), typed_key("trainer.lr"), typed_key("dataset.bounds")
    ('clip_schedule.least', 'trainer.lr', 'dataset.bounds')
    """
    return _renamed(key, TYPED)


def stored_key(key: str) -> str:
    """A typed key as it is stored; the inverse of `typed_key`.

    >>> stored_key("clip_schedule.least"), stored_key("lr_schedule"), stored_key("steps")
    ('bounds.least', 'schedule', 'steps')
    """
    return _renamed(key, _STORED)


def _renamed(key: str, words: Mapping[str, str]) -> str:
    head, dot, rest = key.partition(".")
    return f"{words.get(head, head)}{dot}{rest}"
