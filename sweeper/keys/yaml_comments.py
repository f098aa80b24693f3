"""Keys of one YAML file with their values as written and the comments that explain them.

A comment explains the key on whose line it stands, or the key right below it. The comment at the top of a file explains
the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

HIDDEN = ("_target_", "_recursive_", "defaults", "hydra")
"""Keys that name a class or belong to Hydra."""

GLOBAL = "# @package _global_"
"""Hydra's mark of a file whose keys are not below its group's name."""

_TRAILING = re.compile(r"\s#\s(?P<text>.*)$")


@dataclass(frozen=True, kw_only=True)
class CommentedKey:
    """One key of a file: its dotted name, its value as written (empty for a mapping) and its comment."""

    name: str
    value: str
    comment: str | None


def commented_keys(path: Path) -> Iterator[CommentedKey]:
    """The keys of a YAML file in their order; a mapping stands before its own keys."""
    text = path.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(node, yaml.MappingNode):
        yield from _below(node, "", text, text.splitlines())


def header(path: Path) -> str:
    """The comment at the top of a YAML file, in one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = 1 if lines[0] == GLOBAL else 0
    end = next((place for place in range(start, len(lines)) if not lines[place].startswith("# ")), len(lines))
    return " ".join(line.removeprefix("# ") for line in lines[start:end])


def first_sentence(text: str) -> str:
    """The first sentence of a comment, in which `et al.` ends none.

    >>> first_sentence("Adam (Kingma et al. 2015). It is quick.")
    'Adam (Kingma et al. 2015).'
    """
    sentence = re.split(r"(?<=[^.]{2}\.) (?=[A-Z])", re.sub(r"\bet al\.", "et al", text), maxsplit=1)[0]
    return sentence.replace("et al", "et al.")


def _below(node: yaml.MappingNode, prefix: str, text: str, lines: Sequence[str]) -> Iterator[CommentedKey]:
    for key, value in node.value:
        if key.value in HIDDEN:
            continue
        name, comment = prefix + key.value, _comment(lines, key.start_mark.line)
        below = isinstance(value, yaml.MappingNode) and bool(value.value)
        written = "" if below else text[value.start_mark.index : value.end_mark.index].strip()
        yield CommentedKey(name=name, value=written, comment=comment)
        if isinstance(value, yaml.MappingNode):
            yield from _below(value, f"{name}.", text, lines)


def _comment(lines: Sequence[str], line: int) -> str | None:
    """The comment on a line, or else the one on lines of its own right above it, unless that is the file's."""
    if trailing := _TRAILING.search(lines[line]):
        return trailing["text"].strip()
    start, indent = line, _indent(lines[line])
    while start > 0 and lines[start - 1].lstrip().startswith("# ") and _indent(lines[start - 1]) == indent:
        start -= 1
    is_header = start == 0 or lines[start - 1] == GLOBAL or lines[start] == GLOBAL
    block = [text.strip().removeprefix("# ") for text in lines[start:line]]
    return " ".join(block) if block and not is_header else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
