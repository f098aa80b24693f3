"""Detection of network file systems, on which a SQLite ledger is refused.

SQLite's write-ahead log needs shared memory and reliable locks: a network file system provides neither between
machines, and two sweeps could overspend or destroy the file without any error. Known network file systems are refused.
Unknown ones are not: other FUSE programs, the shared folders of containers and virtual machines, and every file system
on a machine without `/proc/self/mountinfo`, for example macOS.
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
"""Types of file systems that several machines may mount, including FUSE programs for remote storage."""

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A mounted file system: its mount point and its type."""

    point: Path
    kind: str

    @property
    def network(self) -> bool:
        """Whether its type is a known network file system."""
        return NETWORK.fullmatch(self.kind) is not None


def read_mounts(text: str) -> tuple[Mount, ...]:
    """Parses the mounts in Linux's `mountinfo` format, in their order.

    >>> read_mounts(r"36 35 98:0 / /mnt/my\\040books rw,noatime master:1 - nfs4 server:/books rw")
    (Mount(point=PosixPath('/mnt/my books'), kind='nfs4'),)
    """
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        if separator:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            mounts.append(Mount(point=Path(point), kind=after.split()[0]))
    return tuple(mounts)


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount of a path: the deepest mount point above it, and the last mount if several have this point."""
    above = [mount for mount in mounts if path == mount.point or mount.point in path.parents]
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def refuse_network(path: Path) -> None:
    """Raises `BadInput` if the file's folder is on a known network file system."""
    _refuse_network_folder(path.parent)


@cache
def _refuse_network_folder(folder: Path) -> None:
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
