"""What goes with a released page: commitment, one-page statement, recomputable price, and documents on request.

`ReleaseFormat` is the interface of these documents; `reports/disclosure/formats.py` finds them by name. A document is
written from a `ReleasedPackage` alone, so it cannot say more than the release does. The price is recomputed from the
event that was charged: sampler, noise, steps and selection rule, with the law of a secret number of tries. All of it
was fixed before a record was read. The draw itself, and all that happened in the search, is not in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import yaml

from dpsweep.accounting.durable_files import made_folder, replace_infinities_by_words, write_json
from dpsweep.accounting.records.commitment import ChargedSweep, Opening, write_commitment
from dpsweep.accounting.records.released_files import CONFIG_FILE
from dpsweep.accounting.validation import refuse_link
from dpsweep.reports.content.facts import Bill, exact_sum
from dpsweep.reports.pages.curator_page import Page
from dpsweep.reports.pages.prediction_code import code_of
from dpsweep.reports.pages.templates import fill_template, store
from dpsweep.reports.statement.one_page import one_page, pdf_of, size_for
from dpsweep.reports.statement.released_claim import ReleasedClaim

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
    form: dict[str, Any] = replace_infinities_by_words(
        {
            "version": VERSION,
            "rule": (first["rule"] or {}).get("name"),
            "unit": charged.unit,
            "adjacency": charged.adjacency,
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "claimed_by": claim.facts.claimed_by,
            "parts": {
                name: {"epsilon": claim.facts.parts.get(name, claim.epsilon), "event": event}
                for name, event in first["event"].items()
            },
            "repeats": {
                "epsilon": exact_sum(one.epsilon for one in bill.charges[1:]),
                "delta": exact_sum(one.delta for one in bill.charges[1:]),
            },
        }
    )
    return form


STATEMENT_FILE, STATEMENT_PDF = "statement.html", "statement.pdf"
PROGRAM_HEAD = '''"""Recomputes the price that a release of dpsweep claims: `python price_check.py [FOLDER] [OPENING]`.

Needs Python and numpy, and nothing of dpsweep. In the order of this file: losses of Gaussian steps on a lattice, the
best of several tries, the price of an event, and the verdicts on a release. How to read them stands before the last.
"""

from __future__ import annotations
'''


@dataclass(frozen=True, kw_only=True)
class ReleasedPackage:
    """A release: its page, its claim, the winner's configuration if it is released, and each file's SHA-256."""

    page: Page
    claim: ReleasedClaim
    config: Mapping[str, Any] | None
    files: Mapping[str, str]

    @classmethod
    def of(cls, page: Page, claim: ReleasedClaim, folder: Path) -> ReleasedPackage:
        """The package of the files that lie in a folder."""
        config = folder / CONFIG_FILE
        return cls(
            page=page,
            claim=claim,
            config=yaml.safe_load(config.read_text()) if config.is_file() else None,
            files={path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())},
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical JSON of `files`: one name for all of them."""
        return sha256(json.dumps(self.files, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class ReleaseFormat(Protocol):
    """A document in a standard form that is handed on with a release."""

    @property
    def file(self) -> str:
        """The name of the file in `release/`."""
        ...

    def text(self, package: ReleasedPackage) -> str:
        """The document."""
        ...


def write_statement(claim: ReleasedClaim, folder: Path) -> None:
    """Writes the commitment and the one-page statement, as a page and as a PDF file, into a release."""
    page = one_page(claim)
    write_commitment(folder, claim.commitment)
    store(folder / STATEMENT_FILE, fill_template("statement.html.j2", page=page, size=size_for(page)).encode())
    store(folder / STATEMENT_PDF, pdf_of(page))


def write_price(opening: Opening, bill: Bill, folder: Path) -> None:
    """Writes the event of the price and the program that recomputes it into a release, if the charge has an event."""
    price = released_price(opening.charged, bill)
    if price is not None:
        write_json(folder / PRICE_FILE, price)
        store(folder / PROGRAM_FILE, price_program().encode())


def price_program() -> str:
    """The text of the program that recomputes a price: the same in every release of a version of dpsweep."""
    return code_of(PROGRAM, PROGRAM_HEAD)


def write_formats(package: ReleasedPackage, formats: Iterable[ReleaseFormat], folder: Path) -> None:
    """Writes the documents into a release."""
    for one in formats:
        store(folder / one.file, one.text(package).encode())


def write_opening(opening: Opening, curator: Path) -> None:
    """Writes the opening of the commitment into the curator's folder, never into a release."""
    made_folder(refuse_link(curator))
    opening.write(curator)
