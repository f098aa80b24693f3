"""Configuration keys of older versions: accepted with a hint on stderr where possible, refused by name elsewhere.

On a command line, and among the axes of a grid, a former key is replaced by the present one. Hydra composes a
configuration file before it can be translated: an override of a former group fails, and a former key would change
nothing. A file with a former key is refused, because a plan that ignores the key would be a different plan.
"""

from __future__ import annotations

import re
from functools import lru_cache

from omegaconf import DictConfig

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.typed_names import TYPED, typed_key
from dpsweep.accounting.printing import print_error

_WORD = re.compile(r"(?P<sign>[+~]*)(?P<key>[\w./]+)(?P<rest>.*)", re.DOTALL)
_REFUSAL = re.compile(rf"In '(?P<file>[^']+)': Could not override '(?P<former>{'|'.join(TYPED)})'")


def renamed(word: str) -> str:
    """A Hydra override with a former key replaced by the present one.

    >>> renamed("steps=3"), renamed("dataset.bounds=[0,1]")
    ('steps=3', 'dataset.bounds=[0,1]')
    """
    parts = _WORD.fullmatch(word)
    if parts is None or typed_key(parts["key"]) == parts["key"]:
        return word
    hint(parts["key"])
    return f"{parts['sign']}{typed_key(parts['key'])}{parts['rest']}"


def hint(key: str) -> None:
    """Prints the present name of a former key on stderr, once per former key; prints nothing for other keys."""
    former = key.partition(".")[0]
    if former in TYPED:
        _say(former)


@lru_cache
def _say(former: str) -> None:
    print_error(f"{former} is called {TYPED[former]} now; the former word still works here.")


def refuse_in_file(config: DictConfig) -> None:
    """Raises `BadInput` if a configuration file has a key under its former name."""
    for former, present in TYPED.items():
        if former in config:
            raise BadInput(f"Expected {former} in a configuration file to be called {present}.")


def in_one_sentence(message: str) -> str | None:
    """A message in place of Hydra's if a file overrides a group by its former name; None otherwise."""
    parts = _REFUSAL.search(message)
    if parts is None:
        return None
    return f"Expected `override /{parts['former']}` in {parts['file']}.yaml to be `override /{TYPED[parts['former']]}`."
