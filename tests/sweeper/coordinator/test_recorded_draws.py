"""The draw of a hidden search is made once: what the store has a record of is not drawn again on the same charge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Charged, Ended, Started
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.stored_draw import SearchOutcome, SearchRecord
from dpsweep.sweeper.searches.admission import Retry
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import SELECTION, Place

pytestmark = SEARCHES

Places = Callable[..., Place]


@pytest.fixture
def drawn_twice(place: Places, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Place]:
    """Two folders with a draw each: one was killed before the store had its record, the other before its start."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    first, second = place(SELECTION, root="a"), place(SELECTION, root="b")
    for here, owner, step in (
        (first, SearchRecord, "store_digest_of_draw"),
        (second, Ledger, "start"),
    ):
        monkeypatch.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            here.admit()
        monkeypatch.undo()
    return first, second


def test_a_draw_that_the_store_knows_is_not_replaced_by_an_earlier_one(drawn_twice: tuple[Place, Place]) -> None:
    first, second = drawn_twice
    with pytest.raises(BadInput, match="it holds another draw"):
        first.admit()
    stored = second.folder.draw_path.read_bytes()
    assert second.admit().stored.attempt == 1
    assert second.folder.draw_path.read_bytes() == stored
    assert len(first.ledger.statement("digits").charges) == 1


def test_a_draw_that_the_store_knows_is_not_made_again(drawn_twice: tuple[Place, Place], place: Places) -> None:
    """Whoever could draw until the number of tries is to his liking would know that number."""
    _, second = drawn_twice
    third = place(SELECTION, root="c")
    with pytest.raises(BadInput, match="another search is not paid for"):
        third.admit(Retry.NONE)
    log = third.admit()
    assert log.stored.attempt == log.receipt.attempt == 2
    assert second.admit().stored.attempt == 1, "both are paid for"
    lines = [entry.kind for entry in third.ledger.statement("digits").entries if entry.plan == third.plan.id]
    assert lines.count(Charged.kind) == lines.count(Started.kind) == lines.count(Ended.kind) == 2
    verify_sweep_folder_and_describe(third.folder.root, third.ledger)
    verify_sweep_folder_and_describe(second.folder.root, second.ledger)


def test_of_two_outcomes_the_first_one_stays(place: Places) -> None:
    """Two jobs that a cluster runs as one may both end the search; neither reads what the other is about to write."""
    record = place(SELECTION).admit().private_record_of_attempt
    first, second = (SearchOutcome(attempt=record.attempt, winner=winner) for winner in (0, 1))
    assert record.store_outcome_once(first) == first
    assert record.store_outcome_once(second) == first
    assert record.outcome == first
    assert not list(record.store.root.glob("outcome-1-*")), "nothing else is left"
