"""What a release publishes so that others recompute its price: the event of each population, its claim, and no more.

The event is what was charged: sampler, noise, steps and selection rule, with the law of a secret number of tries. All
of it was fixed before a record was read. The draw itself, and all that happened in the search, is not in it.
"""

from __future__ import annotations

from typing import Any

from dpsweep.accounting.json_files import in_words
from dpsweep.accounting.records.commitment import ChargedSweep
from dpsweep.reports.content.charges import Bill, exact_sum

VERSION = 1
PRICE_FILE, PROGRAM_FILE = "price.json", "price_check.py"
"""The names in a release of the claim with its event, and of the program that recomputes it."""

PROGRAM = "dpsweep.reports.recomputation.price_check"
"""The module whose source, with the modules that it imports, is the program."""


def released_price(charged: ChargedSweep, bill: Bill) -> dict[str, Any] | None:
    """`price.json`: the first charge's event and claim by population, and the sum of later charges for repeats.

    None where the charge has no event, hence nothing can be recomputed.
    """
    first, claim = charged.charges[0], bill.charges[0]
    if first["event"] is None:
        return None
    form: dict[str, Any] = in_words(
        {
            "version": VERSION,
            "rule": (first["rule"] or {}).get("name"),
            "unit": charged.unit,
            "adjacency": charged.adjacency,
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "claimed_by": claim.claimed_by,
            "parts": {
                name: {"epsilon": claim.parts.get(name, claim.epsilon), "event": event}
                for name, event in first["event"].items()
            },
            "repeats": {
                "epsilon": exact_sum(one.epsilon for one in bill.charges[1:]),
                "delta": exact_sum(one.delta for one in bill.charges[1:]),
            },
        }
    )
    return form
