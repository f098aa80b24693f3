"""A copy of a ledger that goes on as another one, beside the ledger that it is a copy of.

The copy gets an identity of its own, and with it a memory and private stores of its own. *Guarantee*: no charge in the
copy trains what it may have trained in the original. The copy cannot know which attempts the original began since, so
every attempt that a charge in it pays for and that has not ended in it counts as begun and ended elsewhere. Results
that had ended stay paid and can be verified, reported and released.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.chain.entries import Kind
from dpsweep.accounting.chain.hash_chain import Lines, new_identity
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.account import Attempts, append_body
from dpsweep.accounting.ledger.bodies import Ended, Identified, Launched, Started
from dpsweep.accounting.ledger.known_places import identity_of
from dpsweep.accounting.ledger.private_store import new_nonce

ELSEWHERE = "elsewhere"
"""The name under which spare attempts count as used: it is not known for which trial."""


def give_new_identity(lines: Lines, name: str) -> str:
    """Spends what the original may have begun and gives the ledger a new identity; returns a sentence on it."""
    former = identity_of(lines)
    spent = use_up_attempts(lines)
    void_launches(lines)
    accounts = lines.accounts()
    if former is None or not accounts:
        raise LedgerDamaged(f"Expected {name} to have a line.")
    append_body(lines, accounts[0], Identified(identity=new_identity(), former=former))
    return (
        f"{name} is another ledger from now on, with private stores of its own: {spent} attempts that it had paid for "
        "and that had not ended in it count as used, since the ledger that it is a copy of may have begun them."
    )


def use_up_attempts(lines: Lines) -> int:
    """Starts and ends every attempt that is paid for and has not ended; returns their number."""
    return sum(_use_up_plan(lines, account, plan) for account, plan in _plans(lines))


def void_launches(lines: Lines) -> None:
    """Launches every plan by a nonce that no private store has, so that no receipt and no open search is valid.

    Also those without a launch: a hidden search whose coordinator was killed before its launch has stored its draw.
    """
    for account, plan in _plans(lines):
        append_body(lines, account, Launched(nonce=new_nonce()), plan=plan)


def _plans(lines: Lines) -> tuple[tuple[str, str], ...]:
    """The charged plans, each after its account."""
    return tuple(dict.fromkeys((entry.account, entry.plan) for entry in lines.of_kind(Kind.CHARGE)))


def _use_up_plan(lines: Lines, account: str, plan: str) -> int:
    """Starts what is still paid for, and ends whatever is open; returns the number of attempts."""
    for body in _starts(Attempts.of(lines.of(account, plan))):
        append_body(lines, account, body, plan=plan)
    still_open = Attempts.of(lines.of(account, plan)).open_attempts()
    for trial, attempt, resume in still_open:
        end = Ended(trial=trial, attempt=attempt, resume=resume, realised={"status": "used elsewhere"})
        append_body(lines, account, end, plan=plan)
    return len(still_open)


def _starts(own: Attempts) -> Iterator[Started]:
    """A start of every attempt that is paid for and was not started."""
    left = {trial: own.covered[trial] - own.started[trial] for trial in own.covered}
    left[ELSEWHERE] = own.spares
    for trial, count in left.items():
        first = own.started[trial] + 1
        for attempt in range(first, first + count):
            yield Started(trial=trial, attempt=attempt, charge=own.charge_of(trial, attempt).digest)
