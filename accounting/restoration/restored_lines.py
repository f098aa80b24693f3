"""One restoration of a ledger, within one write transaction: what is put back, charged and recorded again.

Sums may exceed the budget, since the costs have already happened. An entry is never edited, and no amount falls.

A copy of a ledger may go on as another one, beside the ledger that it is a copy of. It gets an identity of its own,
and with it a memory and private stores of its own. *Guarantee*: no charge in the copy trains what it may have trained
in the original. The copy cannot know which attempts the original began since, so every attempt that a charge in it
pays for and that has not ended in it counts as begun and ended elsewhere. Results that had ended stay paid and can be
verified, reported and released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import End, Kind, Lines, random_ledger_identity
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.codec import shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.account import Attempts, Balance, append_line_with_balance
from dpsweep.accounting.ledger.bodies import (
    Body,
    Closed,
    Ended,
    Identified,
    Launched,
    Opened,
    Raised,
    Restored,
    Started,
    body_from_json,
    read_body,
)
from dpsweep.accounting.ledger.composition_policy import Addition, float_rounded_up
from dpsweep.accounting.ledger.private_store import new_nonce
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.ledger.remembered_ends import (
    FACTS,
    Memory,
    RememberedEnd,
    all_ledger_identities,
    digests_of_lost_chain,
    present_ledger_identity,
)
from dpsweep.accounting.ledger.witness import WitnessedState
from dpsweep.accounting.ledger.witnessed_lines import WitnessedLines, last_digest
from dpsweep.accounting.restoration.lost_amounts import (
    Base,
    Lost,
    balance_raised_to_amounts,
    balances_now_and_at_remembered_entry,
    iterate_account_losses,
)
from dpsweep.accounting.validation import turn_read_errors_into_refusal

ELSEWHERE = "elsewhere"
"""The name under which spare attempts count as used: it is not known for which trial."""


def give_new_identity_and_use_up_attempts(lines: Lines, name: str) -> str:
    """Spends what the original may have begun and gives the ledger a new identity; returns a sentence on it."""
    former = present_ledger_identity(lines)
    spent = use_up_unended_attempts(lines)
    invalidate_receipts_and_open_searches(lines)
    accounts = lines.account_names()
    if former is None or not accounts:
        raise LedgerDamaged(f"Expected {name} to have a line.")
    append_line_with_balance(lines, accounts[0], Identified(identity=random_ledger_identity(), former=former))
    return (
        f"{name} is another ledger from now on, with private stores of its own: {spent} attempts that it had paid for "
        "and that had not ended in it count as used, since the ledger that it is a copy of may have begun them."
    )


def use_up_unended_attempts(lines: Lines) -> int:
    """Starts and ends every attempt that is paid for and has not ended; returns their number."""
    return sum(
        _use_up_attempts_of_plan(lines, account, plan) for account, plan in _pairs_of_account_and_charged_plan(lines)
    )


def invalidate_receipts_and_open_searches(lines: Lines) -> None:
    """Launches every plan by a nonce that no private store has, so that no receipt and no open search is valid.

    Also those without a launch: a hidden search whose coordinator was killed before its launch has stored its draw.
    """
    for account, plan in _pairs_of_account_and_charged_plan(lines):
        append_line_with_balance(lines, account, Launched(nonce=new_nonce()), plan=plan)


def _pairs_of_account_and_charged_plan(lines: Lines) -> tuple[tuple[str, str], ...]:
    """The charged plans, each after its account."""
    return tuple(dict.fromkeys((entry.account, entry.plan) for entry in lines.lines_of_kind(Kind.CHARGE)))


def _use_up_attempts_of_plan(lines: Lines, account: str, plan: str) -> int:
    """Starts what is still paid for, and ends whatever is open; returns the number of attempts."""
    for body in _starts_of_unstarted_paid_attempts(Attempts.from_entries(lines.lines_of_account(account, plan))):
        append_line_with_balance(lines, account, body, plan=plan)
    still_open = Attempts.from_entries(lines.lines_of_account(account, plan)).last_sessions_without_final_end()
    for trial, attempt, resume in still_open:
        end = Ended(trial=trial, attempt=attempt, resume=resume, realised={"status": "used elsewhere"})
        append_line_with_balance(lines, account, end, plan=plan)
    return len(still_open)


def _starts_of_unstarted_paid_attempts(own: Attempts) -> Iterator[Started]:
    """A start of every attempt that is paid for and was not started."""
    left = {trial: own.covered[trial] - own.started[trial] for trial in own.covered}
    left[ELSEWHERE] = own.number_of_spare_attempts
    for trial, count in left.items():
        first = own.started[trial] + 1
        for attempt in range(first, first + count):
            yield Started(trial=trial, attempt=attempt, charge=own.charge_entry_covering_attempt(trial, attempt).digest)


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """The receipts in a sweep folder, and the cost of one charge of its plan; `budget` opens an account that is lost.

    `spares` is the number of further attempts at one trial that a single charge may pay for.
    """

    folder: Path
    account: str
    plan: str
    budget: Guarantee
    cost: Guarantee
    event: PlanEvent
    receipts: tuple[Receipt, ...]
    spares: int = 0


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """One restoration, within one write transaction; `known` are the memories of the ledgers that lay here.

    `state` is what the witness holds of the ledger, None if it knows nothing of it. `offered` is the identity of a
    ledger that lost all its lines; with `as_another` the ledger gets another identity afterwards.

    *Guarantee*: a ledger that lost lines trains nothing on the charges that it still has: every attempt that had not
    ended counts as used, since a lost line may have started it. Results that had ended stay paid.
    """

    lines: Lines
    chain: Chain
    known: Mapping[RememberedEnd, Memory]
    witnessed: WitnessedLines
    state: WitnessedState | None
    offered: str
    as_another: bool = False

    def restore_all_and_describe(self, copy: Lines | None, folders: Sequence[Receipts]) -> tuple[str, ...]:
        """Does all that the copy, the memories, the witness and the folders call for; one sentence for each thing."""
        adopted = () if copy is None else tuple(self._adopt_backup_lines_and_describe(copy))
        lost = [(memory, known) for memory, known in self.known.items() if not self.lines.contains_chain_end(known.end)]
        before = self._balances_now_and_at_remembered_entry(next((memory for memory, _ in lost), None))
        head = last_digest(self.lines)
        sentences, behind = [*adopted], False
        for memory, known in lost:
            base = self._balances_now_and_at_remembered_entry(memory)
            if known.end in base.restored:
                sentences.append("An earlier restoration is on the record; this machine remembers its end from now on.")
            else:
                sentences += self._charge_remembered_losses_and_describe(base, known)
                behind = True
        if adopted and not lost:
            for account, balance in before.balances.items():
                self._append_line_and_update_balance(
                    account, balance, Restored(epsilon=0.0, delta=0.0, takes={}, note=f"restored: {adopted[0]}")
                )
        if self.state is not None and self.state.head != head:
            covered = any(memory.digests().has_end(self.state.memory.end) for memory, _ in lost)
            sentences += self._charge_witnessed_amounts_and_describe(
                self.state,
                head,
                None if covered else self._balances_now_and_shared_with_witness(before, self.state, lost),
            )
            behind = True
        paid = set(before.paid)
        for sweep in folders:  # a folder may be a copy of another one
            sentences += self._charge_receipts_and_describe(replace(before, paid=frozenset(paid)), sweep)
            paid |= {receipt.charge for receipt in sweep.receipts}
        if behind:
            sentences += self._use_up_unended_attempts_and_describe()
        if lost and self.lines.end_of_chain() == End():
            raise LedgerDamaged(f"Expected what this machine remembers of {self.chain.name} to name an account.")
        return (*sentences, *self._exceeded_budget_sentences(before))

    def _charge_witnessed_amounts_and_describe(
        self, state: WitnessedState, head: str | None, base: Base | None
    ) -> Iterator[str]:
        """Charges what the witness knows beyond `base`, None if that is charged.

        The ledger must be an earlier state of the witnessed one, so its amounts are a part of those that it knows.
        """
        if head is not None and head not in state.earlier:
            another = "" if self.witnessed.declared else ", or name a new witness, if no line here says that it had one"
            raise LedgerDamaged(
                f"The witness has never seen the last charges and launches of {self.chain.name}: it is another branch "
                "of the witnessed ledger, and what it lost cannot be proved. Set DPSWEEP_LEDGER to the witnessed one"
                f"{another}."
            )
        end = state.memory.end
        if base is not None and end not in base.restored:
            yield f"The witness knows {end.entries} entries of {self.chain.name}; {base.end.entries} are there."
            for lost in iterate_account_losses(state.memory, base):
                yield self._restore_account_and_describe(
                    lost, end, f"lost lines up to entry {end.entries}, as witnessed"
                )
            self._record_remembered_data_and_releases(state.memory)
        self.witnessed.append_witness_line()

    def _balances_now_and_shared_with_witness(
        self, before: Base, state: WitnessedState, lost: Sequence[tuple[RememberedEnd, Memory]]
    ) -> Base:
        """The ledger as it is now; in common with the witness are the amounts before, and those put back since.

        A memory is a part of what the witness knows if the witness had its end.
        """
        common, identity = dict(before.balances), present_ledger_identity(self.lines) or self.offered
        for memory, known in lost:
            if memory.identity == identity and known.end.head in state.earlier:
                for account, form in known.balances.items():
                    remembered = Balance.from_json(form)
                    common[account] = balance_raised_to_amounts(common.get(account, remembered), remembered.reserved)
        return replace(self._balances_now_and_at_remembered_entry(None), common=common)

    def _use_up_unended_attempts_and_describe(self) -> Iterator[str]:
        """Ends what is paid for, unless a copy goes on as another ledger, which does it for itself."""
        if self.as_another or not self.lines.lines_of_kind(Kind.CHARGE):
            return
        spent = use_up_unended_attempts(self.lines)
        invalidate_receipts_and_open_searches(self.lines)
        yield (
            f"{spent} attempts that had not ended count as used, since they may have been run after this state, and "
            "searches that hide their losers do not go on. Results that had ended stay paid."
        )

    def _balances_now_and_at_remembered_entry(self, memory: RememberedEnd | None) -> Base:
        return balances_now_and_at_remembered_entry(
            self.lines, self.chain.name, b"" if memory is None else memory.digests().read()
        )

    def _adopt_backup_lines_and_describe(self, copy: Lines) -> Iterator[str]:
        """Adds the entries that only the copy has; the copy must begin with all entries of the ledger."""
        here, there = self.lines.end_of_chain(), copy.end_of_chain()
        if there.entries <= here.entries and self.lines.contains_chain_end(there):
            return
        known = next(iter(self.known), None)
        another = here == End() and known is not None and known.identity not in all_ledger_identities(copy)
        if another or not copy.contains_chain_end(here):
            raise BadInput(
                f"Expected the backup, of {there.entries} entries, to begin with the {here.entries} of "
                f"{self.chain.name}: it is a copy of another ledger, or of one that went another way since."
            )
        self.lines.append_copied_rows(copy.rows_after_number(here.entries))
        yield f"Entries {here.entries + 1} to {there.entries} of {self.chain.name} were put back from the backup."

    def _charge_remembered_losses_and_describe(self, base: Base, known: Memory) -> Iterator[str]:
        end = known.end
        note = f"lost lines up to entry {end.entries}, as remembered"
        yield (
            f"This machine remembers {end.entries} entries of {self.chain.name}; {base.end.entries} are there. What "
            "they said is lost; what they took is charged. What other machines or users charged later is not known."
        )
        for lost in iterate_account_losses(known, base):
            yield self._restore_account_and_describe(lost, end, note)
        self._record_remembered_data_and_releases(known)

    def _record_remembered_data_and_releases(self, known: Memory) -> None:
        """Records the remembered fingerprints of data files, and the releases, that the ledger no longer has."""
        recorded = [
            {"account": entry.account, "plan": entry.plan, "kind": entry.kind, "body": read_body(entry).to_json()}
            for kind in FACTS
            for entry in self.lines.lines_of_kind(kind)
        ]
        for fact in known.facts:
            last = self.lines.last_line_of_account(fact["account"])
            if last is not None and fact not in recorded:
                with turn_read_errors_into_refusal("what this machine remembers", LedgerDamaged):
                    body = body_from_json(fact["kind"], fact["body"])
                self._append_line_and_update_balance(
                    fact["account"], Balance.from_json(last.balance), body, fact["plan"]
                )

    def _restore_account_and_describe(self, lost: Lost, end: End, note: str) -> str:
        name = lost.account
        balance = lost.there or self._open_account(name, lost.remembered)
        if lost.raised:
            one, other = balance.budget, lost.remembered.budget
            higher = replace(one, epsilon=max(one.epsilon, other.epsilon), delta=max(one.delta, other.delta))
            balance = self._append_line_and_update_balance(name, balance, Raised(budget=higher))
        epsilon, delta = lost.epsilon_and_delta
        body = Restored(
            epsilon=epsilon,
            delta=delta,
            takes=lost.takes,
            note=note,
            remembered=end,
            known=True,
            reserved=lost.remembered.reserved,
        )
        balance = self._append_line_and_update_balance(name, balance, body)
        if lost.closed:
            self._append_line_and_update_balance(name, balance, Closed())
        also = [word for word, done in (("opened", lost.there is None), ("raised", lost.raised)) if done]
        also += ["closed"] if lost.closed else []
        return f"{name}: {_amounts_text(lost.takes)} charged{''.join(f'; {word} again' for word in also)}."

    def _charge_receipts_and_describe(self, base: Base, sweep: Receipts) -> Iterator[str]:
        """Writes one entry for the charges of a plan that receipts name and nothing else accounts for."""
        unproven = [receipt for receipt in sweep.receipts if not self._is_receipt_charged_or_restored(receipt, base)]
        if not unproven:
            return
        charges = sorted({receipt.charge for receipt in unproven})
        others = {receipt.charge for receipt in sweep.receipts} - set(charges)
        most = max(receipt.attempt for receipt in unproven) - sweep.spares - len(others)
        times = max(len(charges), most)  # a receipt replaces that of the attempt before
        last = self.lines.last_line_of_account(sweep.account)
        balance = (
            Balance.from_json(last.balance)
            if last is not None
            else self._open_account(sweep.account, Balance(budget=sweep.budget, policy=Addition(), reserved={}))
        )
        if (balance.budget.adjacency, balance.budget.unit) != (sweep.cost.adjacency, sweep.cost.unit):
            raise BadInput(
                f"Expected the neighbours of plan {sweep.plan} in {sweep.folder} to be those of {sweep.account}: "
                "it was charged on another ledger."
            )
        once = balance.policy.amounts_of_charge(sweep.cost, sweep.event)
        cost = times * sweep.cost.epsilon, min(1.0, times * sweep.cost.delta)
        note = f"plan {sweep.plan}, {times} times its whole price, by receipts in {sweep.folder}"
        takes = {amount: float_rounded_up(times * shortest_decimal_of_float(more)) for amount, more in once.items()}
        body = Restored(
            epsilon=cost[0],
            delta=cost[1],
            takes=takes,
            note=note,
            charges=tuple(charges),
            ends=tuple(End(entries=receipt.entries, head=receipt.head) for receipt in unproven),
            of=sweep.plan,
        )
        self._append_line_and_update_balance(sweep.account, balance, body)
        yield f"{sweep.account}: {_amounts_text(takes)} charged for {note}; it may have been less."

    def _is_receipt_charged_or_restored(self, receipt: Receipt, base: Base) -> bool:
        """Whether the ledger holds a receipt's charge, or a restored amount includes its cost."""
        if receipt.charge in base.paid:
            return True
        start = End(entries=receipt.entries, head=receipt.head)
        remembered = {known.end: memory.digests() for memory, known in self.known.items() if known.end != End()}
        for end in base.restored - remembered.keys():
            remembered[end] = digests_of_lost_chain(end)
        return any(start.entries <= end.entries and digests.has_end(start) for end, digests in remembered.items())

    def _exceeded_budget_sentences(self, base: Base) -> Iterator[str]:
        for account in self.lines.account_names():
            last = self.lines.last_line_of_account(account)
            if last is None or (account in base.balances and last.balance == base.balances[account].to_json()):
                continue
            balance = Balance.from_json(last.balance)
            limits = balance.policy.amount_limits(balance.budget)
            if over := [name for name, amount in balance.reserved.items() if amount > limits.get(name, amount)]:
                yield f"More {' and '.join(over)} is reserved on {account} now than its budget allows."

    def _open_account(self, account: str, like: Balance) -> Balance:
        body = Opened(budget=like.budget, policy=like.policy)
        return self._append_line_and_update_balance(account, Balance.for_opened_account(body), body)

    def _append_line_and_update_balance(self, account: str, balance: Balance, body: Body, plan: str = "") -> Balance:
        append_line_with_balance(self.lines, account, body, plan=plan, before=balance)
        return balance.balance_after_entry(body)


def _amounts_text(takes: Mapping[str, float]) -> str:
    return " and ".join(f"{amount} {takes[amount]}" for amount in sorted(takes, reverse=True)) or "nothing"
