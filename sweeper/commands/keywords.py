"""Keywords of the Python functions, and settings in a file, as overrides of the command line.

`lr=[0.1, 1]` is `trainer.lr=0.1,1`: a list, a range or an array is an axis of the grid, a tuple is one value that is a
list, and a dictionary holds keys below its keyword. A keyword is a name of `KEYWORDS`, a group or a top key of the
configuration, or a dotted key in a dictionary (`**{"adapter.rank": 4}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from os import PathLike
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import TARGET
from dpsweep.sweeper.commands.readable_files import keys_and_values_in_file
from dpsweep.sweeper.planning.keys import SHORT_WORDS, choices_by_group, documented_keys
from dpsweep.sweeper.planning.unknown_keys import SIMILAR, translate_foreign_override
from dpsweep.trainers.user_modules import may_run, repeated_code_sentence

KEYWORDS: Mapping[str, str] = {
    **SHORT_WORDS,
    "lr": "trainer.lr",
    "clip_norm": "trainer.clip_norm",
    "regularizer": "trainer.regularizer",
    "momentum": "trainer.momentum",
    "weight_decay": "trainer.weight_decay",
    "batch_size": "sampler.batch_size",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "noise_multiplier": "privacy.noise_multiplier",
    "adjacency": "privacy.adjacency",
    "metric": "score.metric",
    "trials": "search.trials",
    "device": "compute.device",
}
"""The key of the configuration for a keyword; a group or a top key is its own keyword."""

FILE_OPTION = "--config"
"""The option that names a file of settings."""

_KEY = re.compile(r"[A-Za-z_][\w.]*")
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_READ_AS_OTHER_TYPE = ("null", "true", "false", "nan", "inf")


def overrides_with_keywords(overrides: Sequence[str], keywords: Mapping[str, Any]) -> list[str]:
    """The overrides, and after them the keywords as overrides.

    Raises `BadInput` for an unknown keyword, a value that is no plain one, and a key that is given twice.

    >>> overrides_with_keywords(["steps=5"], {"dataset": "mnist", "lr": [0.1, 1], "epsilon": 3})
    ['steps=5', 'dataset=mnist', 'trainer.lr=0.1,1', 'privacy.epsilon=3']
    >>> overrides_with_keywords([], {"trainer": ["dpsgd", "dpnsgd"], "clip_norm": [1, 2]})
    ['trainer=dpsgd,dpnsgd', 'trainer.clip_norm=1,2']
    """
    if isinstance(overrides, str):
        raise BadInput(f"Expected overrides={overrides!r} to be a list of words, as in [{overrides!r}].")
    if not isinstance(overrides, Sequence) or not all(isinstance(word, str) for word in overrides):
        raise BadInput(f"Expected overrides={overrides!r} to be a list of words, as in ['steps=5'], or keywords.")
    settings = [_key_and_values_of_keyword(name, value, keywords) for name, value in _keywords_by_key(keywords).items()]
    given = [word.partition("=")[0].lstrip("+~") for word in overrides]
    for key, values in settings:
        if (plain := key.lstrip("+")) in given:
            raise BadInput(f"Expected {plain} to be given once, got it once more as {key}={values}.")
        given.append(plain)
    return [*overrides, *(f"{key}={values}" for key, values in settings)]


def words_with_settings_file(words: Sequence[str]) -> list[str]:
    """The words of a command line, before them those of `--config FILE.yaml`; the last word for a key counts.

    The file maps keywords to values as the Python functions take them.
    *Guarantee*: no code runs because the file names it. Raises `BadInput` for code that no typed word repeats, and for
    keys that are Hydra's or options.
    """
    typed, own = list(words), []
    while (place := next((at for at, word in enumerate(typed) if word.split("=")[0] == FILE_OPTION), None)) is not None:
        _, equals, name = typed.pop(place).partition("=")
        own += _words_of_settings_file(name if equals or place == len(typed) else typed.pop(place))
    if not own:
        return typed
    from dpsweep.sweeper.planning.grid import code_in_words  # the completion of words stays light

    if strange := sorted(name for name in code_in_words(own) - code_in_words(typed) if not may_run(name)):
        raise BadInput(repeated_code_sentence(strange, {word.partition("=")[2]: word for word in own}))
    return [*own, *typed]


def _words_of_settings_file(name: str) -> list[str]:
    settings = keys_and_values_in_file(name)
    keys = (*settings, *(key.removeprefix("++") for key in _keywords_by_key(settings)))
    if reserved := [key for key in keys if key.startswith("hydra") or not _KEY.fullmatch(key)]:
        raise BadInput(f"Expected {reserved[0]} on the command line: {name} sets keys of dpsweep's alone.")
    return overrides_with_keywords([], settings)


def _keywords_by_key(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords with those below a mapping as keys of their own; beside a class of the user's they are added."""
    by_key: dict[str, Any] = {}
    for name, value in keywords.items():
        is_parted = isinstance(value, Mapping) and "." not in name
        for below, one in value.items() if is_parted else [("", value)]:
            mark = "++" if is_parted and TARGET in value and below != TARGET else ""
            by_key[f"{mark}{name}.{below}" if is_parted else name] = one
    return by_key


def _key_and_values_of_keyword(name: str, value: Any, keywords: Mapping[str, Any]) -> tuple[str, str]:
    """A keyword's key and its values, as the command line writes them; a single value that is no axis is fixed."""
    key = KEYWORDS.get(name, name)
    if "." not in key and key not in _top_names():
        raise BadInput(_unknown_keyword_sentence(name, value, keywords))
    values = [value] if _is_single(value) else list(value)
    if not values:
        raise BadInput(f"Expected {name}={value!r} to have at least one value.")
    return key, ",".join(_value_text(name, one) for one in values)


def _top_names() -> set[str]:
    """The groups, and the keys that stand in no group."""
    return {*choices_by_group(), *(key for key in documented_keys() if "." not in key), "scale"}


def _unknown_keyword_sentence(name: str, value: Any, keywords: Mapping[str, Any]) -> str:
    """The sentence for a keyword that is none: another tool's name for it, or the names that are near."""
    text = "" if not _is_single(value) else _value_text(name, value)
    words = [f"{key}={one}" for key, one in keywords.items() if isinstance(one, str)]
    if ours := translate_foreign_override(name, text, words):
        key, equals, rest = ours.partition("=")
        own = next((keyword for keyword, full in KEYWORDS.items() if full == key), key)
        said = f"**{{{own!r}: ...}}" if "." in own else f"{own}{equals}{rest}"
        return f"Expected {name}={text or '...'} in dpsweep's words: {said}."
    near = get_close_matches(name, sorted({*KEYWORDS, *_top_names()}), n=3, cutoff=SIMILAR)
    hint = (
        f"Near names: {', '.join(near)}."
        if near
        else "`dpsweep help` lists the keys; write one as **{'adapter.rank': 4}."
    )
    return f"Expected {name}={text or '...'} to be a keyword. {hint}"


def _is_single(value: Any) -> bool:
    """Whether a keyword's value is one value; lists, ranges and arrays are several."""
    return isinstance(value, str | tuple | Mapping | PathLike) or not isinstance(value, Iterable)


def _value_text(name: str, value: Any) -> str:
    """A value as Hydra's grammar writes it; raises `BadInput` for what no configuration holds."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Real():
            return str(value)
        case str() | PathLike():
            return _string_text(str(value))
        case tuple() | list():
            return f"[{','.join(_value_text(name, one) for one in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{key}: {_value_text(name, one)}' for key, one in value.items())}}}"
    raise BadInput(
        f"Expected {name} to be numbers, texts, tuples or dictionaries, got {type(value).__name__}: name a class of "
        "your own by **{'model._target_': 'my_module.MyClass'}."
    )


def _string_text(text: str) -> str:
    """A string in Hydra's grammar, in quotes where it would be read as something else without them."""
    if _PLAIN.fullmatch(text) and text.lower() not in _READ_AS_OTHER_TYPE:
        return text
    if text.endswith("\\") or "\\'" in text:
        raise BadInput(f"Expected {text!r} without a backslash before a quote or at its end.")
    return "'{}'".format(text.replace("'", "\\'"))
