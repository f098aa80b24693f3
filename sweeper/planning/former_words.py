"""Words of older versions: they go on working where they can, with a hint on stderr, and are refused by name elsewhere.

On a command line, and among the axes of a grid, a former word stands for the present one. In a configuration file
Hydra has composed it before anybody can translate it: the group is not there to be overridden, and a key of its own
would change nothing. Such a file is refused, since a plan without what it asks for would be another plan.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.typed_names import TYPED, typed_key

_WORD = re.compile(r"(?P<sign>[+~]*)(?P<key>[\w./]+)(?P<rest>.*)", re.DOTALL)
_REFUSAL = re.compile(rf"In '(?P<file>[^']+)': Could not override '(?P<former>{'|'.join(TYPED)})'")


def renamed(word: str) -> str:
    """A Hydra override with the present word for a former one.

    >>> renamed("steps=3"), renamed("dataset.bounds=[0,1]")
    ('steps=3', 'dataset.bounds=[0,1]')
    """
    parts = _WORD.fullmatch(word)
    if parts is None or typed_key(parts["key"]) == parts["key"]:
        return word
    hint(parts["key"])
    return f"{parts['sign']}{typed_key(parts['key'])}{parts['rest']}"


def hint(key: str) -> None:
    """Says on stderr what a key is called now, once for each former word; says nothing about other keys."""
    former = key.partition(".")[0]
    if former in TYPED:
        _say(former)


@lru_cache
def _say(former: str) -> None:
    print(f"{former} is called {TYPED[former]} now; the former word still works here.", file=sys.stderr)


def refuse_in_file(config: DictConfig) -> None:
    """Raises `BadInput` where a configuration file has a key by its former word."""
    for former, present in TYPED.items():
        if former in config:
            raise BadInput(f"Expected {former} in a configuration file to be called {present}.")


def in_one_sentence(message: str) -> str | None:
    """A sentence in place of Hydra's, where a file overrides a group by its former word; None elsewhere."""
    parts = _REFUSAL.search(message)
    if parts is None:
        return None
    return f"Expected `override /{parts['former']}` in {parts['file']}.yaml to be `override /{TYPED[parts['former']]}`."
