"""The bodies of a ledger's lines: their bytes are a record for ever, and each kind is read as one typed value."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.codec import plain
from dpsweep.accounting.errors import DpsweepError, LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent, gaussian, repeat
from dpsweep.accounting.events.types import BlackBoxDpEvent
from dpsweep.accounting.events.types import to_json as event_to_json
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.book import (
    KINDS,
    Addition,
    Balance,
    Charged,
    Ended,
    Fingerprint,
    Opened,
    Released,
    ReleaseManifest,
    Restored,
    Spending,
    SpentOutside,
    UnknownBody,
    body_of_kind,
    read_body,
)
from dpsweep.accounting.ledger.data_fingerprint import record_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.restoration import restore_ledger
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, SealedParts
from dpsweep.accounting.ledger.statement import charged_event
from dpsweep.accounting.ledger.upkeep import charge_outside, close_account, drop_mirror, name_mirror, raise_budget
from dpsweep.accounting.records.released_files import record_release
from tests.charges import charge_cost, charge_event, start_attempts
from tests.hostile import DEEP, VALUES, places, put

FROZEN = Path(__file__).parents[2] / "frozen" / "bodies.json"
BUDGET = Guarantee(epsilon=24, delta=3e-4)
HIGHER = Guarantee(epsilon=30.0, delta=4e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)
NO_PROMISE = Guarantee(epsilon=float("inf"), delta=1e-5)
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)
EVENT = PlanEvent(training=gaussian(noise_multiplier=2.0), validation=repeat(gaussian(noise_multiplier=4.0), 2))
_DIGEST = re.compile(r"\b([0-9a-f]{64}|[0-9a-f]{32})\b")
"""A digest, or a ledger's identity."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00")

OPENED = Opened(budget=BUDGET, policy=Addition())
RECORD = {"reason": "plan", "units": 1797, "accepted_delta": 0.05}


def lines_of(path: Path) -> list[tuple[str, str, str, str]]:
    """(kind, plan, body, balance) of every line, with a number for each digest in the order in which they appear."""
    with closing(sqlite3.connect(path)) as made:
        rows = made.execute("SELECT kind, plan, body, balance FROM entries ORDER BY seq").fetchall()
    digests: dict[str, str] = {}

    def numbered(text: str) -> str:
        text = TIME.sub("TIME", text.replace(f"{path.parent}/", ""))
        return re.sub(
            r"\b([0-9a-f]{64}|[0-9a-f]{32})\b",
            lambda match: digests.setdefault(match[0], f"digest {len(digests)}"),
            text,
        )

    return [(kind, plan, numbered(body), numbered(balance)) for kind, plan, body, balance in rows]


def lives(ledger: Ledger, copy: Path) -> str:
    """Writes a line of every kind but one; the copy has those up to a charge, whose digest comes back."""
    ledger.open_account("digits", BUDGET, FILTER)
    ledger.open_account("mnist", BUDGET)
    ledger.open_account("public", NO_PROMISE)
    record_data(ledger, "digits", Fingerprint(key_id="0" * 64, files=("1" * 64, "2" * 64)))
    charge_event(ledger, "digits", plan="p", trials=["a", "b"], record=RECORD, event=EVENT, spares=1)
    charge_cost(ledger, "public", plan="u", trials=[], cost=NO_PROMISE)
    with closing(sqlite3.connect(ledger.name)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    start_attempts(ledger, "digits", plan="p", trials=["a", "b"])
    ledger.resume("digits", plan="p", trials=["a"])
    ledger.end(
        "digits",
        plan="p",
        ended=[
            Ended(trial="a", attempt=1, resume=1, realised={"status": "finished", "digest": "d", "attempt": 7}),
            Ended(trial="b", attempt=1, resume=0, realised={"status": "interrupted", "steps": None}),
        ],
    )
    ledger.launch("digits", plan="p", nonce="n")
    charge = charge_cost(ledger, "mnist", plan="q", trials=["c"], cost=ONE, record={"reason": "repeat"}).digest
    manifest = ReleaseManifest(charge=charge, folder="release", manifest="m")
    record_release(ledger, "mnist", plan="q", winner=Released(charge=charge, winner="w"), manifest=manifest)
    sealed = SealedCharge(parts=SealedParts(share=0.1, parts=2), records="cut")
    charge_cost(ledger, "mnist", plan="s", trials=[], cost=ONE, sealed=sealed)
    charge_outside(ledger, "digits", ONE, "a pilot study")
    raise_budget(ledger, "digits", HIGHER)
    close_account(ledger, "mnist")
    return charge


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Ledgers with lines of every kind, by what happened to them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    whole, copy = tmp_path / "whole.sqlite", tmp_path / "copy.sqlite"
    ledger = Ledger(whole)
    lives(ledger, copy)
    name_mirror(ledger.chain, tmp_path / "mirror.jsonl")
    drop_mirror(ledger.chain, tmp_path / "mirror.jsonl")
    forked = tmp_path / "forked.sqlite"
    copy.rename(forked)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        name_mirror(Ledger(forked).chain, None)
    restore_ledger(Ledger(forked).chain)
    return {"whole": whole, "forked": forked}


def test_the_bytes_of_every_kind_of_line_are_those_of_format_1(books: dict[str, Path]) -> None:
    written = {name: [list(line) for line in lines_of(path)] for name, path in books.items()}
    assert written == json.loads(FROZEN.read_text())


def entry_of(kind: str, body: dict[str, Any]) -> Entry:
    return Entry(seq=1, account="digits", kind=kind, plan="p", body=body, balance={}, who="", at="", digest="")


LINES = [(kind, json.loads(body)) for lines in json.loads(FROZEN.read_text()).values() for kind, _, body, _ in lines]


def test_every_kind_of_line_comes_back_from_its_body() -> None:
    assert {kind for kind, _ in LINES} == set(KINDS)
    for kind, form in LINES:
        masked = json.loads(re.sub(r"digest (\d)", lambda match: match[1] * 64, json.dumps(form)))
        body = read_body(entry_of(kind, masked))
        assert body.kind == kind, body
        assert not isinstance(body, UnknownBody)
        assert body.to_json() == masked
        assert read_body(entry_of(kind, body.to_json())) == body


def test_hostile_values_in_a_body_are_refused_in_one_sentence_or_read_as_data() -> None:
    once = {json.dumps([kind, sorted(form)]): (kind, form) for kind, form in LINES}
    for kind, form in once.values():
        for place in (place for place in places(form) if 0 < len(place) <= 3):
            for value in VALUES:
                if value is DEEP:
                    continue
                entry = entry_of(kind, put(form, place, value))
                try:
                    body = read_body(entry)
                    body.to_json()
                    if isinstance(body, Spending):
                        assert all(amount >= 0 for amount in (body.epsilon, body.delta, *body.takes.values())), place
                        Balance.opened(OPENED).after(body)
                    if isinstance(body, Charged):
                        charged_event(body)
                except DpsweepError as refusal:
                    assert len(str(refusal)) < 2000


def test_what_this_version_does_not_know_changes_no_balance() -> None:
    body = read_body(entry_of("refund", {"takes": {"epsilon": -1.0}}))
    assert body == UnknownBody(form={"takes": {"epsilon": -1.0}})
    assert Balance.opened(OPENED).after(body) == Balance.opened(OPENED)


def test_an_event_that_costs_infinity_is_stored_as_words() -> None:
    event = event_to_json(BlackBoxDpEvent(epsilon=math.inf, delta=0.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE))
    body = Charged(epsilon=math.inf, delta=0.0, takes={}, trials=("t",), event=event)
    assert json.loads(json.dumps(body.to_json(), allow_nan=False))["event"] == plain(event)


def test_only_charges_are_read_as_charges() -> None:
    for body, kinds in ((Charged, {Charged.kind}), (Spending, {Charged.kind, SpentOutside.kind, Restored.kind})):
        for kind, form in LINES:
            masked = json.loads(re.sub(r"digest (\d)", lambda match: match[1] * 64, json.dumps(form)))
            if kind in kinds:
                assert body_of_kind(entry_of(kind, masked), body).epsilon >= 0
            else:
                with pytest.raises(LedgerDamaged, match=f"to be {body.__name__}"):
                    body_of_kind(entry_of(kind, masked), body)
