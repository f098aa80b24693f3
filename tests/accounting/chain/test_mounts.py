"""A SQLite ledger on a network file system is refused; what is unknown is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.accounting.chain import sqlite_file as mounts
from dpsweep.accounting.chain.sqlite_file import Mount, mount_of_path, parse_mounts
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
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


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/.local/share/dpsweep", "nfs4"),
        ("/home", "nfs4"),
        ("/home/ada/local/books", "xfs"),
        ("/homestead/books", "tmpfs"),
        ("/homes/books", "ext4"),
        ("/mnt/my books\\old/here", "fuse.sshfs"),
        ("/data/books", "cifs"),
        ("/var/lib", "ext4"),
    ],
)
def test_a_path_lies_on_the_deepest_mount_above_it_and_on_the_last_of_several(path: str, kind: str) -> None:
    mount = mount_of_path(Path(path), parse_mounts(TABLE))
    assert mount is not None
    assert mount.kind == kind


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert parse_mounts("") == ()
    assert mount_of_path(Path("/home"), ()) is None


REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")
LOCAL = ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuseblk", "fuse.encfs", "nfsd", "sshfs", "")


@pytest.mark.parametrize("kind", REMOTE + LOCAL)
def test_only_what_is_known_to_be_a_network_file_system_counts(kind: str) -> None:
    assert Mount(point=Path("/"), kind=kind).is_network_file_system is (kind in REMOTE)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the machine says is mounted from elsewhere; another path leads to it."""
    (tmp_path / "remote").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "remote")
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {tmp_path}/remote rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    mounts._refuse_network_folder.cache_clear()
    yield tmp_path
    mounts._refuse_network_folder.cache_clear()


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
    assert moved.verify_and_count_entries() == 1


def test_the_table_is_read_once_for_a_folder(remote: Path) -> None:
    ledger = Ledger(remote / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    (remote / "mountinfo").unlink()
    ledger.open_account("other", BUDGET)
    Ledger(remote / "unknown" / "ledger.sqlite").open_account("digits", BUDGET)
