"""Comparison of two texts whose printed numbers may differ by the rounding of their last digit."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def unit(number: str) -> float:
    """One in the last digit of a number as it is printed."""
    mantissa, _, exponent = number.partition("e")
    return float(10 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def differences(ours: str, theirs: str) -> list[tuple[str, str]]:
    """Numbers of two texts that differ by more than the last digit, which rounding may decide; else their words."""
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return [
            (left, right) for left, right in zip(ours.splitlines(), theirs.splitlines(), strict=False) if left != right
        ]
    pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True)
    return [
        (left, right)
        for left, right in pairs
        if abs(float(left.replace(",", "")) - float(right.replace(",", ""))) > (1.01 * unit(left) if "." in left else 0)
    ]
