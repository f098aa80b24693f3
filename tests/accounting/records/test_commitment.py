"""The salted commitment to a charge: it binds, it hides, and only its opening opens it."""

from __future__ import annotations

import json
import re
import shutil
import stat
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events.build import PlanEvent, gaussian, non_private
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.data_fingerprint import Content, Key
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.commitment import (
    COMMITMENT_FILE,
    DOMAIN,
    OPENING_FILE,
    SPARE_KEY,
    ChargedSweep,
    Opening,
    read_commitment,
    write_commitment,
)
from tests.charges import charge_event

BUDGET = Guarantee(epsilon=10.0, delta=1e-4)
EVENT = PlanEvent(training=gaussian(noise_multiplier=4.0))


def charge(ledger: Ledger, plan: str = "p", event: PlanEvent = EVENT, **more: Any) -> None:
    charge_event(ledger, "digits", plan=plan, trials=("a", "b"), event=event, **more)


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    return tmp_path / "fingerprint.key"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    charge(ledger)
    return ledger


def another(folder: Path) -> Ledger:
    """A ledger that was opened at another time, with other lines before the charge."""
    ledger = Ledger(folder / "another.sqlite")
    ledger.open_account("mnist", BUDGET)
    ledger.open_account("digits", BUDGET)
    charge(ledger, plan="another", delta=2e-5)
    charge(ledger)
    return ledger


def test_it_is_the_hash_of_the_tag_the_salt_and_the_canonical_json(ledger: Ledger) -> None:
    """Computed once more from the sheet alone, as somebody without dpsweep would."""
    opening = Opening.from_ledger(ledger, "digits", "p")
    charged = json.dumps(opening.charged.to_json(), sort_keys=True, separators=(",", ":"))
    expected = sha256(DOMAIN.encode() + bytes.fromhex(opening.salt) + charged.encode()).hexdigest()
    assert opening.commitment == expected
    (one,) = opening.charged.charges
    (entry,) = ledger.statement("digits").charges
    assert {name: one[name] for name in ("epsilon", "delta")} == {"epsilon": entry.body["epsilon"], "delta": 1e-5}
    assert one["event"] == entry.body["event"]
    assert one["rule"] == entry.body["rule"]


def test_the_same_charge_has_the_same_commitment(ledger: Ledger, tmp_path: Path) -> None:
    first = Opening.from_ledger(ledger, "digits", "p")
    assert Opening.from_ledger(ledger, "digits", "p") == first
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite")
    copy = Opening.from_ledger(Ledger(tmp_path / "copy.sqlite"), "digits", "p")
    elsewhere = Opening.from_ledger(another(tmp_path), "digits", "p")
    assert copy == elsewhere == first, "neither lines before nor times play a part"
    charge(ledger, plan="later")
    assert Opening.from_ledger(ledger, "digits", "p") == first


@pytest.mark.parametrize(
    "other",
    [
        {"delta": 2e-5},
        {"event": PlanEvent(training=gaussian(noise_multiplier=5.0))},
        {"rule": "median_of_repeats"},
        {"plan": "q"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_charge_has_another_commitment(ledger: Ledger, tmp_path: Path, other: dict[str, Any]) -> None:
    elsewhere = Ledger(tmp_path / "elsewhere.sqlite")
    elsewhere.open_account("digits", BUDGET)
    charge(elsewhere, **other)
    opening = Opening.from_ledger(elsewhere, "digits", other.get("plan", "p"))
    assert opening.commitment != Opening.from_ledger(ledger, "digits", "p").commitment


def test_another_salt_makes_another_commitment(ledger: Ledger, key: Path) -> None:
    """Another key is another salt; of the same charge nothing is seen to be the same."""
    first = Opening.from_ledger(ledger, "digits", "p")
    key.unlink()
    second = Opening.from_ledger(ledger, "digits", "p")
    assert second.charged == first.charged
    assert second.salt != first.salt
    assert second.commitment != first.commitment
    for opening in (first, second):
        opening.check_commitment_and_charges(opening.commitment, ledger)


def test_what_is_committed_to_has_no_line_no_head_and_no_time(ledger: Ledger) -> None:
    content = Opening.from_ledger(ledger, "digits", "p").charged.canonical_json.decode()
    for entry in ledger.statement("digits").entries:
        assert entry.digest not in content
        assert entry.at not in content
    assert "seq" not in content
    assert not re.search(r"\d{4}-\d\d-\d\d|[0-9a-f]{32}", content)


def test_an_opening_is_the_curators_alone(ledger: Ledger, tmp_path: Path) -> None:
    opening = Opening.from_ledger(ledger, "digits", "p")
    opening.write(tmp_path)
    assert stat.S_IMODE((tmp_path / OPENING_FILE).stat().st_mode) == 0o600
    assert Opening.read(tmp_path) == opening
    assert opening.salt not in repr(opening)
    assert Opening.read(tmp_path / "nowhere") is None
    write_commitment(tmp_path, opening.commitment)
    assert opening.salt not in (tmp_path / COMMITMENT_FILE).read_text()
    assert read_commitment(tmp_path) == opening.commitment
    assert read_commitment(tmp_path / "nowhere") is None


def test_a_tampered_opening_is_refused(ledger: Ledger) -> None:
    opening = Opening.from_ledger(ledger, "digits", "p")
    (one,) = opening.charged.charges
    charges = {
        "epsilon": replace(opening.charged, charges=({**one, "epsilon": 0.5},)),
        "event": replace(opening.charged, charges=({**one, "event": None},)),
        "account": replace(opening.charged, account="mnist"),
        "none": replace(opening.charged, charges=()),
    }
    for name, charged in charges.items():
        forged = replace(opening, charged=charged)
        with pytest.raises(ContractBroken, match="does not open this commitment"):
            forged.check_commitment_and_charges(opening.commitment, ledger)
        if name != "account":
            with pytest.raises(ContractBroken, match=r"are not those that .* holds"):
                forged.check_commitment_and_charges(forged.commitment, ledger)
    with pytest.raises(ContractBroken, match="does not open this commitment"):
        replace(opening, salt="00" * 32).check_commitment_and_charges(opening.commitment, ledger)


def test_a_ledger_without_the_charge_refuses_and_one_with_later_charges_agrees(ledger: Ledger, tmp_path: Path) -> None:
    opening = Opening.from_ledger(ledger, "digits", "p")
    empty = Ledger(tmp_path / "empty.sqlite")
    empty.open_account("digits", BUDGET)
    with pytest.raises(ContractBroken, match="are not those that"):
        opening.check_commitment_and_charges(opening.commitment, empty)
    charge(ledger, record={"reason": "repeat"})
    opening.check_commitment_and_charges(opening.commitment, ledger)
    assert Opening.from_ledger(ledger, "digits", "p").commitment != opening.commitment, (
        "a repeat is a part of the price"
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"salt": "ab", "charged": {}}', '{"salt": 3, "charged": 4}', "[" * 9999]
)
def test_a_damaged_sheet_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    for name, read in ((OPENING_FILE, Opening.read), (COMMITMENT_FILE, read_commitment)):
        (tmp_path / name).write_text(content)
        with pytest.raises(BadInput, match=rf"^Expected \S*{name} to [^\n]*$"):
            read(tmp_path)


def test_a_lost_key_is_not_made_anew_for_a_ledger_with_data_sets(ledger: Ledger, key: Path) -> None:
    """A new key would recognise none of them; the salts' key then lies beside the private stores."""
    ledger.record_data_and_return_message(
        "digits", Key.read_or_create(key).fingerprint([Content.from_chunks([b"records"])])
    )
    key.unlink()
    opening = Opening.from_ledger(ledger, "digits", "p")
    assert not key.exists()
    assert Opening.from_ledger(ledger, "digits", "p") == opening
    (spare,) = ledger.folder_for_local_files.glob(f"*/{SPARE_KEY}")
    assert stat.S_IMODE(spare.stat().st_mode) == 0o600


def test_an_infinite_price_has_a_commitment_too(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "public.sqlite")
    ledger.open_account("digits", Guarantee(epsilon=float("inf"), delta=0.0))
    charge(ledger, event=PlanEvent(training=non_private()))
    opening = Opening.from_ledger(ledger, "digits", "p")
    assert opening.charged.charges[0]["epsilon"] == "infinity"
    assert ChargedSweep.from_json(json.loads(opening.charged.canonical_json)) == opening.charged
