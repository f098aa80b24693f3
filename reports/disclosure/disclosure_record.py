"""The disclosure record of a release for a trusted research environment: its criteria, and the package they apply to.

*Source*: SATRE specification 2.0.0, requirements 3.3.07 (outputs that cannot be checked by hand, such as the weights of
trained models) and 3.3.09 (a machine-readable record of the criteria applied to each released package). The record
names the package by the SHA-256 of its files, so it is tied to one package; it is no part of that package.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.json_files import in_words
from dpsweep.reports.content.provenance import program_version
from dpsweep.reports.pages.released_package import ReleasedPackage
from dpsweep.reports.statement.released_claim import ReleasedClaim

SCHEMA = 1
ADDRESSES = (
    (
        "3.3.07",
        "The released models cannot be checked by hand. The control is differential privacy of the whole search that "
        "made them, with the criteria below, charged to a budget before it ran.",
    ),
    (
        "3.3.09",
        "This is the machine-readable record of the criteria that were applied to the package named below.",
    ),
)
_FILES = "SHA-256 of the canonical JSON (sorted keys, no spaces) of `files`, which has the SHA-256 of each file"


@dataclass(frozen=True, kw_only=True)
class DisclosureRecord:
    """The record as JSON; data declared public have no criteria, and the record says so."""

    file: str = "disclosure_record.json"

    def text(self, package: ReleasedPackage) -> str:
        """The record."""
        return json.dumps(in_words(record_of(package)), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def record_of(package: ReleasedPackage) -> dict[str, Any]:
    """The record as plain values."""
    claim = package.claim
    return {
        "record": "dpsweep disclosure record",
        "schema": SCHEMA,
        "addresses": [{"standard": "SATRE 2.0.0", "requirement": number, "how": how} for number, how in ADDRESSES],
        "released_on": claim.day.isoformat(),
        "package": {"sha256": package.digest, "made_of": _FILES, "files": dict(package.files)},
        "output": {"data_set": claim.account, "search": claim.description},
        "criteria": {"none": claim.nobody} if claim.nobody else _criteria(claim),
        "commitment": {"sha256": claim.commitment, "covers": "what the ledger charged for this search"},
        "statement": [{"topic": one.topic, "text": one.text, "level": one.level.value} for one in claim.lines],
        "not_covered": list(claim.not_covered),
        "versions": {"dpsweep": program_version(), "python": platform.python_version()},
    }


def _criteria(claim: ReleasedClaim) -> dict[str, Any]:
    """The definition that was applied, its parameters, and the account that it was charged to."""
    return {
        "definition": "(epsilon, delta)-differential privacy of the whole search",
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "adjacency": claim.adjacency.value,
        "rule": {"name": claim.rule, "discloses": claim.discloses},
        "budget": {
            "account": claim.account,
            "epsilon": claim.budget[0],
            "delta": claim.budget[1],
            "reserved_epsilon": claim.reserved[0],
            "reserved_delta": claim.reserved[1],
            "adds_up_by": claim.policy,
        },
        "accountants": {"claimed_by": list(claim.claimed_by), "upper_bounds": dict(claim.upper_bounds)},
        "cautions": list(claim.cautions),
    }
