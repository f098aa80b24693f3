"""Recomputes the price that a release of dpsweep claims, with numpy alone: `python price_check.py [FOLDER]`.

It reads `price.json` and `report.json` in the release's FOLDER, by default that of this file, prices the event of each
population by accountants of its own, and says whether the claim holds: one of this program's upper bounds is at most
the claim and a little more: .001, or 5 % of the claim where that is less. Claims are not rounded, and the lattices of
two accountants put their bounds closer together than that. Whoever made the claim, it holds only by a bound. A claim
that is far above the bound, although privacy-loss distributions (PLD) made it, fails too: then the event is not the one
that was priced. Where this program has no bound, a claim below the price of one run fails. Exit codes: 0 all holds, 1
something does not hold, 2 a file cannot be read, 3 nothing fails and something was not recomputed.

It does not check that the run was the declared one: that is in the curator's ledger. Each bound names its theorem.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsweep.reports.recomputation.event_price import (
    REPLACE,
    epsilon,
    epsilon_by_renyi,
    least_possible_epsilon_of_event,
    total_variation,
)
from dpsweep.reports.recomputation.loss_lattice import FARTHEST, NotRecomputed

HOLDS, FAILS, UNREADABLE, NOT_RECOMPUTED = 0, 1, 2, 3
TOLERANCE, LOOSE = (1e-3, 0.05), (0.02, 0.01)
"""How far a bound may be above a claim (the lesser), and below a claim by PLD (the greater; absolute, relative)."""
LONGEST_FILE, LONGEST_LINE = 1 << 26, 1000
"""The largest file that is read, in bytes, and the longest line that is printed."""
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors of values that are missing, of another type, too large or nested too deeply."""
SEARCHES = {
    "private_selection": "NegativeBinomial",
    "poisson_selection": "Poisson",
    "best_of_grid": "EachPoint",
    "random_stopping": "RandomStoppingDpEvent",
    "threshold": "ThresholdDpEvent",
}
"""What the event of a rule that hides its losers contains."""
SHOW_ALL = ("composition", "public", "disjoint parts", "composition + final run", "public + final run", "noisy_max")
"""Rules whose events contain none of these."""


def largest_bound_that_confirms_claim(claim: float) -> float:
    """The largest bound of this program's by which a claim holds."""
    return claim + min(TOLERANCE[0], TOLERANCE[1] * claim)


def exit_code_and_sentence_on_claim(part: Mapping[str, Any], delta: float, adjacency: str, by: str) -> tuple[int, str]:
    """The exit code and the sentence for one population's claim."""
    claim, event = float(part["epsilon"]), part["event"]["event"]
    bound, reason = _recomputed_value_or_reason(lambda: epsilon(event, delta, adjacency, min(claim, FARTHEST)))
    numbers = f"epsilon {claim!r} is claimed, {_bound_text(bound)} is recomputed"
    if bound <= largest_bound_that_confirms_claim(claim):
        if by == "PLD" and claim - bound > max(LOOSE[0], LOOSE[1] * claim):
            return FAILS, f"is not the price of this event, which costs less: {numbers}"
        return HOLDS, f"holds: {numbers}"
    other, without = _recomputed_value_or_reason(lambda: epsilon_by_renyi(event, delta, adjacency))
    if other <= largest_bound_that_confirms_claim(claim):
        return HOLDS, f"holds: epsilon {claim!r} is claimed, {_bound_text(other)} is recomputed by Renyi divergences"
    if claim > FARTHEST and math.isinf(bound):
        return NOT_RECOMPUTED, f"not recomputed: {reason or f'it is above {FARTHEST}'}: epsilon {claim!r} is claimed"
    searched = bool(set(_types_of_events_and_laws_in_json(event)) & set(SEARCHES.values()))
    missing = (reason or (searched and without)) if "RDP" in by.split(" and ") else reason
    if reason and not without and "RDP" in by.split(" and "):
        missing, numbers = "", f"epsilon {claim!r} is claimed, {_bound_text(other)} is recomputed by Renyi divergences"
    if not missing:
        return FAILS, f"does not hold: {numbers}"
    least, _ = _recomputed_value_or_reason(lambda: least_possible_epsilon_of_event(event, delta, adjacency), 0.0)
    if least > largest_bound_that_confirms_claim(claim):
        return FAILS, f"does not hold: epsilon {claim!r} is claimed, and one run costs {_bound_text(least)}"
    return NOT_RECOMPUTED, f"not recomputed: {missing}: epsilon {claim!r} is claimed"


def _recomputed_value_or_reason(recompute: Callable[[], float], otherwise: float = math.inf) -> tuple[float, str]:
    """What is recomputed, or the reason why it is not; a value that is no number counts as infinite."""
    try:
        value = recompute()
    except NotRecomputed as reason:
        return otherwise, str(reason)
    return (value if value == value else math.inf), ""


def _bound_text(bound: float) -> str:
    """A bound, rounded up to seven digits."""
    if not 0 < bound < math.inf:
        return str(bound)
    unit = 10.0 ** (math.floor(math.log10(bound)) - 6)
    return f"{math.ceil(bound / unit) * unit:.7g}"


def exit_codes_and_sentences_on_price(price: Mapping[str, Any], report: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The verdicts on a release: its sums, each population, and what no population's event covers."""
    more, facts, delta = price["repeats"], report["facts"], float(price["delta"])
    if price["version"] != 1 or price["adjacency"] not in ("add_or_remove_one", REPLACE) or not 0 < delta < 1:
        raise ValueError("Expected price.json to have version 1, a known adjacency, and delta in (0, 1).")
    if not (
        _is_finite_and_not_negative(more["epsilon"])
        and _is_finite_and_not_negative(more["delta"])
        and delta + more["delta"] < 1
    ):
        return [(FAILS, "repeated runs: their epsilon and delta are no charge: finite, not negative, delta below 1")]
    sums = (
        ("epsilon of the populations", max(part["epsilon"] for part in price["parts"].values()), price["epsilon"]),
        ("epsilon of report.json", facts["honest_epsilon"]["value"], price["epsilon"] + more["epsilon"]),
        ("delta of report.json", facts["honest_delta"]["value"], delta + more["delta"]),
    )
    results = [
        (FAILS, f"{name}: {one!r} does not agree with {other!r} in price.json")
        for name, one, other in sums
        if not math.isclose(one, other, rel_tol=1e-9)
    ]
    results += _exit_codes_and_sentences_on_rule(price["parts"], price["rule"])
    for name, part in price["parts"].items():
        code, sentence = exit_code_and_sentence_on_claim(part, delta, price["adjacency"], price["claimed_by"])
        results.append((code, f"{name}: {sentence}"))
    results += _total_variation_verdicts(price, facts)
    if more["epsilon"] or more["delta"]:
        charged = f"epsilon {more['epsilon']!r} at delta {more['delta']!r}"
        results.append((NOT_RECOMPUTED, f"repeated runs: not recomputed: {charged} is charged for them"))
    return results


def _total_variation_verdicts(price: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The verdict on the stated total variation, by which a fair coin is guessed; none if none is stated."""
    stated, parts = price.get("total_variation"), [part["event"]["event"] for part in price["parts"].values()]
    if stated != facts.get("total_variation", {}).get("value"):
        yield FAILS, "total variation: report.json does not agree with price.json"
    elif stated is not None:
        bound, reason = _recomputed_value_or_reason(
            lambda: max(total_variation(event, price["adjacency"]) for event in parts)
        )
        holds = min(bound, 1.0) <= largest_bound_that_confirms_claim(stated)
        code, words = (HOLDS, "holds") if holds else (FAILS, "does not hold")
        code, words = (NOT_RECOMPUTED, f"not recomputed: {reason}") if reason else (code, words)
        yield code, f"total variation: {words}: {stated!r} is claimed, {_bound_text(bound)} is recomputed"


def _is_finite_and_not_negative(value: object) -> bool:
    """Whether a JSON value is a finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _exit_codes_and_sentences_on_rule(parts: Mapping[str, Any], rule: str) -> list[tuple[int, str]]:
    """A failure if a rule of dpsweep's is named and the events are not its own."""
    declared = {kind for name, kind in SEARCHES.items() if name in rule.split()}
    contained = set(_types_of_events_and_laws_in_json(parts)) & set(SEARCHES.values())
    known = declared or rule in SHOW_ALL
    return [(FAILS, f"rule: the events are not those of {rule}")] if known and declared != contained else []


def _types_of_events_and_laws_in_json(form: object) -> Iterator[str]:
    """The type of every event and every law in a JSON value."""
    inner = form.values() if isinstance(form, dict) else form if isinstance(form, list) else ()
    if isinstance(form, dict) and "type" in form:
        yield form["type"]
    for one in inner:
        yield from _types_of_events_and_laws_in_json(one)


def _escape_unprintable(text: str) -> str:
    """The text with visible escapes of what a terminal obeys: a release may be a stranger's."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def read_json(path: Path) -> Any:
    """The JSON in a file of its own, of limited size; raises ValueError for a link, a device or a large file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LONGEST_FILE:
        raise ValueError(f"Expected {path.name} to be a file of at most {LONGEST_FILE >> 20} MiB, and no link.")
    return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Prints the verdicts on the release in a folder, by default that of this file."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    files = [folder / f"{name}.json" for name in ("price", "report")]
    try:
        price, report = map(read_json, files)
        results = exit_codes_and_sentences_on_price(price, report)
    except DAMAGE as cause:
        reason = repr(cause)[:LONGEST_LINE]
        print(_escape_unprintable(f"Expected {' and '.join(map(str, files))} to be the files of a release: {reason}"))
        return UNREADABLE
    for _, sentence in results:
        print(_escape_unprintable(sentence[:LONGEST_LINE]))
    codes = {code for code, _ in results}
    return FAILS if FAILS in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
