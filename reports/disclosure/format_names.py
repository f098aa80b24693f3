"""The names of the forms that `dpsweep release --for` writes, and how a command line asks for them.

It imports nothing heavy, since the completion of a command line reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from dpsweep.accounting.errors import BadInput

OPTION = "--for"


class FormatName(StrEnum):
    """A form in which a release can be handed on.

    An entry of the Differential Privacy Deployments Registry, a disclosure record for a trusted research environment, a
    model card for the Hugging Face hub, a CycloneDX bill of materials.
    """

    REGISTRY = "registry"
    TRE = "tre"
    HF = "hf"
    CYCLONEDX = "cyclonedx"


def split(arguments: Sequence[str]) -> tuple[list[str], tuple[FormatName, ...]]:
    """The arguments of `dpsweep release` without its options, and the forms that the options name, each once.

    Raises `BadInput` for an unknown form.

    >>> split(["a", "--for", "tre,hf", "b", "--for=tre"])
    (['a', 'b'], (<FormatName.TRE: 'tre'>, <FormatName.HF: 'hf'>))
    """
    folders: list[str] = []
    names: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        option, given, value = word.partition("=")
        if option == OPTION:
            names += (value if given else next(waiting, "")).split(",")
        else:
            folders.append(word)
    return folders, named(names)


def named(names: Iterable[str]) -> tuple[FormatName, ...]:
    """The forms with these names, each once; raises `BadInput` for an unknown one."""
    known = tuple(FormatName)
    for name in names:
        if name not in known:
            asked = f"{OPTION} {name}".strip()
            raise BadInput(f"Expected {asked} to be one of {', '.join(known)}.")
    return tuple(dict.fromkeys(FormatName(name) for name in names))


def completions(words: Sequence[str]) -> tuple[str, ...]:
    """What may stand in the place of the last word: the forms after the option, or the option itself."""
    *before, last = words
    if before and before[-1] == OPTION:
        *chosen, last = last.split(",")
        first = "".join(f"{name}," for name in chosen)
        return tuple(f"{first}{name}" for name in FormatName if name.startswith(last) and name not in chosen)
    return (OPTION,) if last and OPTION.startswith(last) else ()
