"""A data set is known by its content: a new name, folder or packing is no new budget, and what changed is said."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import Content, Key, known_data, new_data_message, record_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.coordinator.preflight import (
    data_changed_during_sweep_message,
    keyed_fingerprint_of_contents,
    new_data_message_that_sweep_would_give,
    read_verified_private_contents,
)
from dpsweep.trainers.data.official_files import verify_contents
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]
Program = Callable[..., subprocess.CompletedProcess[str]]

TABLE = (
    "dataset=table",
    "dataset.file=visits.csv",
    "dataset.records=300",
    "dataset.shape=[2]",
    "dataset.classes=2",
    "dataset.label=ill",
    "dataset.labels=[no,yes]",
    "dataset.bounds={weight:[40,150],age:[18,90]}",
    "sampler.batch_size=20",
    "steps=5",
    "privacy.delta=1e-5",
    "budget.epsilon=6",
    "budget.delta=1e-4",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "trainer=dpnsgd",
    "trainer.lr=2",
    "trainer.regularizer=0.1",
)
BUDGET = Guarantee(epsilon=6.0, delta=1e-4)


def write_visits(folder: Path, rows: int = 300) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{18 + row % 70},{50 + row % 60},{'yes' if row % 3 else 'no'}" for row in range(rows)]
    (folder / "visits.csv").write_text("\n".join(["age,weight,ill", *lines]) + "\n")


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    return tmp_path / "fingerprint.key"


@pytest.fixture
def visits(key: Path, ledger: Ledger, tmp_path: Path, compose_priced: Compose) -> Plan:
    """The plan of a table whose account is open and knows its data."""
    write_visits(tmp_path)
    plan = compose_priced([*TABLE, "dataset.name=visits"]).plan
    ledger.open_account("visits", BUDGET)
    record_data(ledger, "visits", keyed_fingerprint_of_contents(read_verified_private_contents(plan, tmp_path), ledger))
    return plan


@pytest.mark.parametrize(
    "declared", [[], ["dataset.public=true", "score=training", "privacy.noise_multiplier=1"]], ids=["private", "public"]
)
def test_a_new_name_is_refused_and_opens_nothing(
    program: Program, ledger: Ledger, tmp_path: Path, declared: list[str]
) -> None:
    write_visits(tmp_path)
    first = program(*TABLE, "dataset.name=visits")
    assert first.returncode == 0, first.stderr
    entries = ledger.statement("visits").entries
    words = [word for word in TABLE if not (declared and "budget.epsilon" in word)]  # nobody is promised anything
    renamed = program(*words, "dataset.name=patients", *declared)
    assert renamed.returncode == 2
    assert "Expected dataset.name=patients to be visits" in renamed.stderr
    assert "nothing was charged" in renamed.stderr
    assert ledger.account_names() == ("visits",)
    assert ledger.statement("visits").entries == entries

    write_visits(tmp_path, rows=330)
    appended = program(*TABLE, "dataset.name=visits", "trainer.lr=3")
    assert appended.returncode == 0, appended.stderr
    assert "not those that were charged before" in appended.stderr
    assert ledger.account_names() == ("visits",)
    assert len(ledger.statement("visits").charges) == 2
    plan = json.loads((folder_of(appended) / "plan.json").read_text())
    assert any("not those that were charged before" in note for note in plan["notes"])


def test_another_folder_and_another_file_name_are_the_same_data(
    visits: Plan, ledger: Ledger, compose_priced: Compose, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "visits.csv").rename(tmp_path / "elsewhere" / "copy.csv")
    for name, said in (("visits", None), ("patients", "to be visits")):
        plan = compose_priced([*TABLE, f"dataset.name={name}", "dataset.file=copy.csv"]).plan
        data = keyed_fingerprint_of_contents(read_verified_private_contents(plan, tmp_path / "elsewhere"), ledger)
        if said is None:
            assert new_data_message(data, name, ledger) == ""
        else:
            with pytest.raises(BadInput, match=said):
                new_data_message(data, name, ledger)


def test_a_file_is_the_same_whether_packed_or_not(key: Path, ledger: Ledger, tmp_path: Path) -> None:
    content = b"what an official file holds"
    (tmp_path / "images.gz").write_bytes(gzip.compress(content))
    (tmp_path / "images").write_bytes(content)
    md5 = {"images": hashlib.md5(content).hexdigest()}
    packed, plain = (
        keyed_fingerprint_of_contents(verify_contents((tmp_path / name,), md5, ("images",)), ledger)
        for name in ("images.gz", "images")
    )
    ledger.open_account("mnist", BUDGET)
    record_data(ledger, "mnist", packed)
    assert new_data_message(plain, "mnist", ledger) == ""
    with pytest.raises(BadInput, match="to be mnist"):
        new_data_message(plain, "my_mnist", ledger)


def test_what_is_said_beforehand_is_what_the_ledger_decides(key: Path, ledger: Ledger) -> None:
    """One law in two places: the ledger's own, in its transaction, and the one that changes nothing."""
    own = Key.read_or_create(key)
    one, other, third = (own.fingerprint([Content.from_chunks([text])]) for text in (b"a", b"b", b"c"))
    both = own.fingerprint([Content.from_chunks([b"a"]), Content.from_chunks([b"b"])])
    strange = Key(secret=bytes(32)).fingerprint([Content.from_chunks([b"a"])])
    ledger.open_account("first", BUDGET)
    ledger.open_account("second", BUDGET)
    for account, data in (
        ("first", one),
        ("first", one),
        ("second", one),
        ("second", both),
        ("first", strange),
        ("second", strange),
        ("first", other),
        ("second", other),
        ("first", both),
        ("second", third),
        ("first", one),
        ("first", third),
    ):
        before, after = (
            _answer(ask, account, data)
            for ask in (lambda name, files: new_data_message(files, name, ledger), partial(record_data, ledger))
        )
        assert before == after


def _answer(ask: Callable[[str, Fingerprint], object], account: str, data: Fingerprint) -> str:
    """What it comes to: refused for which reason, or not."""
    try:
        ask(account, data)
    except BadInput as refusal:
        return "another account's" if "Expected dataset.name=" in str(refusal) else "another key"
    return "recorded"


def test_a_lost_key_is_one_sentence_and_none_is_made_in_its_place(
    visits: Plan, key: Path, ledger: Ledger, tmp_path: Path
) -> None:
    contents = read_verified_private_contents(visits, tmp_path)
    kept = key.read_text()
    key.unlink()
    with pytest.raises(BadInput, match=r"fingerprint.key to be the key .* there is none.* DPSWEEP_KEY"):
        keyed_fingerprint_of_contents(contents, ledger)
    assert not key.exists()
    key.write_text("0" * 64)
    key.chmod(0o600)
    with pytest.raises(BadInput, match="to be the key"):
        new_data_message(keyed_fingerprint_of_contents(contents, ledger), "visits", ledger)
    key.write_text(kept)
    assert new_data_message(keyed_fingerprint_of_contents(contents, ledger), "visits", ledger) == ""


def test_the_first_key_is_made_by_a_sweep_and_never_by_a_plan(
    key: Path, ledger: Ledger, tmp_path: Path, compose_priced: Compose
) -> None:
    write_visits(tmp_path)
    plan = compose_priced([*TABLE, "dataset.name=visits"]).plan
    assert new_data_message_that_sweep_would_give(plan, tmp_path, ledger) == ""
    assert not key.exists()
    keyed_fingerprint_of_contents(read_verified_private_contents(plan, tmp_path), ledger)
    assert key.exists()


def test_a_plan_says_what_a_sweep_would_say(
    visits: Plan, key: Path, ledger: Ledger, tmp_path: Path, compose_priced: Compose
) -> None:
    assert new_data_message_that_sweep_would_give(visits, tmp_path, ledger) == ""
    renamed = compose_priced([*TABLE, "dataset.name=patients"]).plan
    assert "to be visits" in new_data_message_that_sweep_would_give(renamed, tmp_path, ledger)
    write_visits(tmp_path, rows=301)
    assert "not those that were charged before" in new_data_message_that_sweep_would_give(visits, tmp_path, ledger)
    assert len(known_data(ledger)) == 1, "a plan records nothing"
    (tmp_path / "visits.csv").unlink()
    assert "needs" in new_data_message_that_sweep_would_give(visits, tmp_path, ledger)
    key.unlink()
    write_visits(tmp_path)
    assert "there is none" in new_data_message_that_sweep_would_give(visits, tmp_path, ledger)
    assert not key.exists()


def test_a_plan_downloads_nothing_to_recognise_it(visits: Plan, ledger: Ledger, compose_priced: Compose) -> None:
    """A data set of official files is met by its checksums; only a sweep fetches it."""
    line = ["dataset=cifar10", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "trainer.lr=1"]
    assert new_data_message_that_sweep_would_give(compose_priced(line).plan, Path("/nowhere"), ledger) == ""


def test_a_table_that_changed_while_the_sweep_ran_is_said(visits: Plan, ledger: Ledger, tmp_path: Path) -> None:
    data = keyed_fingerprint_of_contents(read_verified_private_contents(visits, tmp_path), ledger)
    assert data_changed_during_sweep_message(data, visits, tmp_path, ledger) == ""
    write_visits(tmp_path, rows=299)
    assert "changed while this sweep ran" in data_changed_during_sweep_message(data, visits, tmp_path, ledger)
    (tmp_path / "visits.csv").unlink()
    assert "can no longer be read" in data_changed_during_sweep_message(data, visits, tmp_path, ledger)
    assert len(known_data(ledger)) == 1, "the time of a search's end is kept out of the ledger"


SWAPPING = """
from dataclasses import dataclass
from pathlib import Path

from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.data.sets.own_tables import Table


@dataclass(frozen=True, kw_only=True)
class Swapping(DataSet):
    name: str
    records: int
    test_records: int
    shape: tuple
    classes: int
    unit: str
    inner: Table

    def locate(self, folder):
        self.inner.locate(folder)

    def verify(self, folder):
        return self.inner.verify(folder)

    def load(self, folder):
        with Path(self.inner.file).open("a") as stream:
            stream.write("20,50,no\\n")
        return self.inner.load(folder)
"""


def test_a_sweep_says_that_its_table_was_changed_by_somebody_meanwhile(
    program: Program, environment: dict[str, str], ledger: Ledger, tmp_path: Path
) -> None:
    """Here the job that reads it does."""
    write_visits(tmp_path)
    declared = dict(line.removeprefix("dataset.").split("=", 1) for line in TABLE[1:8])
    declared |= {"labels": "['no', 'yes']", "bounds": "{weight: [40, 150], age: [18, 90]}"}
    inner = {"_target_": "dpsweep.trainers.data.sets.own_tables.Table", "name": "visits", "unit": "record"} | declared
    outer = {key: inner[key] for key in ("name", "records", "shape", "classes", "unit")}
    outer |= {"_target_": "swapping.Swapping", "test_records": "0"}
    lines = [*(f"  {key}: {value}" for key, value in outer.items()), "  inner:"]
    lines += [f"    {key}: {value}" for key, value in inner.items()]
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "swapping.yaml").write_text(
        "\n".join(["# @package _global_", "dataset:", *lines]) + "\n"
    )
    (tmp_path / "swapping.py").write_text(SWAPPING)
    environment["PYTHONPATH"] = str(tmp_path)
    searchpath = f"hydra.searchpath=[file://{tmp_path / 'conf'}]"
    done = program("dataset=swapping", searchpath, "trusted=[swapping.Swapping]", "privacy.epsilon=2", *TABLE[8:])
    assert done.returncode == 0, done.stderr
    assert "changed while this sweep ran" in done.stderr
    assert len(known_data(ledger)) == 1
