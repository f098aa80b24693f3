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
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.durable_files import flush_folder, make_folder_and_missing_parents, user_folder
from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_file_errors_into_refusal
from dpsweep.accounting.ledger.book import DIGEST, Fingerprint, body_of_kind
from dpsweep.accounting.ledger.mirror import ENDING, KnownPlace, Mirror, state_folder

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.ledger import Ledger

KEY_BYTES = 32

_FILE = b"dpsweep file 1:"
_KEY = b"dpsweep key 1:"
_HASH = "sha256"
_NOT_ITS_OWNERS = stat.S_IWGRP | stat.S_IRWXO


def known_data(ledger: Ledger) -> tuple[tuple[str, Fingerprint], ...]:
    """Every recorded data set, each after the name of its account."""
    return tuple((entry.account, body_of_kind(entry, Fingerprint)) for entry in ledger.entries(kind=Fingerprint.kind))


def record_data(ledger: Ledger, account: str, data: Fingerprint) -> None:
    """Records the account's data files if they are new to it; refuses files of another account, and another key."""
    with ledger.transaction(account) as (lines, _, append):
        known = [(one.account, body_of_kind(one, Fingerprint)) for one in lines.entries(kind=Fingerprint.kind)]
        for other, files in known:
            if other != account and set(files.files) & set(data.files):
                raise BadInput(f"Expected dataset.name={account} to be {other}: it has these files already.")
        if (account, data) not in known:
            if any(files.key_id != data.key_id for _, files in known):
                raise BadInput(f"Expected the files of {account} by the key of the other data sets of {ledger.name}.")
            append(data)


def same_data_elsewhere(data: Fingerprint, ledger: Ledger) -> tuple[str, ...]:
    """A sentence for each other ledger of this user whose mirror names a file of these data.

    A file that cannot be read says nothing: no charge depends on it.
    """
    places: dict[str, str] = {}
    accounts: dict[tuple[str, str], None] = {}
    for path in state_folder().glob("*.place"):
        with suppress(LedgerDamaged):
            if (known := KnownPlace.read(path)) is not None:
                places[known.identity] = known.place
    for path in sorted(state_folder().glob(f"*{ENDING}")):
        with suppress(LedgerDamaged):
            for row in Mirror(path=path).rows() if path.stem != ledger.chain.identity() else ():
                body = json.loads(row["body"]) if row["kind"] == Fingerprint.kind else {"key_id": ""}
                if body["key_id"] == data.key_id and set(data.files) & set(body["files"]):
                    accounts[places.get(path.stem, str(path)), row["account"]] = None
    return tuple(
        f"The ledger {place} has these data as its account {account}: what the two ledgers spent on them adds up, "
        "and this one does not count it. DPSWEEP_LEDGER names the ledger that is used."
        for place, account in accounts
    )


def new_data_message(data: Fingerprint, account: str, ledger: Ledger) -> str:
    """A message about data that are new to an account, open or not; empty for the first ones and for known ones.

    Raises `BadInput` if a file belongs to another account's data, or if the known fingerprints were made with another
    key.
    """
    known = known_data(ledger)
    for other, files in known:
        if other != account and set(files.files) & set(data.files):
            which = "the same files" if files == data else "some of the files, not all"
            raise BadInput(
                f"Expected dataset.name={account} to be {other}: {which} are known as the data of the account {other}, "
                "and a new name gives no new budget."
            )
    own = [files for other, files in known if other == account]
    if data in own:
        return ""
    if any(files.key_id != data.key_id for _, files in known):
        raise missing_key_error(ledger.name, "it is another one")
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
        """The fingerprint of the files with private records, at least one.

        *Guarantee*: a function of the key and of the set of contents alone; names, folders, compression and order play
        no part. Without the key, it shows how many files there are and which of them two fingerprints share, and
        nothing more, if HMAC-SHA256 is a pseudo-random function and no two contents have the same SHA-256.
        *Source*: RFC 2104; Bellare, New Proofs for NMAC and HMAC, CRYPTO 2006.
        """
        files = {self._keyed_digest(_FILE, content.digest) for content in contents}
        return Fingerprint(key_id=self.id, files=tuple(sorted(files)))

    @staticmethod
    def user_key_path() -> Path:
        """The key's file: `DPSWEEP_KEY`, or `fingerprint.key` in the user's configuration directory."""
        path = os.environ.get("DPSWEEP_KEY")
        return Path(path).expanduser() if path else user_folder("config") / "fingerprint.key"

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
        if DIGEST.fullmatch(line := text.decode("ascii", "replace").strip()) is None:
            raise BadInput(
                f"Expected the key {path} to be 64 hexadecimal digits, got {len(text)} bytes: put back a copy of it."
            )
        return cls(secret=bytes.fromhex(line))

    def _keyed_digest(self, use: bytes, message: bytes) -> str:
        """The keyed digest of a message; different uses never share a digest."""
        return hmac.digest(self.secret, use + message, _HASH).hex()
