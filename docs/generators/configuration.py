"""Writes docs/configuration.md: every configuration key, from the comments of conf/.

python docs/generators/configuration.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpsweep.sweeper.planning.keys import DocumentedKey, choices_by_group, documented_keys, is_key_users_never_set
from dpsweep.sweeper.planning.unknown_keys import SYNONYMS

PAGE = Path(__file__).parents[1] / "configuration.md"

HEAD = """# Configuration

Every key that a command may give, from the comments of `conf/`; `dpsweep help KEY` prints the same, and the value
in each choice. `???` stands for a value that is yours to give. The choices of a group: [settings.md](settings.md).
"""

FEW = 3
"""The most different values that the table shows; of more it refers to the choices."""


def render() -> str:
    """The page."""
    keys = [
        key for key in documented_keys().values() if any(key.values.values()) and not is_key_users_never_set(key.name)
    ]
    tables = (f"\n## {_title(root)}\n\n{_table(list(found))}" for root, found in _listed(keys))
    return HEAD + "".join(tables) + _of_others()


def _listed(keys: list[DocumentedKey]) -> Iterator[tuple[str, list[DocumentedKey]]]:
    """The keys by their first part, those without one first."""
    for root in sorted({_root(key) for key in keys}):
        yield root, [key for key in keys if _root(key) == root]


def _root(key: DocumentedKey) -> str:
    return key.name.partition(".")[0] if "." in key.name else ""


def _title(root: str) -> str:
    if not root:
        return "Keys of the whole sweep"
    return f"`{root}.`, of the group `{root}=`" if root in choices_by_group() else f"`{root}.`"


def _table(keys: list[DocumentedKey]) -> str:
    rows = (f"| `{key.name}` | {_values(key)} | {_cell(key.meaning)} |\n" for key in keys)
    return "".join(("| key | value | meaning |\n|---|---|---|\n", *rows))


def _values(key: DocumentedKey) -> str:
    """A key's different values; where there are too many, the number of choices that have one."""
    values = list(dict.fromkeys(value for value in key.values.values() if value))
    return ", ".join(f"`{_cell(value)}`" for value in values) if len(values) <= FEW else "by choice"


def _of_others() -> str:
    """The words of other tools."""
    rows = (f"| `{name}` | `{key.format(name)}` |\n" for name, key in SYNONYMS.items())
    head = "\n## Words of other tools\n\nThey are refused with our word, and epochs with the steps that they are.\n\n"
    return "".join((head, "| elsewhere | here |\n|---|---|\n", *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
