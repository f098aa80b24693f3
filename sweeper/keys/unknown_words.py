"""One sentence for a word on the command line that is no key, no choice of a group, or no word of Hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from hydra.errors import HydraException, MissingConfigException, OverrideParseException

from dpsweep.sweeper.keys.documented_keys import choices, documented_keys, is_inner
from dpsweep.sweeper.keys.synonyms import our_word

_UNKNOWN_KEY = re.compile(r"Could not override '(?P<key>[^']+)'|is not in struct\s+full_key: (?P<full>[\w.]+)")
_UNKNOWN_CHOICE = re.compile(r"Could not find '(?P<group>[\w/]+)/(?P<choice>[^'/]+)'")
_QUOTED_NAME = re.compile(r"""[{,]\s*(?P<quote>["'])[^"']*(?P=quote)\s*:""")
_UNSET = re.compile(r"Environment variable '(?P<name>[^']+)' not found")

BY_GRID = "by_grid"
"""The trainer that stands for the methods of a grid."""

COMMON = "dpsgd"
"""The method that examples name, where it has the key."""

EXPERIMENT = "experiment"
"""The group of the papers' experiments, which an installed package does not have."""

IN_CHECKOUT = (
    "The papers' experiments (conf/experiment) are in a checkout of dpsweep's source and not in the installed package: "
    "run this command in a checkout, or say where your own experiments are (--config-dir)."
)

SIMILAR = 0.7
"""The least similarity, of difflib's ratio, at which a word is proposed."""


def in_our_words(error: BaseException, words: Sequence[str], *, running: Sequence[str] = ()) -> str | None:
    """What is wrong with a word, in our terms; None for an exception of Hydra's that is about something else.

    `words` are the command's, `running` the methods that run.
    """
    message = str(error)
    if isinstance(error, OverrideParseException) or isinstance(error.__cause__, OverrideParseException):
        return _ungrammatical(error)
    if unset := _UNSET.search(message):
        return f"Expected the environment variable {unset['name']} to be set: the configuration reads it."
    if missing := _UNKNOWN_CHOICE.search(message):
        return unknown_choice(missing["group"], missing["choice"], error)
    if unknown := _UNKNOWN_KEY.search(message):
        return unknown_key(unknown["key"] or unknown["full"], words, running=running)
    return None


def unknown_choice(group: str, choice: str, error: BaseException | None = None) -> str:
    """The sentence for `group=choice` where the group has no such option."""
    found = error.options if isinstance(error, MissingConfigException) else None
    options = list(found or choices().get(group, ()))
    if not options and group.partition("/")[0] == EXPERIMENT:
        return IN_CHECKOUT
    return f"Expected {group}={choice} to be one of {', '.join(options)}.{_meant(choice, options, f'{group}=')}"


def unknown_key(key: str, words: Sequence[str], *, running: Sequence[str] = ()) -> str:
    """The sentence for a key that the configuration lacks: another tool's word, another choice's key, or a typo."""
    word = next((one for one in words if one.lstrip("+~").partition("=")[0] == key), key)
    value = word.partition("=")[2]
    known = documented_keys()
    if key == EXPERIMENT:
        return IN_CHECKOUT
    if key in known:
        return _of_another_choice(key, word, words, running)
    if ours := our_word(key, value, words):
        return f"Expected {word} in dpsweep's words: {ours}.{_method_of(ours, words)}"
    names = [name for name in known if not is_inner(name)]
    similar = _meant(key, [*names, *choices()], "")
    return f"Expected {word} to be a key of the configuration.{similar or ' `dpsweep help` lists the keys.'}"


def _of_another_choice(key: str, word: str, words: Sequence[str], running: Sequence[str]) -> str:
    """The sentence for a key that other choices of its group have."""
    group, having = key.partition(".")[0], _having(key)
    named = any(one.startswith(f"{group}=") for one in words)
    if running and not named:
        runs = f"every method that runs ({', '.join(running)})" if len(running) > 1 else f"{running[0]}, which runs"
        example = COMMON if COMMON in having else having[0]
        return f"Expected {word} to be a key of {runs}. Name a method that has it: {group}={example} {word}."
    return f"Expected {word} beside a choice of {group} that has this key: {', '.join(having)}."


def _having(key: str) -> list[str]:
    """The choices of a key's group that have the key, without the one that stands for several methods."""
    group = key.partition(".")[0]
    places = (place.partition("=") for place in documented_keys()[key].values)
    return [choice for root, _, choice in places if root == group and choice != BY_GRID]


def _method_of(ours: str, words: Sequence[str]) -> str:
    """A hint to name the method where a key is not every method's."""
    key = ours.partition("=")[0]
    known = documented_keys().get(key)
    if not key.startswith("trainer.") or known is None or any(word.startswith("trainer=") for word in words):
        return ""
    return f" Name the method with it ({', '.join(_having(key))})."


def _meant(word: str, known: Sequence[str], prefix: str) -> str:
    """A question that proposes the most similar known word; empty where none is similar."""
    similar = get_close_matches(word, known, n=1, cutoff=SIMILAR)
    if not similar:
        ends = {name.rpartition(".")[2]: name for name in reversed(known)}
        similar = [ends[last] for last in get_close_matches(word.rpartition(".")[2], list(ends), n=1, cutoff=SIMILAR)]
    return f" Did you mean {prefix}{similar[0]}?" if similar else ""


def _ungrammatical(error: BaseException) -> str:
    """The sentence for a word that Hydra cannot parse."""
    cause = error if isinstance(error, OverrideParseException) else error.__cause__
    assert isinstance(cause, HydraException)
    word = getattr(cause, "override", "")
    if "=" not in word:
        return f"Expected {word} to be KEY=VALUE, as in steps=100."
    if _QUOTED_NAME.search(word):
        names = word.lstrip("+")
        return f"Expected the names in {names} to stand without quotes, as in dataset.bounds={{age: [18, 90]}}."
    return (
        f"Expected {word} to be KEY=VALUE: check its brackets, commas and quotes, and quote a value with spaces or "
        "brackets twice, as in data=\"'my folder'\"."
    )
