"""A SQLite ledger on a network file system is refused; what is unknown is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.accounting.chain import sqlite_file as mounts
from dpsweep.accounting.chain.sqlite_file import refuse_network_folder
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.charges import charge_cost

TABLE = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
22 27 0:21 / /proc rw - proc proc rw
40 27 0:40 / /home rw,noatime shared:7 - nfs4 server:/home rw,vers=4.2
41 40 8:1 / /home/ada/local rw master:1 propagate_from:2 - xfs /dev/sda1 rw
42 27 0:42 / /mnt/my\040books\134old rw - fuse.sshfs ada@host:/books rw
43 27 0:43 / /data rw - ext4 /dev/sdb rw
44 27 0:44 / /data rw - cifs //server/data rw
45 27 0:45 / /homestead rw - tmpfs tmpfs rw
this is no line of the table
"""
BUDGET = Guarantee(epsilon=10.0, delta=1e-4)


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in which the machine keeps its mounts; nothing is known without it."""
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "mountinfo")
    refuse_network_folder.cache_clear()
    yield tmp_path / "mountinfo"
    refuse_network_folder.cache_clear()


def is_refused(folder: str) -> bool:
    refuse_network_folder.cache_clear()
    try:
        refuse_network_folder(Path(folder))
    except BadInput:
        return True
    return False


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/home/ada/.local/share/dpsweep", True),
        ("/home", True),
        ("/home/ada/local/books", False),
        ("/homestead/books", False),
        ("/homes/books", False),
        ("/mnt/my books\\old/here", True),
        ("/data/books", True),
        ("/var/lib", False),
    ],
)
def test_a_path_lies_on_the_deepest_mount_above_it_and_on_the_last_of_several(
    mounted: Path, path: str, refused: bool
) -> None:
    mounted.write_text(TABLE)
    assert is_refused(path) is refused


def test_where_nothing_is_known_nothing_is_refused(mounted: Path) -> None:
    assert not is_refused("/home")
    mounted.write_text("")
    assert not is_refused("/home")


REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")
LOCAL = ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuseblk", "fuse.encfs", "nfsd", "sshfs", "")


@pytest.mark.parametrize("kind", REMOTE + LOCAL)
def test_only_what_is_known_to_be_a_network_file_system_counts(mounted: Path, kind: str) -> None:
    mounted.write_text(f"27 1 254:0 / / rw,relatime - {kind} /dev/vda rw\n")
    assert is_refused("/home") is (kind in REMOTE)


@pytest.fixture
def remote(tmp_path: Path, mounted: Path) -> Path:
    """A folder that the machine says is mounted from elsewhere; another path leads to it."""
    (tmp_path / "remote").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "remote")
    mounted.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {tmp_path}/remote rw - nfs4 server:/x rw\n")
    return tmp_path


@pytest.mark.parametrize("folder", ["remote", "remote/books/of/mine", "link"])
def test_a_ledger_is_not_made_on_a_network_mount(remote: Path, folder: str) -> None:
    with pytest.raises(
        BadInput, match=rf"{remote}/remote is a network file system \(nfs4\).*postgresql\+psycopg"
    ) as said:
        Ledger(remote / folder / "ledger.sqlite").open_account("digits", BUDGET)
    assert len(str(said.value).splitlines()) == 1
    assert list((remote / "remote").iterdir()) == []


def test_a_ledger_that_lies_there_is_read_and_not_written(remote: Path) -> None:
    Ledger(remote / "ledger.sqlite").open_account("digits", BUDGET)
    for path in remote.glob("ledger.sqlite*"):
        path.rename(remote / "remote" / path.name)
    moved = Ledger(remote / "remote" / "ledger.sqlite")
    assert moved.statement("digits").budget == BUDGET
    with pytest.raises(BadInput, match="network file system"):
        charge_cost(moved, "digits", plan="p", trials=["a"], cost=BUDGET)
    assert verify_entries(moved.chain) == 1


def test_the_table_is_read_once_for_a_folder(remote: Path) -> None:
    ledger = Ledger(remote / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    (remote / "mountinfo").unlink()
    ledger.open_account("other", BUDGET)
    Ledger(remote / "unknown" / "ledger.sqlite").open_account("digits", BUDGET)
