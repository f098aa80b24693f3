"""Keyed fingerprints of data files, so that a data set under a new name does not open a fresh budget.

Why they are keyed: anyone who reads an unkeyed digest can test guesses of the whole file, one after another. So the
ledger stores digests under a secret key, which lies neither in a ledger nor in a release but in the user's
configuration, or at `DPSWEEP_KEY` for a group that shares a ledger. Invariants:

* Recognised: the same files under another name, in another folder or order, compressed otherwise or not at all; one
  file among others is enough. Files whose records are public play no part.
* Not recognised: a subset, a superset, an edited copy, the same records in another order, encoding or file format, a
  file cut in two. Only people know these cases; they charge one account, or state the relation on the record.
* A fingerprint names the key that made it. So a lost or different key is reported; it does not make every data set look
  new. Keep a copy of the key: no ledger can restore it.

Rules for changing this file: any change of a digest raises the number in both `_FILE` and `_KEY`, so that it reads
as another key and never as another data set.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from platformdirs import user_config_path

from dpsweep.accounting.codec import Stored
from dpsweep.accounting.durable_files import flush_folder, make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.validation import turn_file_errors_into_refusal

KEY_BYTES = 32

_FILE = b"dpsweep file 1:"
_KEY = b"dpsweep key 1:"
_HASH = "sha256"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOT_ITS_OWNERS = stat.S_IWGRP | stat.S_IRWXO


class Relation(StrEnum):
    """The relation of two fingerprints' files."""

    SAME = "the same files"
    SHARED = "some of the files, not all"
    DISJOINT = "no file of the other"
    OTHER_KEY = "made with another key, so nothing is known"


@dataclass(frozen=True, kw_only=True)
class Fingerprint(Stored):
    """The identity of a data set's private files, hidden from anyone without the key.

    `key_id` names the key, `files` are the distinct keyed digests of the files' contents, in rising order.
    *Guarantee*: a function of the key and of the set of contents alone; names, folders, compression and order play no
    part. Without the key, it shows how many files there are and which of them two fingerprints share, and nothing more,
    if HMAC-SHA256 is a pseudo-random function and no two contents have the same SHA-256.
    *Source*: RFC 2104; Bellare, New Proofs for NMAC and HMAC, CRYPTO 2006.

    >>> key = Key(secret=bytes(32))
    >>> visits, more = Content.from_chunks([b"age,ill"]), Content.from_chunks([b"weight"])
    >>> key.fingerprint([visits]).relation_to_other(key.fingerprint([more, visits])).value
    'some of the files, not all'
    """

    key_id: str
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, digests in (("key_id", (self.key_id,)), ("files", self.files)):
            whole = all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in digests)
            if not digests or not whole or list(digests) != sorted(set(digests)):
                raise ValueError(f"Expected {name}={getattr(self, name)!r} of 64 hexadecimal digits, strictly rising.")

    def relation_to_other(self, other: Fingerprint) -> Relation:
        """The relation of two data sets; it is symmetric."""
        if self.key_id != other.key_id:
            return Relation.OTHER_KEY
        if self.files == other.files:
            return Relation.SAME
        return Relation.SHARED if set(self.files) & set(other.files) else Relation.DISJOINT


def message_about_new_data_or_none(
    data: Fingerprint, account: str, known: Iterable[tuple[str, Fingerprint]], ledger: str
) -> str | None:
    """A message on the news about an account's data, compared with the data sets of a ledger: None if there is no news.

    The message is empty for the first data of an account. Raises `BadInput` if a file belongs to another account's
    data, or if the known fingerprints were made with another key.
    """
    relations = [(whose, data.relation_to_other(other)) for whose, other in known]
    for whose, relation in relations:
        if whose != account and relation in (Relation.SAME, Relation.SHARED):
            raise BadInput(
                f"Expected dataset.name={account} to be {whose}: {relation.value} are known as the data of the account "
                f"{whose}, and a new name gives no new budget."
            )
    own = [relation for whose, relation in relations if whose == account]
    if Relation.SAME in own:
        return None
    if any(relation is Relation.OTHER_KEY for _, relation in relations):
        raise missing_key_error(ledger, "it is another one")
    return f"The data of {account} are not those that were charged before; they are charged to it too." if own else ""


def missing_key_error(ledger: str, instead: str = "there is none") -> BadInput:
    """The error for a key that is not the one by which a ledger recognises its data sets; `instead` says what is."""
    return BadInput(
        f"Expected {Key.user_key_path()} to be the key that the data sets of {ledger} are recognised by; {instead}. "
        "Put back a copy of it, or set DPSWEEP_KEY."
    )


@dataclass(frozen=True, kw_only=True)
class Content:
    """The SHA-256 of one file's decompressed content; unkeyed, so it is never printed.

    It is stored only beside the private stores, where the contents of large files are kept for their owner alone.
    """

    digest: bytes = field(repr=False)

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes]) -> Content:
        """The content of the concatenated chunks."""
        running = hashlib.new(_HASH)
        for chunk in chunks:
            running.update(chunk)
        return cls(digest=running.digest())


@dataclass(frozen=True, kw_only=True)
class Key:
    """The secret key of fingerprints: 32 bytes from the operating system's entropy.

    A person with both the key and a ledger can test guesses of whole files.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"Expected secret={len(self.secret)} bytes to be {KEY_BYTES}.")

    @property
    def id(self) -> str:
        """The key's name, which does not reveal the key."""
        return self._keyed_digest(_KEY, b"")

    def fingerprint(self, contents: Iterable[Content]) -> Fingerprint:
        """The fingerprint of the files with private records, at least one."""
        files = {self._keyed_digest(_FILE, content.digest) for content in contents}
        return Fingerprint(key_id=self.id, files=tuple(sorted(files)))

    @staticmethod
    def user_key_path() -> Path:
        """The key's file: `DPSWEEP_KEY`, or `fingerprint.key` in the user's configuration directory."""
        path = os.environ.get("DPSWEEP_KEY")
        return Path(path).expanduser() if path else user_config_path("dpsweep") / "fingerprint.key"

    @classmethod
    def read_or_create(cls, path: Path) -> Key:
        """The key in a file, created if missing: once, even if several processes ask at the same time.

        Errors: `BadInput`, one sentence, as in `read`, or if the file cannot be created.
        """
        if (key := cls.read(path)) is not None:
            return key
        what = f"Expected {path.parent} to be a place for a key"
        with turn_file_errors_into_refusal(BadInput, what, "; DPSWEEP_KEY names another file"):
            make_folder_and_missing_parents(path.parent)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as partial:
                partial.write(f"{secrets.token_hex(KEY_BYTES)}\n".encode())
                partial.flush()
                os.fsync(partial.fileno())
                with suppress(FileExistsError):  # another process was first
                    os.link(partial.name, path)
            flush_folder(path.parent)
        if (key := cls.read(path)) is None:
            raise BadInput(f"Expected the key {path} to stay where it was put.")
        return key

    @classmethod
    def read(cls, path: Path) -> Key | None:
        """The key in a file, None if there is no file.

        Errors: `OSError` if it cannot be read, `BadInput` if it is damaged, or accessible to others.
        """
        try:
            with path.open("rb") as stream:
                mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
                text = stream.read()
        except FileNotFoundError:
            return None
        if os.name == "posix" and mode & _NOT_ITS_OWNERS:
            raise BadInput(f"Expected the key {path} to be closed to others, got mode={mode:04o}: chmod 600 {path}")
        if _DIGEST.fullmatch(line := text.decode("ascii", "replace").strip()) is None:
            raise BadInput(
                f"Expected the key {path} to be 64 hexadecimal digits, got {len(text)} bytes: put back a copy of it."
            )
        return cls(secret=bytes.fromhex(line))

    def _keyed_digest(self, use: bytes, message: bytes) -> str:
        """The keyed digest of a message; different uses never share a digest."""
        return hmac.digest(self.secret, use + message, _HASH).hex()
