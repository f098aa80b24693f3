r"""The only writer of what a person reads on a terminal.

Names, notes and messages may be a stranger's: of a plan, a folder, a ledger. A terminal obeys control characters, and
shows text after a bidirectional one in another order. So everything that is printed has them as visible text:
`\x1b`, `\u202e`. A line break within a sentence would start a line that looks like one of ours, so it is visible too;
only text that is laid out by this program has line breaks and tabs. Colours and tables are `rich`'s, whose only door
is `sweeper/terminal.py`; `tests/accounting/test_printing.py` finds every other way to print.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

from dpsweep.accounting.errors import BadInput

_INVISIBLE = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff"
_IN_A_LINE = re.compile(rf"[\x00-\x1f{_INVISIBLE}]")
_FIRST_COLUMNS = re.compile(r" +(\S+ {2,}(?=\S))?")
_LONG_WORD = re.compile(r"(\S{200})\S{4000,}")  # a path has at most 4096 characters
_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")


class BadInputInLines(BadInput):
    """A request that lacks several values, one a line; whoever raises it has escaped the words of others in it."""


def escape_invisible_characters(text: object) -> str:
    r"""The text in one line, with control and bidirectional characters and halves of surrogate pairs as escapes.

    >>> escape_invisible_characters("\x1b[31mred\nnext")
    '\\x1b[31mred\\x0anext'
    """
    return _IN_A_LINE.sub(_escape_matched_character, str(text))


def escape_invisible_except_line_breaks(text: object) -> str:
    """The same, for text whose line breaks and tabs are ours."""
    return _IN_LINES.sub(_escape_matched_character, str(text))


def has_only_visible_characters(text: str) -> bool:
    """Whether a text has none of these characters."""
    return _IN_A_LINE.search(text) is None


def print_line(sentence: object, *, flush: bool = False) -> None:
    """Prints a sentence as one line on standard output; `flush` is for a reader who waits for it."""
    _write_to_stream(escape_invisible_characters(sentence), sys.stdout, flush=flush)


def print_lines(text: object, *, flush: bool = False) -> None:
    """Prints text that this program has laid out in lines."""
    _write_to_stream(escape_invisible_except_line_breaks(text), sys.stdout, flush=flush)


def print_help(text: str) -> None:
    """Prints text in lines, those that are longer than the terminal is wide continued below their last column."""
    print_lines(wrap_lines_below_last_column(text, shutil.get_terminal_size((sys.maxsize, 0)).columns))


def wrap_lines_below_last_column(text: str, width: int) -> str:
    """The text in lines of at most this width; further lines of a table's row begin where its last column does.

    >>> print(wrap_lines_below_last_column("  sweep  price and charge a grid", 22))
      sweep  price and
             charge a grid
    """
    lines: list[str] = []
    for line in text.splitlines():
        begin = _FIRST_COLUMNS.match(line)
        indent = " " * (0 if begin is None else begin.end())
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def print_error(sentence: object) -> None:
    """Prints a sentence as one line on standard error; a word of thousands of characters, a stranger's name, is cut."""
    _write_to_stream(_LONG_WORD.sub(r"\1...", escape_invisible_characters(sentence)), sys.stderr)


def print_errors(*sentences: str) -> None:
    """Prints each sentence as one line on standard error; an empty one is none."""
    for sentence in filter(None, sentences):
        print_error(sentence)


def print_error_lines(text: object) -> None:
    """Prints text in lines, such as a traceback, on standard error."""
    _write_to_stream(escape_invisible_except_line_breaks(text), sys.stderr)


def _write_to_stream(text: str, stream: TextIO | None, *, flush: bool = False) -> None:
    """Prints it, with an escape for what the stream's encoding lacks; a process may have no stream."""
    if stream is not None:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=flush)


def _escape_matched_character(character: re.Match[str]) -> str:
    code = ord(character.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
