"""Formats of settings, percentages, times and names on a page.

`dpsweep.accounting.notation` formats amounts of privacy, here as everywhere.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

VOWELS = frozenset("aeiouy")
SPELLED = {
    "dpnadam": "DP-NAdam",
    "dpadambc": "DP-AdamBC",
    "dpadamwosm": "DP-AdamWOSM",
    "auto_s": "AUTO-S",
    "adadp": "ADADP",
    "output_perturbation": "output perturbation",
    "script": "a script of the curator's own",
    "projected_dpsgd": "projected DP-SGD",
    "clipped_sgd": "clipped SGD",
    "normalized_sgd": "normalized SGD",
}
"""Names of methods that the general rule would spell wrong."""
ACCURACY = "accuracy"
METRICS = {"balanced_accuracy": "balanced accuracy", "f1": "F1", "auroc": "AUROC"}
"""Metrics whose name for readers differs from the typed one."""


def setting_text(value: object) -> str:
    """A setting as a user would type it.

    >>> setting_text(0.1), setting_text(1e-05), setting_text(60000), setting_text(True), setting_text(None)
    ('0.1', '1e-5', '60000', 'true', 'null')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        mantissa, letter, exponent = f"{value:.6g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if letter else mantissa
    return str(value)


def percent_text(share: float) -> str:
    """A share of one in percent, to one decimal.

    >>> percent_text(0.9137)
    '91.4'
    """
    return f"{100 * share:.1f}"


def percent_interval_text(low: float, high: float) -> str:
    """An interval of shares in percent, rounded outwards.

    >>> percent_interval_text(0.9012, 0.9247)
    '90.1 to 92.5'
    """
    return f"{_percent_with_one_decimal(low, ROUND_FLOOR)} to {_percent_with_one_decimal(high, ROUND_CEILING)}"


def duration_text(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration_text(4.26), duration_text(125), duration_text(7322)
    ('4.3 s', '2 min 5 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count_text(quantity: int, noun: str) -> str:
    """A number with its noun in singular or plural.

    >>> count_text(1, "point"), count_text(2, "point")
    ('1 point', '2 points')
    """
    return f"{quantity} {noun}" if quantity == 1 else f"{quantity} {noun}s"


def method_label(method: str) -> str:
    """A method's name for readers: `DP-` for a leading `dp`, and acronyms (no vowel) in capitals.

    >>> [method_label(name) for name in ("dpsgd", "dpnsgd", "dpadam", "dpnadam", "adadp")]
    ['DP-SGD', 'DP-NSGD', 'DP-Adam', 'DP-NAdam', 'ADADP']
    """
    if method in SPELLED:
        return SPELLED[method]
    private, rest = ("DP-", method[2:]) if method.startswith("dp") and len(method) > 2 else ("", method)
    return private + (rest.capitalize() if VOWELS & set(rest.lower()) else rest.upper())


def metric_label(metric: str) -> str:
    """A metric's name for readers.

    >>> [metric_label(name) for name in ("accuracy", "balanced_accuracy", "auroc", "sensitivity")]
    ['accuracy', 'balanced accuracy', 'AUROC', 'sensitivity']
    """
    return METRICS.get(metric, metric)


def axis_label(key: str) -> str:
    """The last part of a dotted key, which is the quantity's name.

    >>> axis_label("trainer.clip_norm"), axis_label("clip_schedule")
    ('clip_norm', 'clip_schedule')
    """
    return key.rpartition(".")[2]


def enumeration_text(parts: list[str]) -> str:
    """An enumeration with commas and `and`.

    >>> enumeration_text(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1] if parts else "") if part)


def shorten_text(text: str, length: int) -> str:
    """The text cut to at most `length` characters, with an ellipsis at the cut."""
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _percent_with_one_decimal(share: float, rounding: str) -> str:
    percent = (Decimal(repr(float(share))) * 100).quantize(Decimal("1e-9"), rounding=ROUND_HALF_EVEN)
    return f"{percent.quantize(Decimal('0.1'), rounding=rounding):f}"
