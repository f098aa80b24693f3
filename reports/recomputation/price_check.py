"""Recomputes the price that a release of dpsweep claims, with numpy alone: `python price_check.py [FOLDER] [OPENING]`.

It reads `price.json`, `report.json` and `commitment.json` in the release's FOLDER, by default that of this file, prices
the event of each population by an accountant of its own, and says whether the claim holds: this program's upper bound
is at most the claim + .001. A claim that is far above the bound, although privacy-loss distributions (PLD) made it,
fails too: then the event is not the one that was priced. With the curator's OPENING (`curator/opening.json`), it checks
that the commitment is to this event, epsilon and delta. Exit codes: 0 all holds, 1 something does not hold, 2 a file
cannot be read, 3 nothing fails and something was not recomputed.

It does not check that the run was the declared one: that is in the curator's ledger. Each bound names its theorem.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsweep.reports.recomputation.event_price import REPLACE, epsilon
from dpsweep.reports.recomputation.loss_lattice import FARTHEST, NotRecomputed

HOLDS, FAILS, UNREADABLE, NOT_RECOMPUTED = 0, 1, 2, 3
TOLERANCE, LOOSE = 1e-3, (0.02, 0.01)
"""How far this program's bound may be above a claim, and below a claim by PLD (absolute, relative)."""
DOMAIN = "dpsweep commitment 1"
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


def verdict(part: Mapping[str, Any], delta: float, adjacency: str, by: str) -> tuple[int, str]:
    """The exit code and the sentence for one population's claim."""
    claim = float(part["epsilon"])
    try:
        bound = epsilon(part["event"]["event"], delta, adjacency, min(claim, FARTHEST))
    except NotRecomputed as reason:
        return NOT_RECOMPUTED, f"not recomputed: {reason}"
    numbers = (
        f"epsilon {claim!r} is claimed, {math.ceil(bound * 1e6) / 1e6 if bound < math.inf else bound} is recomputed"
    )
    if not bound <= claim + TOLERANCE:
        if by != "PLD" and set(_types(part["event"])) & set(SEARCHES.values()):
            return NOT_RECOMPUTED, f"not recomputed: a claim for a search by {by} may be below this bound: {numbers}"
        return FAILS, f"does not hold: {numbers}"
    if by == "PLD" and claim - bound > max(LOOSE[0], LOOSE[1] * claim):
        return FAILS, f"is not the price of this event, which costs less: {numbers}"
    return HOLDS, f"holds: {numbers}"


def check_release(price: Mapping[str, Any], report: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The verdicts on a release: its sums, each population, and what no population's event covers."""
    more, facts, delta = price["repeats"], report["facts"], float(price["delta"])
    if price["version"] != 1 or price["adjacency"] not in ("add_or_remove_one", REPLACE) or not 0 < delta < 1:
        raise ValueError("Expected price.json to have version 1, a known adjacency, and delta in (0, 1).")
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
    results += _rule_of(price["parts"], price["rule"])
    for name, part in price["parts"].items():
        code, sentence = verdict(part, delta, price["adjacency"], price["claimed_by"])
        results.append((code, f"{name}: {sentence}"))
    if more["epsilon"]:
        results.append(
            (NOT_RECOMPUTED, f"repeated runs: not recomputed: epsilon {more['epsilon']!r} is charged for them")
        )
    return results


def _rule_of(parts: Mapping[str, Any], rule: str) -> list[tuple[int, str]]:
    """A failure if a rule of dpsweep's is named and the events are not its own."""
    declared = {kind for name, kind in SEARCHES.items() if name in rule.split()}
    contained = set(_types(parts)) & set(SEARCHES.values())
    known = declared or rule in SHOW_ALL
    return [(FAILS, f"rule: the events are not those of {rule}")] if known and declared != contained else []


def _types(form: object) -> Iterator[str]:
    """The type of every event and every law in a JSON value."""
    inner = form.values() if isinstance(form, dict) else form if isinstance(form, list) else ()
    if isinstance(form, dict) and "type" in form:
        yield form["type"]
    for one in inner:
        yield from _types(one)


def check_opening(opening: Mapping[str, Any], price: Mapping[str, Any], commitment: str) -> tuple[int, str]:
    """Whether an opening opens the commitment, and whether its first charge is what `price.json` has."""
    charged = opening["charged"]
    canonical = json.dumps(charged, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    digest = hashlib.sha256(DOMAIN.encode() + bytes.fromhex(opening["salt"]) + canonical).hexdigest()
    if digest != commitment:
        return FAILS, "commitment: the opening does not open it"
    first, rest = charged["charges"][0], charged["charges"][1:]
    stated = {"epsilon": price["epsilon"], "delta": price["delta"], "rule": {"name": price["rule"]}}
    stated["event"] = {name: part["event"] for name, part in price["parts"].items()}
    committed = {**{name: first[name] for name in stated}, "rule": {"name": (first["rule"] or {}).get("name")}}
    pairs = [(name, stated[name], committed[name]) for name in stated]
    pairs += [(name, price[name], charged[name]) for name in ("adjacency", "unit")]
    pairs += [
        (f"repeats' {name}", price["repeats"][name], sum(one[name] for one in rest)) for name in ("epsilon", "delta")
    ]
    unlike = [name for name, one, other in pairs if one != other and not _close(one, other)]
    if unlike:
        return FAILS, f"commitment: {' and '.join(unlike)} of price.json are not what was charged"
    return HOLDS, "commitment: holds: the ledger's charge is this one"


def _close(one: object, other: object) -> bool:
    numbers = isinstance(one, float | int) and isinstance(other, float | int)
    return numbers and math.isclose(float(str(one)), float(str(other)), rel_tol=1e-12)


def _printable(text: str) -> str:
    """The text with visible escapes of what a terminal obeys: a release may be a stranger's."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def main(arguments: Sequence[str]) -> int:
    """Prints the verdicts on the release in a folder, by default that of this file, with its opening if it is given."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    files = [folder / f"{name}.json" for name in ("price", "report", "commitment")] + [
        Path(one) for one in arguments[1:2]
    ]
    try:
        price, report, commitment, *opening = (json.loads(path.read_text()) for path in files)
        results = [check_opening(one, price, commitment["commitment"]) for one in opening] + check_release(
            price, report
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, ZeroDivisionError) as cause:
        print(_printable(f"Expected {' and '.join(map(str, files))} to be the files of a release: {cause!r}"))
        return UNREADABLE
    for _, sentence in results:
        print(_printable(sentence))
    codes = {code for code, _ in results}
    return FAILS if FAILS in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
