"""Aims of benchmarks: measured numbers beside the most that each may be, judged by the exit code and not by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MISSED = "missed: "
"""How the line of a missed aim begins."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """A measured number and the most that it may be, of the same unit; where more is better, its reciprocal."""

    name: str
    measured: float
    at_most: float

    @property
    def is_met(self) -> bool:
        """False also for a number that is not one."""
        return self.measured <= self.at_most

    def __str__(self) -> str:
        return f"{self.name}: {self.measured:.4g}, at most {self.at_most:.4g}"


def judge(aims: Sequence[Aim], *, toy: bool) -> int:
    """Prints all aims, and returns the exit code: 1 where one is missed. A toy size is not judged."""
    if not aims:
        return 0
    width = max(len(aim.name) for aim in aims)
    print(f"\n{'aim':{width}}  measured   at most")
    for aim in aims:
        verdict = "" if toy else "  met" if aim.is_met else "  MISSED"
        print(f"{aim.name:{width}}  {aim.measured:8.4g}  {aim.at_most:8.4g}{verdict}")
    if toy:
        print("a toy size says nothing of speed: not judged")
        return 0
    missed = [aim for aim in aims if not aim.is_met]
    for aim in missed:
        print(f"{MISSED}{aim}", flush=True)
    return 1 if missed else 0
