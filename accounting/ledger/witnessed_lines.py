"""The lines of a ledger, which a witness sees before they are committed, and a ledger that is behind its witness.

A transaction moves the witness to its lines, then commits. So a ledger with a witness takes no line without it, of
whatever kind: a line in between would keep announced ones from following. Later transactions compare the last line with
the witness's head:

* They are the same: the ledger is in step.
* The witness is ahead by one transaction that follows from the ledger's last line: it was announced and not committed,
  by a command that was killed or on a machine that was restored since. These very lines are appended. What they start
  counts as having begun: a start has no receipt, a launch that the private store does not know voids all that is open,
  a resumed attempt ends, and a plan that was released is launched by a nonce that no store has, and is released again
  with the announced files alone.
* The witness is ahead in any other way: the machine was restored, and nothing is charged, launched or released.
  `dpsweep budget restore` charges all that the witness knows and the ledger lost, if the ledger's last line is an
  earlier head of the witness, and counts every attempt as used that has not ended.
* The witness's head is an inner line of the ledger: the witness is an older copy, or was replaced by another one.

The first transaction that sees a witness has a line of kind `witness`. From then on the ledger requires its witness.
Starts of the tries of a hidden search are no lines of the ledger, so the witness moves at its charge, at its start, at
each start of a coordinator and at its release alone: its moves do not depend on the number of tries. So a state from
within the last launch of a hidden search is in step, and its witness cannot tell it from a crash. The same holds for a
state from within the last batch of any other launch: a batch's attempts are started before it and settled at its end.
A machine restored to before the ledger's first line, or to before its `witness` line with the variable forgotten too,
has nothing that names a witness.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.chain.hash_chain import Kind, Lines
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.account import append_line_with_balance
from dpsweep.accounting.ledger.bodies import (
    Ended,
    Launched,
    Released,
    ReleaseManifest,
    Resumed,
    Witnessed,
    body_from_json,
    witness_name_in_entry,
)
from dpsweep.accounting.ledger.private_store import new_nonce
from dpsweep.accounting.ledger.remembered_ends import Memory, present_ledger_identity
from dpsweep.accounting.ledger.witness import VARIABLE, Witness, WitnessedState


@dataclass(frozen=True, kw_only=True)
class WitnessedLines:
    """The lines of a ledger within one transaction, and the witness that is named; `name` is the ledger's in messages.

    `before` is the digest of the last line before this transaction, None without one, and `declared` says whether a
    line before it says that the ledger has a witness.
    """

    lines: Lines
    witness: Witness | None
    name: str
    before: str | None
    declared: bool

    @classmethod
    def for_new_transaction(cls, lines: Lines, witness: Witness | None, name: str) -> WitnessedLines:
        """The lines at the beginning of a transaction."""
        declared = lines.last_line_of_kind(Kind.WITNESS) is not None
        return cls(lines=lines, witness=witness, name=name, before=last_digest(lines), declared=declared)

    def witness_state_if_ahead(self) -> WitnessedState | None:
        """What the witness holds, if that is not the ledger's last line; None if they are in step.

        Raises `LedgerDamaged` if the ledger has a witness and the one that is named holds nothing of it, or if the
        witness is the older one of the two.
        """
        identity = present_ledger_identity(self.lines)
        if self.witness is None or identity is None:
            return None
        state = self.witness.read_state(identity)
        if state is None and self.declared:
            raise LedgerDamaged(
                f"The witness {self.witness.name} ({VARIABLE}) holds nothing of the ledger {self.name}, whose lines "
                "say that it has one: it is another witness, or it was lost. Name the right one; if it is lost for "
                "good, `dpsweep budget restore --new-witness` begins another one, on the record."
            )
        if state is None or state.head == self.before:
            return None
        self._check_witness_is_not_older(self.witness, state)
        return state

    def _check_witness_is_not_older(self, witness: Witness, state: WitnessedState) -> None:
        if self.lines.has_line_with_digest(state.head):
            last = witness_name_in_entry(self.lines.last_line_of_kind(Kind.WITNESS))
            raise LedgerDamaged(
                f"The witness {witness.name} ({VARIABLE}) is older than the ledger {self.name}, which has more lines: "
                f"its disk was restored, or it is no longer the ledger's witness, which was {last or 'none'} at last. "
                "Name that one, or a new file with `dpsweep budget restore --new-witness`."
            )

    def append_announced_lines(self) -> WitnessedState | None:
        """Appends the lines that were announced and not committed; what the witness holds if others are missing too."""
        state = self.witness_state_if_ahead()
        if state is None or state.rows[0]["previous"] != self.lines.end_of_chain().head:
            return state
        self.lines.append_copied_rows(state.rows)
        bodies = [(row, body_from_json(row["kind"], json.loads(row["body"]))) for row in state.rows]
        ended = {body.session_key for _, body in bodies if isinstance(body, Ended)}
        launched = {row["plan"] for row, body in bodies if isinstance(body, Launched)}
        pinned = {body.manifest for _, body in bodies if isinstance(body, Witnessed)}
        for row, body in bodies:
            if isinstance(body, Resumed) and (key := (body.trial, body.attempt, body.resume)) not in ended:
                trial, attempt, resume = key
                end = Ended(trial=trial, attempt=attempt, resume=resume, realised={"status": "begun elsewhere"})
                self._append_body_to_account(row["account"], row["plan"], end)
            kinds = {entry.kind for entry in self.lines.lines_of_account(row["account"], row["plan"])}
            if isinstance(body, Released) and row["plan"] not in launched and Kind.LAUNCH in kinds:
                self._append_body_to_account(row["account"], row["plan"], Launched(nonce=new_nonce()))
            if isinstance(body, ReleaseManifest) and self.witness is not None and body.manifest not in pinned:
                seen = Witnessed(witness=self.witness.name, folder=body.folder, manifest=body.manifest)
                self._append_body_to_account(row["account"], row["plan"], seen)
        if self.lines.rows_appended_in_transaction:
            rows = (*state.rows, *self.lines.rows_appended_in_transaction)
            self._replace_witness_state_with_rows(state, rows, replace(state.memory, end=self.lines.end_of_chain()))
        return None

    def declare_witness_if_new(self) -> None:
        """Adds the line that the ledger has a witness, in the first transaction that a witness sees.

        Raises `BadInput` if the ledger has a witness and none is named.
        """
        if not self.lines.rows_appended_in_transaction:
            return
        if self.witness is None and self.declared:
            raise BadInput(
                f"Expected {VARIABLE} to name the witness of {self.name}: its lines say that it has one, and without "
                "it no line is added: nothing is charged, launched or released."
            )
        if self.witness is not None and not self.declared:
            self.append_witness_line()

    def append_witness_line(self) -> None:
        """Adds the line that the ledger has this witness."""
        if self.witness is not None:
            self._append_body_to_account(self.lines.account_names()[0], "", Witnessed(witness=self.witness.name))

    def announce_to_witness(self, later: Memory) -> None:
        """Moves the witness from the last line before this transaction to its lines, if it has some.

        `later` is what a machine remembers at their end. Raises `LedgerDamaged` if the witness has seen other lines.
        """
        if self.witness is None or not self.lines.rows_appended_in_transaction:
            return
        state = self.witness.read_state(present_ledger_identity(self.lines) or "")
        if (None if state is None else state.head) != (self.before if self.declared else None):
            if state is not None:
                self._check_witness_is_not_older(self.witness, state)
            raise LedgerDamaged(behind_witness_message(self.witness, self.name))
        self.replace_witness_state(state, later)

    def replace_witness_state(self, state: WitnessedState | None, later: Memory) -> None:
        """Moves the witness from this state to the lines of this transaction."""
        if rows := self.lines.rows_appended_in_transaction:
            self._replace_witness_state_with_rows(state, rows, later)

    def _replace_witness_state_with_rows(
        self, state: WitnessedState | None, rows: Sequence[Mapping[str, Any]], later: Memory
    ) -> None:
        head, identity = last_digest(self.lines), present_ledger_identity(self.lines)
        if self.witness is None or head is None or identity is None:
            return
        known = None if state is None else state.head
        heads = (self.before,) if state is None else (*state.earlier, state.head)
        earlier = tuple(head for head in heads if head is not None)
        if not self.witness.replace_state_if_unchanged(
            identity, known, WitnessedState(head=head, rows=rows, earlier=earlier, memory=later)
        ):
            raise LedgerDamaged(
                f"The witness {self.witness.name} ({VARIABLE}) was moved by another command on the ledger {self.name}, "
                "or on a copy of it. The same command compares them again."
            )

    def _append_body_to_account(self, account: str, plan: str, body: Ended | Launched | Witnessed) -> None:
        if self.lines.last_line_of_account(account) is not None:
            append_line_with_balance(self.lines, account, body, plan=plan)


def last_digest(lines: Lines) -> str | None:
    """The digest of the ledger's last line, None without one."""
    end = lines.end_of_chain()
    return end.head if end.entries else None


def append_announced_lines_to_chain(chain: Chain, witness: Witness | None) -> WitnessedState | None:
    """Appends lines that were announced and not committed; what the witness holds if the ledger lacks others too."""
    if witness is None:
        return None
    with chain.read_transaction() as lines:
        in_step = (
            lines is None
            or WitnessedLines.for_new_transaction(lines, witness, chain.name).witness_state_if_ahead() is None
        )
    if in_step:
        return None
    with chain.write_transaction() as lines:
        return (
            None
            if lines is None
            else WitnessedLines.for_new_transaction(lines, witness, chain.name).append_announced_lines()
        )


def behind_witness_message(witness: Witness, ledger: str) -> str:
    """The message for a ledger that lacks lines that its witness has seen."""
    return (
        f"The witness {witness.name} ({VARIABLE}) has seen lines that the ledger {ledger} lacks: this machine, or the "
        "ledger, was restored from a backup or a snapshot. Nothing is charged, launched or released. `dpsweep budget "
        "restore` charges what the witness knows, and counts every attempt as used that has not ended."
    )
