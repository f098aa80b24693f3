"""The source of a module of dpsweep as a single file without dpsweep: its imports from dpsweep, then itself.

So the code of a model needs torch alone, and the program that recomputes a price numpy alone. The text is copied from
the source files; nothing is imported. A test builds every model of conf/ from this file in an interpreter that cannot
import dpsweep.
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


def code_of(module: str, head: str = _HEAD) -> str:
    """The source of a dpsweep module and of the dpsweep modules that it imports, each once, in import order.

    `head` is the text before them: a docstring and the `__future__` imports.
    """
    package = module.partition(".")[0]
    parts = [_without_imports(source, package) for source in _sources(module, package, set())]
    return "\n".join([head, *parts])


def _sources(module: str, package: str, seen: set[str]) -> Iterator[str]:
    if module in seen:
        return
    seen.add(module)
    source = _read(module)
    for node in ast.walk(ast.parse(source)):
        if name := _imported(node, package):
            yield from _sources(name, package, seen)
    yield source


def _read(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BadInput(f"Expected {module} to be a module of this version of dpsweep.")
    return Path(spec.origin).read_text(encoding="utf-8")


def _imported(node: ast.AST, package: str) -> str | None:
    """The module of this package that a statement imports names from, if any."""
    inner = isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == package
    return node.module if inner and isinstance(node, ast.ImportFrom) else None


def _without_imports(source: str, package: str) -> str:
    """The source with `pass` in place of this package's imports, and without `__future__` imports (see _HEAD)."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if isinstance(node, ast.ImportFrom) and (future or _imported(node, package)):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f"{' ' * node.col_offset}pass" if node.col_offset else ""] + [""] * (last - first - 1)
    return "\n".join(lines) + "\n"
