"""A ledger is known by the identity in its first line and by its place, whatever path or address leads to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, LedgerDamaged, LedgerOpenedMeanwhile
from dpsweep.accounting.ledger.book import Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import record_data, same_data_elsewhere
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.mirror import MirroredChain, own_mirror
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.records.sweep_folder import private_store_of_plan
from tests.accounting.books import processes
from tests.accounting.losses import BUDGET, charge, emptied
from tests.databases import Place, Server

DATA = Fingerprint(key_id="0" * 64, files=("1" * 64,))


def made(path: Path) -> tuple[Ledger, bytes]:
    """A ledger of two charges, and the bytes of its file after the first one."""
    ledger = Ledger(path)
    ledger.open_account("digits", BUDGET)
    charge(ledger, "p")
    before = path.read_bytes()
    charge(ledger, "q")
    return ledger, before


def by_symbolic_link(path: Path) -> Path:
    link = path.parents[1] / "link.sqlite"
    link.symlink_to(path)
    return link


def by_linked_folder(path: Path) -> Path:
    link = path.parents[1] / "linked"
    link.symlink_to(path.parent)
    return link / path.name


def by_renamed_folder(path: Path) -> Path:
    return path.parent.rename(path.parents[1] / "renamed") / path.name


def by_another_name(path: Path) -> Path:
    return path.rename(path.with_name("other.sqlite"))


def by_another_folder(path: Path) -> Path:
    (path.parents[1] / "elsewhere").mkdir()
    return Path(shutil.move(path, path.parents[1] / "elsewhere"))


def by_hard_link_alone(path: Path) -> Path:
    """The other name of the file, after the first one was removed."""
    os.link(path, other := path.with_name("hard.sqlite"))
    path.unlink()
    return other


WAYS = [by_symbolic_link, by_linked_folder, by_renamed_folder, by_another_name, by_another_folder, by_hard_link_alone]
Way = Callable[[Path], Path]


@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_that_is_current_goes_on_by_whatever_path_it_is_opened(tmp_path: Path, way: Way) -> None:
    path = tmp_path / "books" / "ledger.sqlite"
    ledger, _ = made(path)
    identity = ledger.chain.identity()
    private_store_of_plan(ledger, "digits", "p").announce_launch("0" * 32, last=None)
    other = Ledger(way(path))
    charge(other, "r")
    assert (verify_entries(other.chain), other.chain.identity()) == (4, identity)
    moved = way is by_another_folder
    assert private_store_of_plan(other, "digits", "p").root.is_dir() is not moved, (
        "found beside the file, whatever its name"
    )
    if moved:
        shutil.move(path.parent / f"{identity}.private", tmp_path / "elsewhere")
        assert private_store_of_plan(other, "digits", "p").root.is_dir()


def test_a_file_with_two_names_is_refused_by_both(tmp_path: Path) -> None:
    """Each name would have a write-ahead log of its own."""
    path = tmp_path / "ledger.sqlite"
    made(path)
    os.link(path, tmp_path / "hard.sqlite")
    for name in ("ledger.sqlite", "hard.sqlite"):
        with pytest.raises(LedgerDamaged, match="to have one name on its disk, got 2"):
            Ledger(tmp_path / name).account_names()


def test_links_without_an_end_lead_to_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises((BadInput, LedgerDamaged), match="to be the path of a file"):
        Ledger(tmp_path / "one").account_names()


def test_ledgers_that_were_swapped_are_both_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.sqlite", "two.sqlite")]
    for path in paths:
        made(path)
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
        with pytest.raises(LedgerDamaged, match="not the one that this machine remembers there"):
            Ledger(path).account_names()


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_ledger_that_was_made_anew_at_a_known_place_is_not_new(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgotten: bool
) -> None:
    """Even if the mirror of the first one is gone, and if the new one is longer."""
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    if forgotten:
        own_mirror(ledger.chain.identity()).path.unlink(missing_ok=True)
    emptied(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        other = Ledger(place.address)
        other.open_account("digits", BUDGET)
        charge(other, "p")
    with pytest.raises(LedgerDamaged, match="not the one that this machine remembers there") as said:
        Ledger(place.address).account_names()
    Path(str(said.value).rpartition("delete ")[2].rstrip(".")).unlink()
    if "://" not in place.address:
        assert verify_entries(Ledger(place.address).chain) == 2, "forgotten on purpose"


def _open(pipe: object, address: str, account: str) -> None:
    ledger = Ledger(address)
    ledger.open_account(account, BUDGET)
    pipe.send(ledger.chain.identity())  # type: ignore[attr-defined]


def test_of_two_creators_at_once_one_gives_the_identity(place: Place) -> None:
    with processes(_open, [(place.address, f"set{number}") for number in range(4)]) as pipes:
        identities = {pipe.recv() for pipe in pipes}
    assert len(identities) == 1
    assert len(identities.pop()) == 32
    assert verify_entries(Ledger(place.address).chain) == 4


def test_a_creator_that_told_another_identity_stops(tmp_path: Path) -> None:
    """The private store that it has named belongs to no ledger."""
    late, first = Ledger(tmp_path / "ledger.sqlite"), Ledger(tmp_path / "ledger.sqlite")
    told = late.chain.identity()
    first.open_account("digits", BUDGET)
    with pytest.raises(LedgerOpenedMeanwhile, match=r"Another command opened the ledger .*: this one begins again"):
        late.open_account("digits", BUDGET)
    assert Ledger(tmp_path / "ledger.sqlite").chain.identity() == first.chain.identity() != told


def test_a_creator_that_told_another_identity_stops_also_after_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command writes the first line between the look and the lock."""
    late, first = Ledger(tmp_path / "ledger.sqlite"), Ledger(tmp_path / "ledger.sqlite")
    late.chain.identity()
    made = MirroredChain.create_if_missing

    def make(chain: MirroredChain) -> None:
        made(chain)
        monkeypatch.setattr(MirroredChain, "create_if_missing", made)
        first.open_account("digits", BUDGET)

    monkeypatch.setattr(MirroredChain, "create_if_missing", make)
    with pytest.raises(LedgerOpenedMeanwhile, match=r"Another command opened the ledger .*: this one begins again"):
        late.open_account("adult", BUDGET)
    assert first.account_names() == ("digits",)


@contextlib.contextmanager
def forwarded(server: Server) -> Iterator[int]:
    """A port of this machine that leads to the server's socket."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve(ours: socket.socket) -> None:
        with ours, socket.socket(socket.AF_UNIX) as theirs:
            theirs.connect(str(server.folder / ".s.PGSQL.5432"))
            back = threading.Thread(target=pump, args=(theirs, ours))
            back.start()
            pump(ours, theirs)
            back.join()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                serving.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                serving[-1].start()

    serving: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for thread in (accepting, *serving):
            thread.join()


def test_a_server_is_known_by_each_of_its_addresses(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = server.place()
    options = place.address.partition("&")[2]
    with forwarded(server) as port:
        addresses = [
            f"postgresql+psycopg://postgres@{host}:{port}/postgres?{options}" for host in ("localhost", "127.0.0.1")
        ]
        ledger = Ledger(addresses[0])
        ledger.open_account("digits", BUDGET)
        assert [Ledger(address).chain.identity() for address in (*addresses, place.address)] == [
            ledger.chain.identity()
        ] * 3
        charge(Ledger(addresses[1]), "q")
        emptied(place)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
            Ledger(place.address).open_account("digits", BUDGET)
        for address in (*addresses, place.address):
            with pytest.raises(LedgerDamaged, match="not the one that this machine remembers there"):
                Ledger(address).account_names()


def test_a_password_is_not_remembered(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger = Ledger(server.place().address.replace("postgres@", "postgres:secret@"))
    ledger.open_account("digits", BUDGET)
    known = [path.read_text() for path in (tmp_path / "state").rglob("*.place")]
    assert known
    assert "secret" not in " ".join(known)


def test_a_ledger_names_the_other_ledgers_of_this_machine_with_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo in DPSWEEP_LEDGER opens a fresh account."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "a").mkdir()
    first, _ = made(tmp_path / "a" / "one.sqlite")
    record_data(first, "digits", DATA)
    assert same_data_elsewhere(DATA, first) == ()
    second = Ledger(tmp_path / "two.sqlite")
    assert "one.sqlite has these data as its account digits: " in "\n".join(same_data_elsewhere(DATA, second))
    assert same_data_elsewhere(replace(DATA, files=("2" * 64,)), second) == ()
    assert same_data_elsewhere(replace(DATA, key_id="1" * 64), second) == ()
    second.open_account("numbers", BUDGET)
    record_data(second, "numbers", DATA)
    assert "two.sqlite has these data as its account numbers: " in "\n".join(same_data_elsewhere(DATA, first))
    mirror = own_mirror(first.chain.identity()).path
    for content in ('["torn', "[1]\n"):
        mirror.write_text(content)
        assert "one.sqlite" not in "\n".join(same_data_elsewhere(DATA, second))
