"""What goes with a released page: one-page statement, recomputable price, and documents on request.

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

from dpsweep.accounting.codec import plain
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.statement import charge_facts
from dpsweep.accounting.records.released_files import CONFIG_FILE
from dpsweep.reports.content.facts import Bill, sum_in_exact_decimals
from dpsweep.reports.pages.curator_page import Page
from dpsweep.reports.pages.prediction_code import source_of_module_and_imports
from dpsweep.reports.pages.templates import fill_template, write_file_in_one_rename
from dpsweep.reports.statement.one_page import one_page_statement, pdf_bytes_of_page, row_font_size_that_fits
from dpsweep.reports.statement.released_claim import ReleasedClaim

VERSION = 1
PRICE_FILE, PROGRAM_FILE = "price.json", "price_check.py"
"""The names in a release of the claim with its event, and of the program that recomputes it."""

PROGRAM = "dpsweep.reports.recomputation.price_check"
"""The module whose source, with the modules that it imports, is the program."""


def price_json_fields(budget: Guarantee, bill: Bill) -> dict[str, Any] | None:
    """`price.json`: the first charge's event and claim by population, and the sum of later charges for repeats.

    `budget` is that of the account, which fixes unit and neighbours. None where the charge has no event, hence nothing
    can be recomputed.
    """
    claim = bill.charges[0]
    if claim.event is None:
        return None
    form: dict[str, Any] = plain(
        {
            "version": VERSION,
            "rule": (claim.record.get("rule") or {}).get("name"),
            "unit": budget.unit,
            "adjacency": budget.adjacency.value,
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "claimed_by": charge_facts(claim).claimed_by,
            "total_variation": bill.total_variation,
            "parts": {
                name: {"epsilon": charge_facts(claim).parts.get(name, claim.epsilon), "event": event}
                for name, event in claim.event.items()
            },
            "repeats": {
                "epsilon": sum_in_exact_decimals(one.epsilon for one in bill.charges[1:]),
                "delta": sum_in_exact_decimals(one.delta for one in bill.charges[1:]),
            },
        }
    )
    return form


STATEMENT_FILE, STATEMENT_PDF = "statement.html", "statement.pdf"
PROGRAM_HEAD = '''"""Recomputes the price that a release of dpsweep claims: `python price_check.py [FOLDER]`.

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
    def from_release_folder(cls, page: Page, claim: ReleasedClaim, folder: Path) -> ReleasedPackage:
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

    def text(self, package: ReleasedPackage) -> str:
        """The document."""


def write_statement(claim: ReleasedClaim, folder: Path) -> None:
    """Writes the one-page statement, as a page and as a PDF file, into a release."""
    page = one_page_statement(claim)
    write_file_in_one_rename(
        folder / STATEMENT_FILE,
        fill_template("statement.html.j2", page=page, size=row_font_size_that_fits(page)).encode(),
    )
    write_file_in_one_rename(folder / STATEMENT_PDF, pdf_bytes_of_page(page))


def write_price_and_program(budget: Guarantee, bill: Bill, folder: Path) -> None:
    """Writes the event of the price and the program that recomputes it into a release, if the charge has an event."""
    price = price_json_fields(budget, bill)
    if price is not None:
        write_json(folder / PRICE_FILE, price)
        write_file_in_one_rename(folder / PROGRAM_FILE, price_check_program_text().encode())


def price_check_program_text() -> str:
    """The text of the program that recomputes a price: the same in every release of a version of dpsweep."""
    return source_of_module_and_imports(PROGRAM, PROGRAM_HEAD)


def write_documents_in_formats(package: ReleasedPackage, formats: Iterable[ReleaseFormat], folder: Path) -> None:
    """Writes the documents into a release."""
    for one in formats:
        write_file_in_one_rename(folder / one.file, one.text(package).encode())
