"""Nothing that a stranger wrote makes a terminal do something: one writer prints, and shows what it would obey."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

from dpsweep.accounting.printing import (
    escape_invisible_characters,
    escape_invisible_except_line_breaks,
    has_only_visible_characters,
    print_error,
    print_error_lines,
    print_line,
    print_lines,
)
from tests.source_files import PACKAGES, ROOT, modules

WRITERS = {
    "accounting/printing.py": "is the writer",
    "dpsweep/__main__.py": "prints a constant before anything can be imported",
    "reports/recomputation/price_check.py": "is a program of its own in a release, with an escape of its own",
    "sweeper/timing/step_timing.py": "writes JSON to the process that started it",
}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
RANGES = (range(32), range(0x7F, 0xA0), range(0x2028, 0x202F), range(0x2066, 0x206A))
OBEYED = [*map(chr, (code for codes in RANGES for code in codes)), *"\u061c\u200e\u200f\ud800\udcff\udfff"]
CALLS = {"print", "warnings.warn", "traceback.print_exc", "traceback.print_exception", "pprint", "input"}


def _prints(path: Path) -> list[str]:
    """The calls and imports of a module by which something could reach a terminal."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS:
                found.append(name)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("write", "writelines"):
                written_to = node.func.value
                while isinstance(written_to, ast.Attribute) and written_to.attr == "buffer":
                    written_to = written_to.value
                if isinstance(written_to, ast.Attribute) and written_to.attr in STREAMS:
                    found.append(name)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] == "rich"]
    return found


def test_one_module_prints_and_one_draws_tables() -> None:
    folders = [path for package in PACKAGES for path in modules(package)] + sorted((ROOT / "dpsweep").glob("*.py"))
    users = {path.relative_to(ROOT).as_posix() for path in folders if _prints(path)}
    assert users == {*WRITERS, "sweeper/terminal.py"}


def test_the_walk_finds_every_way_to_print(tmp_path: Path) -> None:
    for code in ("print(1)", "import sys\nsys.stdout.buffer.write(b'')", "from rich.table import Table", "import rich"):
        (tmp_path / "module.py").write_text(code)
        assert _prints(tmp_path / "module.py"), code


@pytest.mark.parametrize("character", OBEYED, ids=lambda one: f"{ord(one):04x}")
def test_what_a_terminal_obeys_is_visible(character: str) -> None:
    shown = escape_invisible_characters(f"a{character}b")
    assert not has_only_visible_characters(f"a{character}b")
    assert has_only_visible_characters(shown)
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert (escape_invisible_except_line_breaks(character) == character) == (character in "\n\t")


@pytest.mark.parametrize("text", ["épsilon ≤ 1", "한국어", "العربية", "\N{THIN SPACE}", "👩\u200d🔬", "C:\\data\\x1b"])
def test_what_people_write_stays(text: str) -> None:
    assert escape_invisible_characters(text) == text
    assert escape_invisible_except_line_breaks(text) == text


def test_every_writer_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;title\x07\u202ename\udcff\rall is well"
    for writer in (print_line, print_lines, print_error, print_error_lines):
        writer(hostile)
    out, err = capfd.readouterr()
    for text in (out, err):
        assert text.splitlines() == ["\\x1b]0;title\\x07\\u202ename\\udcff\\x0dall is well"] * 2


def test_a_line_stays_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    print_line("digits\nledger: the chain is whole.")
    assert capfd.readouterr().out == "digits\\x0aledger: the chain is whole.\n"


def test_an_encoding_that_lacks_a_character_costs_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="ascii", errors="strict"))
    print_line("ε ≤ 1", flush=True)
    assert content.getvalue() == b"\\u03b5 \\u2264 1\n"
    monkeypatch.setattr(sys, "stdout", None)
    print_line("nobody reads")


def test_a_long_name_in_a_refusal_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    path = f"/{'folder/' * 500}table.csv"
    print_error(f"Expected {'a' * 100_000}=1 in {path}.")
    assert capsys.readouterr().err == f"Expected {'a' * 200}... in {path}.\n"
