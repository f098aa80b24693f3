"""Which file system a path lies on, so that a SQLite ledger is not put where locks and shared memory do not hold.

SQLite's write-ahead log needs memory that all its users share, and locks that are kept: a network file system gives
neither between machines, and two sweeps could overspend or destroy the file without any error. Refused is what is known
to be one. What is unknown is not refused: another FUSE program, a container's or a virtual machine's shared folder, and
every file system where there is no `/proc/self/mountinfo` to ask, such as on macOS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dpsweep.accounting.errors import BadInput

NETWORK = re.compile(
    r"9p|acfs|afs|beegfs|ceph|cifs|coda|davfs|fhgfs|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|pvfs2|"
    r"smb3|smbfs|vboxsf|wekafs|fuse\.(afp|beegfs|ceph|curlftpfs|davfs2?|gcsfuse|glusterfs|goofys|juicefs|mfs|moosefs|"
    r"rclone|s3fs|smbnetfs|sshfs|vmhgfs-fuse)"
)
"""Types of file systems that other machines may have mounted too, programs that mount something remote included."""

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A file system and where it begins."""

    point: Path
    kind: str

    @property
    def network(self) -> bool:
        """Whether it is known to be reached over a network."""
        return NETWORK.fullmatch(self.kind) is not None


def read_mounts(text: str) -> tuple[Mount, ...]:
    """The mounts in the form of Linux's `mountinfo`, in the order in which they were made.

    >>> read_mounts(r"36 35 98:0 / /mnt/my\\040books rw,noatime master:1 - nfs4 server:/books rw")
    (Mount(point=PosixPath('/mnt/my books'), kind='nfs4'),)
    """
    found = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        if separator:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            found.append(Mount(point=Path(point), kind=after.split()[0]))
    return tuple(found)


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that a path lies on: the deepest one above it, of several at one point the last."""
    above = [mount for mount in mounts if path == mount.point or mount.point in path.parents]
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def refuse_network(path: Path) -> None:
    """Raises `BadInput` where the file lies on what is known to be a network file system, or would."""
    _refuse(path.parent)


@cache
def _refuse(folder: Path) -> None:
    try:
        mounts = read_mounts(_MOUNTS.read_text(errors="surrogateescape"))
    except OSError:
        return
    mount = mount_of(folder.resolve(), mounts)
    if mount is not None and mount.network:
        raise BadInput(
            f"Expected the ledger's folder {folder} to lie on a disk of this machine: {mount.point} is a network file "
            f"system ({mount.kind}), on which SQLite's locks do not hold. Set DPSWEEP_LEDGER to a local file, or, for "
            "several machines, to postgresql+psycopg://USER@HOST/NAME."
        )
