"""What a claim allows: the declared accesses of one attempt, in the process that made it.

A session is the only way to private records (`trainers/data/doors.py`), and only a claim makes one: of a receipt for a
run (`Session.claim`), or of a sealed part for a card (`accounting/records/card.py`). It holds the events that were
declared at the start, which the ledger has compared with its charge; a run of other accesses opens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.events.build import PlanEvent, leaves_with_counts, no_access
from dpsweep.accounting.ledger.paid_events import digest_of_declared_events
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.ledger.receipt import Receipt


@dataclass(frozen=True, kw_only=True)
class Session:
    """The right to make the accesses of `event` once; `receipt` is the claimed one, None for a sealed part."""

    event: PlanEvent
    receipt: Receipt | None = None

    @classmethod
    def claim(
        cls, files: Path, store: PrivateStore, *, plan: str, trial: str, event: PlanEvent, declared: Sequence[PlanEvent]
    ) -> Session:
        """Takes the receipt in the trial's folder for this process, once and for ever.

        `event` is that of this run, `declared` what its start declared: that event, or those of all points of a search
        that is one attempt. Raises `NoReceipt` as `Receipt.claim_from_folder` does, and for a receipt of other events.
        """
        receipt = Receipt.read(files)
        final = PlanEvent(training=no_access(), final=event)
        known = any(one in (event, final) or event in (replace(one, final=None), one.final) for one in declared)
        if receipt is not None and (not known or receipt.accesses != digest_of_declared_events(declared)):
            raise NoReceipt(f"The receipt of trial {trial} is for other accesses than its plan has: nothing trains.")
        return cls(event=event, receipt=Receipt.claim_from_folder(files, store, plan=plan, trial=trial))

    def require_declared(self, run: PlanEvent) -> None:
        """Raises `ContractBroken` unless each access of a run that is about to begin was declared and charged."""
        declared = self.event.events_by_population
        for name, part in run.events_by_population.items():
            allowed = dict(leaves_with_counts(declared[name])) if name in declared else {}
            if any(count > allowed.get(leaf, 0) for leaf, count in leaves_with_counts(part)):
                raise ContractBroken(f"The run differs from its charge: it would make {part}, declared {self.event}.")
