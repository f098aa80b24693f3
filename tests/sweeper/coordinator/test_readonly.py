"""A ledger that can be read and not written is shown, verified and reported on; what has to write says so."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import Chain
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from tests.forked_programs import Run
from tests.powerless import lose_power
from tests.randomized import TRAINS
from tests.sweeper.search_programs import folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
BUDGET = Guarantee(epsilon=24.0, delta=1e-4)
SWEEP = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=1", "trainer.lr=2", "steps=3")
LIGHT = ("accountant=rdp", "accountant.witnesses=[]")
READ_ONLY = "The ledger {file} can be read but not written here: its file or its folder is read-only."
CODE_5 = "(exit code 5: the ledger is damaged or cannot be written, nothing more was charged)"


@pytest.fixture
def bound(tmp_path: Path, environment: dict[str, str]) -> Program:
    """Runs `dpsweep WORDS...` as a user whom permissions bind."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = Run(words, tmp_path, environment, first=lose_power if os.getuid() == 0 else None).wait()
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)

    return run


@pytest.fixture
def ledger(tmp_path: Path, environment: dict[str, str]) -> Iterator[Ledger]:
    """A ledger in a folder of its own, which can be deleted again whatever a test makes of it."""
    books = tmp_path / "books"
    environment["DPSWEEP_LEDGER"] = str(books / "ledger.sqlite")
    yield Ledger(books / "ledger.sqlite")
    books.chmod(0o700)


def forbid(ledger: Ledger, what: str = "all") -> None:
    """Takes the permission to write away: of the file, of its folder, or of both."""
    assert ledger.path is not None
    for path in (ledger.path, *ledger.path.parent.glob("*-*"), *ledger.path.parent.glob("*.key")):
        if what in ("all", "file"):
            path.chmod(0o444)
    if what in ("all", "folder"):
        ledger.path.parent.chmod(0o555)


def is_bound(folder: Path) -> bool:
    """Whether a program without that capability is refused here, so that a test of it tells anything."""
    probe = f"import os; print(os.access({str(folder)!r}, os.W_OK))"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        preexec_fn=lose_power if os.getuid() == 0 else None,
    )
    return done.stdout == "False\n"


@pytest.mark.parametrize(
    "what", ["folder", pytest.param("file", marks=pytest.mark.long), pytest.param("all", marks=pytest.mark.long)]
)
def test_a_read_only_ledger_is_shown_and_left_alone(bound: Program, ledger: Ledger, what: str) -> None:
    ledger.open_account("digits", BUDGET)
    assert ledger.path is not None
    forbid(ledger, what)
    if not is_bound(ledger.path if what == "file" else ledger.path.parent):
        pytest.skip("this process may write whatever permissions say")
    (account,) = json.loads(bound("budget", "--json").stdout)
    assert account["left"] == {"epsilon": 24.0, "delta": 1e-4}
    for words in (("verify",), ("budget", "verify")):
        done = bound(*words)
        assert done.returncode == 0, done.stderr
        assert "1 entries, the chain is whole" in done.stdout
    for line in (
        "budget raise dataset=digits budget.epsilon=30",
        "budget open dataset=mnist budget.epsilon=9 budget.delta=1e-5",
        "budget charge dataset=digits --epsilon 1 --delta 0 --note x",
        " ".join(("sweep", *SWEEP, *LIGHT, "privacy.noise_multiplier=30")),
    ):
        done = bound(*line.split())
        assert done.returncode == 5, done.stderr
        assert done.stderr.splitlines() == [READ_ONLY.format(file=ledger.path), CODE_5]
    assert {path.name for path in ledger.path.parent.iterdir()} == {"ledger.sqlite"}


@TRAINS
def test_a_sweep_of_a_read_only_ledger_is_verified_and_reported(
    bound: Program, program: Program, ledger: Ledger
) -> None:
    folder = folder_of(program(*SWEEP, *LIGHT, "privacy.noise_multiplier=30"))
    assert ledger.path is not None
    forbid(ledger)
    if not is_bound(ledger.path.parent):
        pytest.skip("this process may write whatever permissions say")
    for verb in ("verify", "report"):
        done = bound(verb, str(folder.root))
        assert done.returncode == 0, done.stderr


@pytest.fixture
def with_log(ledger: Ledger, tmp_path: Path) -> Path:
    """A ledger whose last line is in its write-ahead log alone, as a copy of it made at work is."""
    ledger.open_account("digits", BUDGET)
    assert ledger.path is not None
    copy = tmp_path / "copy"
    copy.mkdir()
    with closing(sqlite3.connect(ledger.path)) as other:
        other.execute("SELECT count(*) FROM entries").fetchone()
        ledger.open_account("mnist", BUDGET)
        for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
            shutil.copy(ledger.path.parent / name, copy / name)
    assert (copy / "ledger.sqlite-wal").stat().st_size > 0
    return copy


@pytest.mark.parametrize("shared_memory", [True, False])
def test_what_a_log_holds_is_read_or_said_to_be_missing(
    bound: Program, environment: dict[str, str], with_log: Path, shared_memory: bool
) -> None:
    """Never is a ledger shown without it: that would show less than was charged."""
    environment["DPSWEEP_LEDGER"] = str(with_log / "ledger.sqlite")
    if not shared_memory:
        (with_log / "ledger.sqlite-shm").unlink()
    forbid(Ledger(with_log / "ledger.sqlite"))
    try:
        if not is_bound(with_log):
            pytest.skip("this process may write whatever permissions say")
        done = bound("budget", "--json")
    finally:
        with_log.chmod(0o700)
    if shared_memory:
        assert {account["account"] for account in json.loads(done.stdout)} == {"digits", "mnist"}
    else:
        assert done.returncode == 5
        sentence, code = done.stderr.splitlines()
        assert sentence.startswith(f"The ledger {with_log / 'ledger.sqlite'} cannot be written or read")
        assert done.stdout == ""
        assert code == CODE_5


def test_a_ledger_that_is_written_while_it_is_read_as_still_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may write what this one may only read."""
    ledger.open_account("digits", BUDGET)
    assert ledger.path is not None
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    assert ledger.statement("digits").budget == BUDGET
    with (
        pytest.raises(LedgerDamaged, match="was written while it was read"),
        Chain(ledger.path).read_transaction(),
    ):
        os.utime(ledger.path)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_ledger_on_a_read_only_mount_is_shown(ledger: Ledger, tmp_path: Path, environment: dict[str, str]) -> None:
    ledger.open_account("digits", BUDGET)
    books = tmp_path / "books"
    mount = f"mount --bind {books} {books} && mount -o remount,ro,bind {books} {books}"

    def on_it(command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "sh", "-c", f"{mount} && {command}"]
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)

    if on_it("true").returncode:
        pytest.skip("no mount can be made here")
    done = on_it(f"{sys.executable} -m dpsweep.sweeper.commands.cli budget --json")
    assert done.returncode == 0, done.stderr
    assert [account["account"] for account in json.loads(done.stdout)] == ["digits"]
    done = on_it(f"{sys.executable} -m dpsweep.sweeper.commands.cli budget close dataset=digits")
    assert done.stderr.splitlines() == [READ_ONLY.format(file=ledger.path), CODE_5]
