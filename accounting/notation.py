"""Notation of privacy amounts on the terminal, on pages and in messages: one writer for all of them.

Invariants: amounts that are spent, reserved, asked for or claimed are never written smaller than they are, and
amounts that are left, or forced at least, never larger. Noise protects, so existing noise is never written larger than
it is, and required noise never smaller. Typed numbers are written digit by digit. Two amounts that a sentence compares
have as many digits as show which of them is the larger one (`demand_and_remainder_texts`).

Rules for changing this file: a test forbids format specifications (`:.4g`) on these amounts everywhere else, and tests
with random numbers check every function's rounding direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from dpsweep.accounting.guarantee import Guarantee

DECIMALS, DIGITS, NOISE_DIGITS, RATE_DIGITS = 3, 3, 6, 4
"""Decimals of an epsilon, and the fewest digits if it is small; digits of a delta, of noise, of a sampling rate."""

INFINITE = "\N{INFINITY}"

_DELTA = "delta"

_EXACT = Context(prec=2000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""A context that holds any float, and any sum in an account, in all of its digits."""

_MOST_DECIMALS = 4
"""Decimals of a percentage; a share that is nearer to one is written as 100."""

_LARGE = Decimal(10) ** 6
"""Factors from here on are written as a power of ten."""

Amount = float | Decimal


def epsilon_text_rounded_up(value: Amount) -> str:
    """An upper bound on epsilon: three decimals, or three digits if it is small, never rounded down.

    >>> epsilon_text_rounded_up(7.9981), epsilon_text_rounded_up(0.00012341)
    ('7.999', '0.000124')
    """
    return _text_with_decimals(value, ROUND_CEILING, DECIMALS)


def epsilon_text_rounded_down(value: Amount) -> str:
    """An epsilon that may still be spent, or is a lower bound, never rounded up.

    >>> epsilon_text_rounded_down(7.9989)
    '7.998'
    """
    return _text_with_decimals(value, ROUND_FLOOR, DECIMALS)


def delta_text_rounded_up(value: Amount) -> str:
    """A delta: three digits, never rounded down, in powers of ten if it is small.

    >>> delta_text_rounded_up(1e-5), delta_text_rounded_up(2.0001e-5)
    ('1e-5', '2.01e-5')
    """
    return _text_with_digits(value, ROUND_CEILING, DIGITS)


def delta_text_rounded_down(value: Amount) -> str:
    """A delta that may still be spent, never rounded up.

    >>> delta_text_rounded_down(2.0099e-5)
    '2e-5'
    """
    return _text_with_digits(value, ROUND_FLOOR, DIGITS)


def noise_text_rounded_down(value: Amount, digits: int = NOISE_DIGITS) -> str:
    """Existing noise: this number of digits, never rounded up.

    >>> noise_text_rounded_down(1.2000009), noise_text_rounded_down(7.641)
    ('1.2', '7.641')
    """
    return _text_with_digits(value, ROUND_FLOOR, digits)


def noise_text_rounded_up(value: Amount, digits: int = NOISE_DIGITS) -> str:
    """Required noise: this number of digits, never rounded down.

    >>> noise_text_rounded_up(1.2000009), noise_text_rounded_up(3.70123, 4)
    ('1.20001', '3.702')
    """
    return _text_with_digits(value, ROUND_CEILING, digits)


def sampling_rate_text_rounded_up(value: Amount) -> str:
    """A sampling rate, which costs privacy: four digits, never rounded down.

    >>> sampling_rate_text_rounded_up(180 / 1438)
    '0.1252'
    """
    return _text_with_digits(value, ROUND_CEILING, RATE_DIGITS)


def text_with_all_digits(value: Amount) -> str:
    """A typed number, in all of its digits.

    >>> [text_with_all_digits(number) for number in (24.0, 1e-05, 2.0000000001, float("inf"))]
    ['24', '1e-5', '2.0000000001', '∞']
    """
    return _text_like_python_float(_as_shortest_decimal(value)) if math.isfinite(value) else INFINITE


def demand_and_remainder_texts(demand: Amount, left: Amount, name: str = "epsilon") -> tuple[str, str]:
    """An amount asked for, rounded up, and the rest, rounded down, both written as deltas if `name` is delta.

    *Guarantee*: the first written number is the larger one exactly if `demand` is larger than `left`, and then their
    difference is at most twice the true one.

    >>> demand_and_remainder_texts(2.0000004, 2.0), demand_and_remainder_texts(0.5, 2.0)
    (('2.0000004', '2.0000000'), ('0.500', '2.000'))
    >>> demand_and_remainder_texts(1.0001e-5, 1e-5, "delta")
    ('1.0001e-5', '1e-5')
    """
    write, fewest = (_text_with_digits, DIGITS) if name == _DELTA else (_text_with_decimals, DECIMALS)
    if not (math.isfinite(demand) and math.isfinite(left)):
        return write(demand, ROUND_CEILING, fewest), write(left, ROUND_FLOOR, fewest)
    gap = _EXACT.subtract(_as_shortest_decimal(demand), _as_shortest_decimal(left))
    digits = fewest
    while True:
        up, down = write(demand, ROUND_CEILING, digits), write(left, ROUND_FLOOR, digits)
        difference = _EXACT.subtract(Decimal(up), Decimal(down))
        if difference <= max(2 * gap, Decimal(0)):
            return up, down
        digits += 1


def guarantee_text(claim: Guarantee) -> str:
    """A claim or a budget, with the neighbours that it protects.

    >>> guarantee_text(Guarantee(epsilon=7.9981, delta=1e-5))
    'epsilon 7.999 at delta 1e-5 per record, add_or_remove_one'
    """
    if claim.promises_nothing:
        return f"no promise to any {claim.unit}, as the data were declared public"
    amounts = f"epsilon {epsilon_text_rounded_up(claim.epsilon)} at delta {text_with_all_digits(claim.delta)}"
    return f"{amounts} per {claim.unit}, {claim.adjacency.value}"


def short_population_name(part: str) -> str:
    """A short name of a population of records, by its name in a plan's event.

    >>> short_population_name("training"), short_population_name("final validation")
    ('training', 'final scored')
    """
    return part.replace("validation", "scored")


def accountants_upper_bounds_text(bounds: Mapping[str, float], used: float) -> str:
    """The accountants' upper bounds on one population, the smallest first, and which of them is the price.

    >>> accountants_upper_bounds_text({"RDP": 8.625, "PLD": 8.0}, 8.0)
    '8.000 (PLD, used), 8.625 (RDP, looser)'
    >>> accountants_upper_bounds_text({"RDP": 8.625, "PLD": 8.0}, 8.625)
    '8.000 (PLD, for comparison), 8.625 (RDP, used)'
    """
    ordered = sorted(bounds.items(), key=lambda item: item[1])
    words = ("used" if bound == used else "looser" if bound > used else "for comparison" for _, bound in ordered)
    texts = (f"{epsilon_text_rounded_up(one[1])} ({one[0]}, {word})" for one, word in zip(ordered, words, strict=True))
    return ", ".join(texts) or "none"


def exponential_text_rounded_up(exponent: Amount, times: int = 1) -> str:
    """So many times e to this power, three digits, never rounded down: the one rounding of e^epsilon.

    >>> [exponential_text_rounded_up(number) for number in (10.0, 160.0, 0.0, 3e6)]
    ['22,100', '3.07e69', '1', '2.8e1302883']
    """
    if not math.isfinite(exponent):
        return INFINITE
    digits = Context(prec=30, Emin=MIN_EMIN, Emax=MAX_EMAX)
    exact = digits.multiply(_as_shortest_decimal(exponent).exp(digits), Decimal(times))
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - DIGITS + 1, _EXACT), ROUND_CEILING, _EXACT)
    if rounded >= _LARGE:
        return f"{_mantissa_text(rounded)}e{rounded.adjusted()}"
    return f"{rounded.normalize():,f}"


def percent_text_rounded_up(share: float) -> str:
    """A share of one in percent, never rounded down: one decimal or, near 100, two digits of what is missing.

    >>> [percent_text_rounded_up(share) for share in (0.5, 0.73106, 0.99966, 0.99999999)]
    ['50', '73.2', '99.966', '100']
    """
    percent = Decimal(repr(float(share))) * 100
    missing = 100 - percent
    decimals = 1 if missing >= 1 else min(1 - missing.adjusted(), _MOST_DECIMALS)
    return f"{percent.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING).normalize(_EXACT):f}"


def _text_with_decimals(value: Amount, rounding: str, decimals: int) -> str:
    """A number with this many decimals, or with this many digits if it is small."""
    if not math.isfinite(value) or value == 0:
        return INFINITE if value else "0"
    exact = _as_shortest_decimal(value)
    return f"{exact.quantize(Decimal(1).scaleb(min(-decimals, exact.adjusted() - decimals + 1)), rounding, _EXACT):f}"


def _text_with_digits(value: Amount, rounding: str, digits: int) -> str:
    """A number with at most this many digits."""
    if not math.isfinite(value) or value == 0:
        return INFINITE if value else "0"
    exact = _as_shortest_decimal(value)
    return _text_like_python_float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding, _EXACT))


def _text_like_python_float(exact: Decimal) -> str:
    """All digits, with a power of ten below 1e-4 and from 1e16 on, as Python writes floats."""
    if exact == 0:
        return "0"
    if -4 <= exact.adjusted() < 16:
        return f"{exact.normalize(_EXACT):f}"
    return f"{_mantissa_text(exact)}e{exact.adjusted()}"


def _mantissa_text(exact: Decimal) -> str:
    return f"{exact.scaleb(-exact.adjusted(), _EXACT).normalize(_EXACT):f}"


def _as_shortest_decimal(value: Amount) -> Decimal:
    """The shortest decimal that denotes a float; a decimal is returned unchanged."""
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))
