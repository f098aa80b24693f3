"""The code of a model of ours in one file that needs torch alone: its module, after all of ours that it imports.

The text is taken from our source files; nothing is imported. A test makes every model of conf/ from it in an
interpreter that cannot import us.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from dpsweep.accounting.errors import BadInput

FILE = "model.py"
_HEAD = '''"""The code of this model, as it was trained: it needs torch, and safetensors where it reads a file."""

from __future__ import annotations
'''


def code_of(module: str) -> str:
    """The source of this module of ours and of those that it imports, each once, in the order of their imports."""
    own = module.partition(".")[0]
    parts = [_without_imports(source, own) for source in _sources(module, own, set())]
    return "\n".join([_HEAD, *parts])


def _sources(module: str, own: str, seen: set[str]) -> Iterator[str]:
    if module in seen:
        return
    seen.add(module)
    source = _read(module)
    for node in ast.walk(ast.parse(source)):
        if name := _imported(node, own):
            yield from _sources(name, own, seen)
    yield source


def _read(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BadInput(f"Expected {module} to be a module of this version of dpsweep.")
    return Path(spec.origin).read_text(encoding="utf-8")


def _imported(node: ast.AST, own: str) -> str | None:
    """The module of ours that a statement imports names from."""
    inner = isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == own
    return node.module if inner and isinstance(node, ast.ImportFrom) else None


def _without_imports(source: str, own: str) -> str:
    """The source with `pass` in place of imports of ours, and without those of the future, which stand at the head."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if isinstance(node, ast.ImportFrom) and (future or _imported(node, own)):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f"{' ' * node.col_offset}pass" if node.col_offset else ""] + [""] * (last - first - 1)
    return "\n".join(lines) + "\n"
