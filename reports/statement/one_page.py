"""The one-page privacy statement of a release, to be printed, dated and signed: what it says, in order."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedModel

COMMITTED = (
    "Ties this statement to the charges in the curator's ledger and shows nothing of them. Whoever signs can open it: "
    "the salt and the charges are on the curator's own sheet."
)
MODEL = (
    "{file}, by its SHA-256. A statement with the same commitment and another model contradicts this one: its charges "
    "pay for one."
)
SIGNED = ("Date", "Name and office", "Signature")
"""The lines that a person fills in."""


@dataclass(frozen=True, kw_only=True)
class StatementRow:
    """One row: its label, its text, and points below it. `code` is set in letters of equal width."""

    label: str
    text: str = ""
    points: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class OnePage:
    """The statement: what it is about, the claim in large letters, the rows, and the lines to sign."""

    title: str
    about: str
    epsilon: str
    delta: str
    claim: str
    rows: tuple[StatementRow, ...]
    signed: tuple[str, ...] = SIGNED

    @property
    def has_claim(self) -> bool:
        """Whether something is claimed: not of data that were declared public."""
        return bool(self.epsilon)


def one_page(claim: ReleasedClaim) -> OnePage:
    """The statement on a claim; data declared public have none, and the statement says so."""
    rows = (
        StatementRow(label="Protected", text=claim.line("Unit and neighbours")),
        StatementRow(label="Selection rule", text=f"{claim.rule.replace('_', ' ').capitalize()}: {claim.discloses}."),
        StatementRow(label="Covered", text=claim.line("Covered")),
        StatementRow(label="Outcome", text=claim.outcome),
        StatementRow(label="Accountants", text=claim.line("Accountants")),
        StatementRow(label="Meaning", text=" ".join(claim.cautions)),
        StatementRow(label="The account", text=claim.reserved_in_words),
        StatementRow(label="Not covered", points=claim.not_covered),
        StatementRow(label="Trust", text=claim.line("Trust")),
        row_of_commitment(claim.commitment),
        *row_of_model(claim.model),
    )
    return OnePage(
        title=f"Privacy statement: {claim.account}",
        about=claim.headline,
        epsilon="" if claim.nobody else epsilon_up(claim.epsilon),
        delta="" if claim.nobody else delta_up(claim.delta),
        claim=claim.line("Claim"),
        rows=tuple(row for row in rows if row.text or row.points),
    )


def row_of_commitment(commitment: str) -> StatementRow:
    """The row with the commitment."""
    return StatementRow(label="Commitment", text=COMMITTED, code=commitment)


def row_of_model(model: ReleasedModel | None) -> tuple[StatementRow, ...]:
    """The row that names the released model; none where the release has none."""
    return (
        () if model is None else (StatementRow(label="Model", text=MODEL.format(file=model.file), code=model.sha256),)
    )
