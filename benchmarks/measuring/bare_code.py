"""The product's code without docstrings, comments, imports and blank lines: what is left is what a reader must hold."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("accounting", "trainers", "sweeper", "reports", "dpsweep")
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A file of the product: its path in the checkout, its bare lines, and how many statements, functions and classes.

    A longer name makes more lines and no more statements.
    """

    path: str
    lines: tuple[str, ...]
    statements: int
    functions: int
    classes: int


def product_modules() -> tuple[Module, ...]:
    """Every Python file of the product once: `dpsweep/` holds links to the other packages."""
    return tuple(_module_of(path) for path in _product_files())


def _product_files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(folder.is_symlink() for folder in path.parents if folder.is_relative_to(ROOT)):
                yield path


def _module_of(path: Path) -> Module:
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source)))
    return Module(
        path=str(path.relative_to(ROOT)),
        lines=tuple(_bare_lines(source, nodes)),
        statements=sum(isinstance(node, ast.stmt) and not _is_import_or_text(node) for node in nodes),
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
    )


def _bare_lines(source: str, nodes: list[ast.AST]) -> Iterator[str]:
    """The lines that hold a token, less those of imports and of strings that are statements."""
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if _is_import_or_text(node):
            numbers.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    lines = source.splitlines()
    yield from (lines[number - 1] for number in sorted(numbers))


def _is_import_or_text(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
