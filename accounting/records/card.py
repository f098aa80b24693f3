"""The card of a plan: one query on a sealed part about the model that is handed over, and its answer.

Once is a state. The order is

    all runs have ended -> the claim, with the model's digest -> the mark that the part is read -> the answer

and each is durable in the sweep's folder, and then in the private store, before the next. Invariants:

* The coordinator of a plan, of which there is one at a time, makes the claim, and never another one. The mark is made
  by exclusive creation, so a part is read by one process, once. After the mark nobody reads the part again: if no
  answer follows, there is none.
* Folder and store must hold the same claim: if either was deleted or is an older copy, the part is not read.
* After a claim nothing trains on the plan's charge, and the claim's model is the winner's for ever.
* The ledger says which part a charge has (`accounting/ledger/sealed_parts.py`). It does not say when the part was read,
  which would tell how many tries a secret draw had.

What is not detected: a folder and a store that are both put back to a time before the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpsweep.accounting.codec import (
    OMITTED,
    Count,
    NonNegative,
    PositiveInt,
    Read,
    Stored,
    parse_json_file_or_none,
    require_finite_number,
)
from dpsweep.accounting.durable_files import PRIVATE, append_bytes, flush_folder, short_digest_of_json, write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events.build import DpEvent, PlanEvent, no_access, noisy_table, with_rounded_counts
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.permit import Session
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, SealedParts
from dpsweep.accounting.stored_names.stored_classes import identity_form_of_trial_config

if TYPE_CHECKING:
    from dpsweep.accounting.records.plan import Plan

SAME_ANSWER = "always the same answer"
"""The label of the accuracy of giving every unit the most frequent class."""

NO_ANSWER_EVER = (
    "The card has no answer and never will have one: the sealed part was about to be read when its job ended, and a "
    "part is read once."
)

SEALED = "sealed"
"""The key of the sealed parts that a run leaves out, in its configuration."""


def _threshold_from_json(name: str, form: object) -> float | str | None:
    return form if form is None or isinstance(form, str) else require_finite_number(name, form)


_THRESHOLD = Read(read=_threshold_from_json)


@dataclass(frozen=True, kw_only=True)
class Card(Stored):
    """The one query on a sealed part about the model that is handed over: tables of counts, read together.

    A unit adds at most 1 in L2 norm to each table, and so to all k of them together if each is scaled by 1 / sqrt(k).
    `noise_std` is the standard deviation of the noise on the scaled counts, 0 for public records; `counts` is the most
    counts that both tables have, which it is charged for.

    *Guarantee*: for a unit in the sealed part, the model has the same law on both neighbours, so the query is one
    Gaussian mechanism; for any other unit it is post-processing of the model.

    `threshold` decides between two classes, None for the more likely one. It is the least probability of the positive
    class at which the model says this class, or the metric that is the largest at it in the released table of the
    winner's score.
    """

    noise_std: NonNegative
    counts: Annotated[Count, OMITTED] = 0
    threshold: Annotated[float | str | None, _THRESHOLD, OMITTED] = None

    def noise_std_of_counts(self, tables: int) -> float:
        """The standard deviation of the noise on each count of so many tables."""
        return math.sqrt(tables) * self.noise_std

    @property
    def is_exact(self) -> bool:
        """Whether the query reads public records, and has no price."""
        return not self.noise_std

    def query(self, adjacency: Adjacency) -> DpEvent | None:
        """The event of the query; None if it reads public records."""
        if self.is_exact:
            return None
        return with_rounded_counts(noisy_table(noise_std=self.noise_std, adjacency=adjacency), self.counts)


@dataclass(frozen=True, kw_only=True)
class CardClaim(Stored):
    """The model that a part is read for: the run that won, and the SHA-256 of its weights."""

    plan: str
    part: PositiveInt
    trial: str
    model: str


@dataclass(frozen=True, kw_only=True)
class CardNumber(Stored):
    """A number of a card with its interval, in [0, 1], or in the target's unit where `in_target_unit`."""

    label: str
    value: Annotated[float, require_finite_number]
    low: Annotated[float, require_finite_number]
    high: Annotated[float, require_finite_number]
    in_target_unit: bool = False


@dataclass(frozen=True, kw_only=True)
class CardAnswer(Stored):
    """What a part answered: the noisy counts of both tables, and the numbers that they tell, the sweep's metric first.

    Each number has a 95 % interval that holds by itself. They are those of the model with this decision threshold, a
    probability of the positive class; None for the more likely class.
    """

    claim: CardClaim
    counts: tuple[float, ...]
    numbers: tuple[CardNumber, ...]
    threshold: Annotated[float | None, OMITTED] = None

    @property
    def number_of_tables(self) -> int:
        """The number of tables that were read: the pair, and the details if there are any."""
        return 1 if len(self.counts) == 2 else 2

    def number_with_label(self, label: str) -> CardNumber | None:
        """The number with this label; None if the tables do not tell it."""
        return next((number for number in self.numbers if number.label == label), None)


@dataclass(frozen=True, kw_only=True)
class CardFiles:
    """The files of the card on one part, in a sweep's folder and in its private store.

    `store` is None where the folder is only read.
    """

    folder: Path
    store: Path | None
    part: int

    @property
    def claim(self) -> CardClaim | None:
        """The claim that the store holds, or the folder if there is no store; None if the part is not claimed."""
        return parse_json_file_or_none(self._paths(CLAIM)[-1], CardClaim.from_json)

    @property
    def answer(self) -> CardAnswer | None:
        """The answer, None if there is none."""
        return parse_json_file_or_none(self._paths(ANSWER)[-1], CardAnswer.from_json)

    @property
    def is_begun(self) -> bool:
        """Whether folder or store know of a claim or of a reading."""
        return any(path.exists() for name in (CLAIM, READ) for path in self._paths(name))

    @property
    def is_read(self) -> bool:
        """Whether folder or store know of a reading."""
        return any(path.exists() for path in self._paths(READ))

    def claim_for_model(self, claim: CardClaim) -> None:
        """Claims the part for a model; raises `BadInput` if folder or store know of another claim.

        A claim that a kill left in the folder alone is completed.
        """
        folder, store = self._known_claims()
        if any(known not in (None, claim) for known in (folder, store)) or (store is not None and folder is None):
            holds = f"sealed part {self.part} to be unclaimed, or claimed in {self.folder} for the run that won"
            raise BadInput(f"Expected {holds}: a part answers for one model, and this folder was changed or copied.")
        for path in self._paths(CLAIM):
            write_json(path, claim.to_json(), mode=PRIVATE)

    def mark_as_read_or_refuse(self, query: DpEvent | None) -> Session:
        """Marks the part as read, before it is read, and returns the session that opens it for this query.

        Raises `ContractBroken` if folder and store do not hold the same claim, or if the part was read before.
        """
        folder, store = self._known_claims()
        if folder is None or folder != store:
            raise ContractBroken(f"Expected sealed part {self.part} to be claimed in {self.folder}: it is not read.")
        for path in self._paths(READ):
            try:
                append_bytes(path, b"", create=True)
            except FileExistsError:
                raise ContractBroken(f"Expected sealed part {self.part} to be unread: a part answers once.") from None
            flush_folder(path.parent)
        return Session(event=PlanEvent(training=no_access(), sealed=query))

    def write_answer(self, answer: CardAnswer) -> None:
        """Stores the answer, in the store first."""
        for path in reversed(self._paths(ANSWER)):
            write_json(path, answer.to_json(), mode=PRIVATE)

    def restore_answer_in_folder(self) -> None:
        """Copies the answer into a folder that has lost it."""
        answer = self.answer
        if answer is not None and not self._paths(ANSWER)[0].exists():
            write_json(self._paths(ANSWER)[0], answer.to_json(), mode=PRIVATE)

    def _known_claims(self) -> tuple[CardClaim | None, ...]:
        return tuple(parse_json_file_or_none(path, CardClaim.from_json) for path in self._paths(CLAIM))

    def _paths(self, name: str) -> tuple[Path, ...]:
        """The files of this name, the folder's first."""
        places = (self.folder,) if self.store is None else (self.folder, self.store)
        return tuple(place / name.format(part=self.part) for place in places)


def require_card_of_winner(stored: CardFiles, shown: CardFiles, own: CardClaim | None) -> None:
    """Raises `ContractBroken` if the part was claimed for another model than `own`, or the card in a folder is changed.

    `stored` are the files in the private store, `shown` those in the sweep's folder.
    """
    claims = [stored.claim, shown.claim, *(one.answer.claim for one in (stored, shown) if one.answer is not None)]
    if own is not None and any(claim not in (None, own) for claim in claims):
        raise ContractBroken(f"Sealed part {own.part} was claimed for another model than the winner's.")
    if shown.answer not in (None, stored.answer):
        raise ContractBroken(f"The card in {shown.folder} is not the one that the sealed part answered with.")


def may_card_be_exact(parts: SealedParts, budget: Guarantee) -> bool:
    """Whether a card of these parts needs no noise: their units are public test records, or nothing is promised."""
    return parts.public or budget.promises_nothing


def require_priced_card(plan: Plan) -> None:
    """Raises `BadInput` unless all runs leave the same units out and the plan's price is that of its card."""
    if len({repr(trial.config.get(SEALED)) for trial in plan.all_runs}) > 1:
        raise BadInput(f"Expected all runs of plan {plan.id} to leave the same sealed parts out.")
    card, sealed = plan.card, plan.sealed_charge
    is_readable = card is None or (
        sealed is not None and (not card.is_exact or may_card_be_exact(sealed.parts, plan.budget))
    )
    charged, own = (PlanEvent(training=one or no_access()) for one in (plan.event.sealed, plan.query_of_card))
    if not (is_readable and charged.is_same_as(own)):
        raise BadInput(f"Expected the card of plan {plan.id} to be the one that its price is for.")


CLAIM, READ, ANSWER = "card-{part}-claim.json", "card-{part}-read", "card-{part}.json"
"""The names of the files of a card."""


def sealed_charge_of_config(config: Mapping[str, Any], *, with_card: bool) -> SealedCharge | None:
    """What the charge of a trial with this configuration says of sealed parts; None if it leaves no unit out."""
    if config.get(SEALED) is None:
        return None
    return SealedCharge(
        parts=SealedParts.from_json(config[SEALED]),
        records=short_digest_of_json(identity_form_of_trial_config({"dataset": config["dataset"]})),  # how they are cut
        card=1 if with_card else None,
    )
