"""The salted commitment to what was charged for a sweep: a release shows it, and the curator can open it.

A release names a price, and its reader has no ledger. The commitment ties the release to the charges behind the price,
and shows nothing of them: it is the SHA-256 of a domain tag, a secret salt of 32 bytes, and the canonical JSON of the
charges. Invariants:

* Hiding: the salt is HMAC-SHA256 of the charges under a secret key, so without the key a commitment is as good as
  random, also for a reader who can guess every charge.
* Binding: tag and salt have fixed lengths, so two openings of one commitment are a collision of SHA-256.
* The same charges give the same commitment, in every copy of the ledger, as long as the key is the same. What is
  committed to has no line number, no digest of the chain, no time, and nothing of how a search went.
* An opening, which has the salt, is for the curator, and for those to whom the curator shows the charges.

Rules for changing this file: any change of the committed form raises the number in `DOMAIN`. Openings already made are
read for ever.
*Source*: commitments from a collision-resistant hash function; for the salt, RFC 2104 and Bellare, CRYPTO 2006.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from dpsweep.accounting.chain.hash_chain import Kind
from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import replace_infinities_by_words, write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.bodies import require_plan_charge_body
from dpsweep.accounting.ledger.data_fingerprint import Key
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PRIVATE, PrivateStore
from dpsweep.accounting.validation import require_json_object

DOMAIN = "dpsweep commitment 2"
COMMITMENT_FILE = "commitment.json"
"""The name of the commitment in a release."""

OPENING_FILE = "opening.json"
"""The name of the opening in the curator's folder."""

SPARE_KEY = "commitment.key"
"""The key of salts beside a ledger's private stores, if the ledger's own key is not on this machine."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class ChargedSweep(Stored):
    """What the ledger charged for a plan: for each charge its event, rule, epsilon, delta and claiming accountant."""

    account: str
    plan: str
    adjacency: str
    unit: str
    charges: tuple[Mapping[str, Any], ...]

    @classmethod
    def from_statement(cls, statement: Statement, plan: str) -> ChargedSweep:
        """The charges of a plan on its account, in the ledger's order."""
        own = [
            require_plan_charge_body(entry)
            for entry in statement.charges
            if entry.plan == plan and entry.kind == Kind.CHARGE
        ]
        return cls(
            account=statement.account,
            plan=plan,
            adjacency=statement.budget.adjacency.value,
            unit=statement.budget.unit,
            charges=tuple(
                replace_infinities_by_words(
                    {
                        "event": charge.event,
                        "rule": charge.record.get("rule"),
                        "epsilon": charge.epsilon,
                        "delta": charge.delta,
                        "claimed_by": charge.charge_facts.claimed_by,
                    }
                )
                for charge in own
            ),
        )

    @property
    def canonical_json(self) -> bytes:
        """The canonical JSON: sorted keys, no spaces, ASCII."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")

    def is_beginning_of(self, other: ChargedSweep) -> bool:
        """Whether the other value has these charges, and perhaps later ones of the same plan."""
        return (
            (self.account, self.plan, self.adjacency, self.unit)
            == (other.account, other.plan, other.adjacency, other.unit)
            and bool(self.charges)
            and self.charges == other.charges[: len(self.charges)]
        )


def _check_secret_digits(name: str, value: str) -> None:
    if _DIGEST.fullmatch(value) is None:
        raise ValueError(f"Expected {name} to be 64 hexadecimal digits.")


@dataclass(frozen=True, kw_only=True)
class Opening(Stored):
    """The salt of a commitment, in hexadecimal digits, and the charges that it commits to."""

    salt: Annotated[str, _check_secret_digits] = field(repr=False)
    charged: ChargedSweep

    @classmethod
    def from_ledger(cls, ledger: Ledger, account: str, plan: str) -> Opening:
        """The opening of the commitment to a plan's charges; raises `BadInput` if the key of salts is damaged."""
        charges = ChargedSweep.from_statement(ledger.statement(account), plan)
        return cls(
            salt=_salt_deriving_key(ledger, account, plan).salt_for_message(charges.canonical_json).hex(),
            charged=charges,
        )

    @property
    def commitment(self) -> str:
        """The commitment, in hexadecimal digits."""
        return sha256(DOMAIN.encode() + bytes.fromhex(self.salt) + self.charged.canonical_json).hexdigest()

    def write(self, folder: Path) -> None:
        """Writes the opening into the curator's folder, readable by its owner alone."""
        about = {"domain": DOMAIN, "commitment": self.commitment}
        write_json(folder / OPENING_FILE, about | self.to_json(), mode=PRIVATE)

    @classmethod
    def read(cls, folder: Path) -> Opening | None:
        """Reads an opening, None if there is none; raises `BadInput` for a damaged file."""
        return parse_json_file_or_none(
            folder / OPENING_FILE, lambda form: cls.from_json({name: form[name] for name in ("salt", "charged")})
        )

    def check_commitment_and_charges(self, commitment: str, ledger: Ledger) -> None:
        """Checks the opening against a commitment and against the ledger.

        Raises `ContractBroken` if the commitment is another one, or if the ledger has no such charges. Charges that the
        ledger added to the same plan since are no contradiction.
        """
        if self.commitment != commitment:
            raise ContractBroken("The opening does not open this commitment: its salt or its charges are others.")
        if not self.charged.is_beginning_of(
            ChargedSweep.from_statement(ledger.statement(self.charged.account), self.charged.plan)
        ):
            raise ContractBroken(
                f"The charges of the opening are not those that {ledger.name} holds for plan {self.charged.plan}."
            )


def write_commitment(folder: Path, commitment: str) -> None:
    """Writes a commitment into a release, with what it is made of and nothing of its opening."""
    made_of = f"SHA-256 of '{DOMAIN}', 32 secret bytes, and the canonical JSON of what was charged"
    write_json(folder / COMMITMENT_FILE, {"commitment": commitment, "made_of": made_of})


def read_commitment(folder: Path) -> str | None:
    """The commitment in a release, None if it has none; raises `BadInput` for a damaged file."""
    form = parse_json_file_or_none(folder / COMMITMENT_FILE, lambda form: require_json_object(COMMITMENT_FILE, form))
    if form is None:
        return None
    if not isinstance(commitment := form.get("commitment"), str) or _DIGEST.fullmatch(commitment) is None:
        raise BadInput(f"Expected {folder / COMMITMENT_FILE} to hold a commitment of 64 hexadecimal digits.")
    return commitment


def _salt_deriving_key(ledger: Ledger, account: str, plan: str) -> Key:
    """The key of the ledger's fingerprints, or, where it is lost, a key beside the private stores.

    A key of fingerprints is created only for a ledger without data sets, as `sweeper/coordinator/preflight.py` does.
    """
    path = Key.user_key_path()
    if ledger.account_and_fingerprint_pairs():
        return Key.read(path) or Key.read_or_create(
            PrivateStore.for_plan(ledger, account, plan).root.parent / SPARE_KEY
        )
    return Key.read_or_create(path)
