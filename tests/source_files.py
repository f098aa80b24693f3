"""The modules of the packages, and what each of them imports."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("accounting", "trainers", "reports", "sweeper")


@cache
def modules(package: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / package).rglob("*.py")))


@cache
def imports(path: Path) -> frozenset[str]:
    """Every absolute module that a file imports, also within functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return frozenset(names)
