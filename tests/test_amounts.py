"""Amounts of privacy are rounded by one writer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source_files import PACKAGES, ROOT, modules

AMOUNT = re.compile(r"epsilon|delta|noise|divergence|\bmu\b|sigma|budget|\bleft\b|\brest\b|\bprice\b|\bleast\b")
ROUNDED = re.compile(r"\.?\d*[efgn]$", re.IGNORECASE)
TEMPLATED = re.compile(r"\{([^{}:]+):([^{}]*)\}")
WRITER = "accounting/notation.py"


def rounded_amounts(text: str) -> Iterator[str]:
    """The expressions that a module rounds by a format specification and whose names are those of privacy amounts."""
    for node in ast.walk(ast.parse(text)):
        pairs: list[tuple[str, str]] = []
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            spec = "".join(str(one.value) for one in node.format_spec.values if isinstance(one, ast.Constant))
            pairs = [(ast.unparse(node.value), spec)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            pairs = TEMPLATED.findall(node.value)
        yield from (f"{what}:{spec}" for what, spec in pairs if AMOUNT.search(what) and ROUNDED.search(spec))


def test_amounts_of_privacy_have_one_writer() -> None:
    """Rounding to the nearest writes some bounds too small and some rests too large."""
    assert list(rounded_amounts('f"{cost.epsilon:.4g} {self.delta:g} {steps:.2f}"')) == [
        "cost.epsilon:.4g",
        "self.delta:g",
    ]
    assert list(rounded_amounts('"{left:.3f} left".format(left=rest)')) == ["left:.3f"]
    for package in PACKAGES:
        for path in modules(package):
            name = str(path.relative_to(ROOT))
            if name == WRITER or name.startswith("reports/reproduction/"):  # papers' own digits
                continue
            assert list(rounded_amounts(path.read_text())) == [], f"{name}: use {WRITER}"
