"""How often a sweep goes down into accounting for a price before its charge: the calls of one run, counted."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import CodeType, FrameType

SWEEPER, ACCOUNTING = "dpsweep.sweeper.", "dpsweep.accounting."
PRICING = tuple(f"{ACCOUNTING}{room}." for room in ("accountants", "lower_bounds", "pricing", "selection"))
"""The rooms that decide on a price. The others hold words, values, records and the ledger itself."""

CHARGE = ("dpsweep.accounting.ledger.ledger", "charge")


class ReachedTheCharge(BaseException):
    """Ends a run where the ledger is about to charge."""


@dataclass(kw_only=True)
class Calls:
    """The calls of a run from its entry to the ledger's charge, at the top level of the flow.

    What is counted: calls of functions and methods of `dpsweep.sweeper`, and calls from there of functions and methods
    of the rooms that price. What is not: anything that accounting calls, its calls back by an interface among them;
    values (what makes one, its properties, comparisons); comprehensions, which are no functions to a reader.
    """

    names: list[tuple[bool, str]] = field(default_factory=list)
    _within: int = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """What `sys.setprofile` calls."""
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith((SWEEPER, ACCOUNTING)) or event not in ("call", "return"):
            return
        if event == "return":
            self._within -= module.startswith(ACCOUNTING) and self._within > 0
            return
        name = frame.f_code.co_qualname
        if (module, frame.f_code.co_name) == CHARGE:
            sys.setprofile(None)
            raise ReachedTheCharge
        if not self._within and not _of_a_value(frame.f_code, frame.f_globals):
            if module.startswith(SWEEPER):
                self.names.append((False, f"{module}.{name}"))
            elif module.startswith(PRICING):
                self.names.append((True, f"{module}.{name}"))
        self._within += module.startswith(ACCOUNTING)

    @property
    def descents(self) -> list[list[str]]:
        """The calls into the rooms that price, those together between which nothing of the sweeper is called."""
        return [[name for _, name in calls] for prices, calls in groupby(self.names, key=lambda one: one[0]) if prices]


def until_the_charge(run: Callable[[], object]) -> Calls:
    """The calls of `run`, which ends where it charges."""
    calls = Calls()
    sys.setprofile(calls)
    try:
        run()
    except ReachedTheCharge:
        return calls
    finally:
        sys.setprofile(None)
    raise AssertionError("Expected a charge.")


def _of_a_value(code: CodeType, known: dict[str, object]) -> bool:
    """Whether this makes or reads a value, or is no function to a reader."""
    *above, name = code.co_qualname.split(".")
    if name.startswith("<") or (name.startswith("__") and name.endswith("__")):
        return True
    return any(isinstance(one, (property, cached_property)) for one in _attributes(above, name, known))


def _attributes(above: list[str], name: str, known: dict[str, object]) -> Iterator[object]:
    if len(above) == 1 and inspect.isclass(owner := known.get(above[0])):
        yield inspect.getattr_static(owner, name, None)
