"""Writes docs/configuration.md: every configuration key, from the comments of conf/.

python docs/generators/configuration.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpsweep.sweeper.planning.keys import (
    SHORT_WORDS,
    DocumentedKey,
    choices_by_group,
    documented_keys,
    first_sentence,
    is_choice_for_papers_alone,
    is_key_users_never_set,
)
from dpsweep.sweeper.planning.unknown_keys import SYNONYMS

PAGE = Path(__file__).parents[1] / "configuration.md"

HEAD = """# Configuration

Every key that a command may give, with its default value (`null` where none stands here) and one sentence.
`dpsweep help KEY` prints the others, the value in each choice, and keys of papers' experiments. `???` is yours to
give. Choices: [settings.md](settings.md). In a command, though not in a file, these words also stand alone:
"""

FEW = 2
"""The most different values that the page shows; of more it refers to the choices."""


def render() -> str:
    """The page."""
    keys = [
        key
        for key in documented_keys().values()
        if any(key.values.values()) and not is_key_users_never_set(key.name) and not _do_only_papers_have(key)
    ]
    lists = (f"\n## {_title(root)}\n\n{_list(found)}" for root, found in _listed(keys))
    return HEAD + _short_words() + "".join(lists) + _of_others()


def _short_words() -> str:
    """The words that stand for a key, each with its key."""
    return f"{', '.join(f'`{word}` for `{key}`' for word, key in SHORT_WORDS.items())}.\n"


def _listed(keys: list[DocumentedKey]) -> Iterator[tuple[str, list[DocumentedKey]]]:
    """The keys by their first part, those without one first."""
    for root in sorted({_root(key) for key in keys}):
        yield root, [key for key in keys if _root(key) == root]


def _do_only_papers_have(key: DocumentedKey) -> bool:
    return all(choice and is_choice_for_papers_alone(*choice.split("=")) for choice in key.values)


def _root(key: DocumentedKey) -> str:
    return key.name.partition(".")[0] if "." in key.name else ""


def _title(root: str) -> str:
    if not root:
        return "Keys of the whole sweep"
    return f"`{root}=`" if root in choices_by_group() else f"`{root}.`"


def _list(keys: list[DocumentedKey]) -> str:
    """A line for each key, and one for all that have one meaning."""
    names: dict[str, list[str]] = {}
    for key in keys:
        names.setdefault(first_sentence(key.meaning), []).append(f"`{key.name}`{_values(key)}")
    return "".join(f"- {', '.join(named)}: {meaning}\n" for meaning, named in names.items())


def _values(key: DocumentedKey) -> str:
    """A key's different values, none for null alone; where there are too many, that each choice has its own."""
    values = list(dict.fromkeys(value for value in key.values.values() if value))
    if values == ["null"]:
        return ""
    return f" ({', '.join(f'`{value}`' for value in values) if len(values) <= FEW else 'by choice'})"


def _of_others() -> str:
    """The words of other tools, by ours."""
    words: dict[str, list[str]] = {}
    for name, key in SYNONYMS.items():
        words.setdefault(key.format(name), []).append(f"`{name}`")
    rows = (f"- `{key}`: {', '.join(names)}\n" for key, names in words.items())
    head = "\n## Words of other tools\n\nThey are refused with our word, and epochs with the steps that they are.\n\n"
    return "".join((head, *rows))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
