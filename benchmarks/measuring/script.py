"""The command line that all benchmarks have: --toy, and one option for each field of their sizes.

A benchmark declares its sizes as a frozen dataclass of numbers, strings, and tuples of them, one value for a full run
and one for a toy run, which takes seconds and needs neither downloads nor a GPU. tests/test_benchmarks.py runs the toy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from measuring.aims import Aim, judge

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Size = TypeVar("Size", bound="DataclassInstance")


def start(measure: Callable[[Size], Sequence[Aim]], *, full: Size, toy: Size, about: str | None) -> NoReturn:
    """Measures at the sizes that the command line asks for, and exits with 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="seconds, on generated or bundled data; nothing is judged")
    for field in fields(full):
        _add_option(parser, field.name, getattr(full, field.name))
    options = vars(parser.parse_args())
    is_toy = options.pop("toy")
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value is not None
    }
    aims = measure(replace(toy if is_toy else full, **chosen))
    sys.exit(judge(aims, toy=is_toy))


def _add_option(parser: argparse.ArgumentParser, name: str, default: object) -> None:
    """An option of the default's type; a tuple takes several values."""
    several = isinstance(default, tuple)
    kind = type(next(iter(default), "")) if isinstance(default, tuple) else type(default)
    text = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    flag = f"--{name.replace('_', '-')}"
    parser.add_argument(flag, type=kind, nargs="+" if several else None, metavar="VALUE", help=f"full: {text or '-'}")
