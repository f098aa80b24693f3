"""Writes docs/api.md: the public names of dpsweep and of dpsweep.accounting, from their docstrings.

python docs/generators/api.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dpsweep
import dpsweep.accounting
import dpsweep.models

PAGE = Path(__file__).parents[1] / "api.md"
HEAD = """# Python API

The names that `import dpsweep` offers; [notebook.md](notebook.md) shows them in use, and `help(NAME)` has the arguments
and errors of each method. A name that is not on this page may change without notice.
"""
LIBRARY = """
## `dpsweep.accounting`, the accounting as a library

It needs neither torch nor Hydra; [library.md](library.md) has examples, and each name's own
docstring (`help(dpsweep.accounting.Pld)`) its guarantee, units, errors and source.

"""


def render() -> str:
    """The page."""
    names = (_section(f"dpsweep.{name}", getattr(dpsweep, name)) for name in dpsweep.__all__)
    models = (_section(f"dpsweep.models.{name}", getattr(dpsweep.models, name)) for name in dpsweep.models.__all__)
    rows = (_row(name, getattr(dpsweep.accounting, name)) for name in sorted(dpsweep.accounting.__all__))
    return "".join((HEAD, *names, *models, LIBRARY, *rows))


def _section(name: str, made: Any) -> str:
    if inspect.isclass(made):  # dpsweep makes its objects, so nobody calls it
        return f"\n## `{name}`\n\n{_text(made)}\n\n{''.join(_members(made))}".rstrip() + "\n"
    return f"\n## `{name}`\n\n{_signature(name, made)}{_text(made)}\n"


def _members(kind: type) -> Iterator[str]:
    """Public methods and properties, in the order of the file."""
    for name, member in vars(kind).items():
        made = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(made):
            continue
        shown = name if isinstance(member, property) else f"{name}{_parameters(made)}"
        yield f"- `{shown}`: {' '.join(_first_paragraph(made).split())}\n"


def _signature(name: str, made: Any) -> str:
    return f"```python\n{name}{_parameters(made)}\n```\n\n"


def _parameters(made: Any) -> str:
    """The names of parameters, and the values that they have by default."""
    parts, star = [], False
    for one in inspect.signature(inspect.unwrap(made)).parameters.values():
        if one.name == "self" or one.name.startswith("_"):
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts, star = [*parts, "*"], True
        default = "" if one.default is inspect.Parameter.empty else f"={one.default!r}"
        stars = "**" if one.kind is inspect.Parameter.VAR_KEYWORD else ""
        parts.append(f"{stars}{one.name}{default}")
    return f"({', '.join(parts)})"


def _text(made: Any) -> str:
    """The docstring without its examples and lists."""
    parts = (inspect.getdoc(made) or "").strip().split("\n\n")
    return "\n\n".join(part for part in parts if not part.startswith((">>>", "- ")))


def _first_paragraph(made: Any) -> str:
    return _text(made).partition("\n\n")[0]


def _row(name: str, made: Any) -> str:
    """The first sentence, or its part before a semicolon."""
    first = re.split(r"(?<=\.) (?=[A-Z*])|; ", " ".join(_first_paragraph(made).split()))[0]
    return f"- `{name}`: {first.removesuffix('.')}.\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
