"""The secret key on the disk, and what fingerprints made with it say about data sets, and to whom."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.book import Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import KEY_BYTES, Content, Key
from tests.waiting import HANGS

KEY, OTHER_KEY = Key(secret=bytes(range(KEY_BYTES))), Key(secret=bytes(KEY_BYTES))
IMAGES, LABELS, MORE = b"images" * 1000, b"labels", b"images of somebody else"


def fingerprint(*files: bytes, key: Key = KEY) -> Fingerprint:
    return key.fingerprint(Content.from_chunks([file]) for file in files)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where no key is yet, nor a folder for one."""
    return tmp_path / "config" / "dpsweep" / "fingerprint.key"


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((IMAGES, LABELS), (LABELS, IMAGES), 2),
        ((IMAGES, LABELS), (IMAGES, LABELS, LABELS), 2),
        ((IMAGES, LABELS), (MORE, LABELS), 1),
        ((IMAGES,), (IMAGES, LABELS), 1),
        ((IMAGES,), (MORE,), 0),
        ((IMAGES,), (IMAGES + b"\n",), 0),
        ((IMAGES, LABELS), (IMAGES + LABELS,), 0),
    ],
)
def test_files_are_recognised_by_what_they_hold(one: tuple[bytes, ...], other: tuple[bytes, ...], shared: int) -> None:
    mine, theirs = fingerprint(*one), fingerprint(*other)
    assert len(set(mine.files) & set(theirs.files)) == shared
    assert (mine == theirs) is (shared == 2)


@pytest.mark.parametrize("files", [(IMAGES,), (MORE,)])
def test_another_key_is_said_and_never_taken_for_another_data_set(files: tuple[bytes, ...]) -> None:
    mine, theirs = fingerprint(IMAGES), fingerprint(*files, key=OTHER_KEY)
    assert not set(mine.files) & set(theirs.files)
    assert mine.key_id == fingerprint(MORE).key_id == KEY.id != theirs.key_id


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_content_is_the_same_wherever_it_was_cut(size: int) -> None:
    chunks = [IMAGES[start : start + size] for start in range(0, len(IMAGES), size)]
    assert Content.from_chunks(chunks) == Content.from_chunks([IMAGES])


def test_nothing_that_is_stored_or_printed_can_be_made_without_the_key() -> None:
    """A plain digest of the file, of its digest, of either under a public prefix, or the key itself would tell."""
    inner = hashlib.sha256(IMAGES).digest()
    assert f"{KEY!r} {Content.from_chunks([IMAGES])}" == "Key() Content()"
    shown = json.dumps(fingerprint(IMAGES).to_json()) + repr(fingerprint(IMAGES))
    for guess in (IMAGES, inner, b"dpsweep file 1:" + inner, b"dpsweep key 1:", KEY.secret):
        assert guess.hex() not in shown
        for use in ("md5", "sha1", "sha256", "sha512", "blake2b"):
            assert hashlib.new(use, guess).hexdigest() not in shown


def test_the_digests_are_hmacs_with_a_use_of_their_own() -> None:
    """RFC 2104 by hand: H((K xor opad) || H((K xor ipad) || text))."""

    def hmac(text: bytes) -> str:
        inner, outer = (bytes(byte ^ pad for byte in KEY.secret.ljust(64, b"\0")) for pad in (0x36, 0x5C))
        return hashlib.sha256(outer + hashlib.sha256(inner + text).digest()).hexdigest()

    assert KEY.id == hmac(b"dpsweep key 1:")
    assert fingerprint(IMAGES).files == (hmac(b"dpsweep file 1:" + hashlib.sha256(IMAGES).digest()),)
    assert fingerprint(b"").files != (KEY.id,)


def test_the_json_form_restores_an_equal_fingerprint() -> None:
    mine = fingerprint(IMAGES, LABELS)
    assert Fingerprint.from_json(json.loads(json.dumps(mine.to_json()))) == mine


@pytest.mark.parametrize(
    ("key_id", "files", "sentence"),
    [
        ("", ("a" * 64,), "Expected key_id='' of 64 hexadecimal digits"),
        ("A" * 64, ("a" * 64,), "Expected key_id='AAA"),
        ("a" * 64, (), r"Expected files=\(\) of 64 hexadecimal digits"),
        ("a" * 64, ("a" * 63,), "Expected files="),
        ("a" * 64, ("a" * 64 + "\n",), "Expected files="),
        ("a" * 64, (7,), r"Expected files=\(7,\)"),
        ("a" * 64, ("b" * 64, "a" * 64), "strictly rising"),
        ("a" * 64, ("a" * 64, "a" * 64), "strictly rising"),
    ],
)
def test_a_fingerprint_that_makes_no_sense_is_refused(key_id: str, files: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Fingerprint(key_id=key_id, files=files)


def test_no_files_have_no_fingerprint() -> None:
    with pytest.raises(ValueError, match=r"Expected files=\(\)"):
        KEY.fingerprint([])


def test_the_key_is_made_once_for_its_owner_alone(path: Path) -> None:
    assert Key.read(path) is None
    assert not path.parent.exists()
    key = Key.read_or_create(path)
    assert Key.read_or_create(path) == Key.read(path) == key
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert bytes.fromhex(path.read_text()) == key.secret
    assert Key.read_or_create(path.with_name("another.key")) != key


def test_threads_that_ask_at_once_get_one_key(path: Path) -> None:
    barrier = Barrier(8)

    def ask(place: Path) -> Key:
        barrier.wait()
        return Key.read_or_create(place)

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            place = path.with_name(f"{attempt}.key")
            assert len(set(pool.map(ask, [place] * 8))) == 1
    assert len(list(path.parent.iterdir())) == 20


def test_processes_that_ask_at_once_get_one_key(path: Path) -> None:
    code = "import sys, pathlib; from dpsweep.accounting.ledger.data_fingerprint import Key; "
    code += "print('ready', flush=True); input(); print(Key.read_or_create(pathlib.Path(sys.argv[1])).id)"
    command = [sys.executable, "-c", code, str(path)]
    asking = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.stdout and process.stdout.readline() for process in asking] == ["ready\n"] * 3
    for process in asking:
        print(file=process.stdin, flush=True)
    assert {process.communicate(timeout=HANGS)[0].strip() for process in asking} == {Key.read_or_create(path).id}


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o620, 0o666])
def test_a_key_that_others_can_read_or_change_is_refused(path: Path, mode: int) -> None:
    Key.read_or_create(path)
    path.chmod(mode)
    sentence = rf"^Expected the key {path} to be closed to others, got mode={mode:04o}: chmod 600 {path}$"
    for take in (Key.read_or_create, Key.read):
        with pytest.raises(BadInput, match=sentence):
            take(path)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_the_owner_may_let_a_team_read_the_key(path: Path, mode: int) -> None:
    key = Key.read_or_create(path)
    path.chmod(mode)
    assert Key.read(path) == key


@pytest.mark.parametrize(
    "damaged", [b"", b"\n", b"ab" * 31, b"ab" * 31 + b"a", b"ab" * 33, b"zz" * 32, b"ab " * 21 + b"a", b"\xff" * 32]
)
def test_a_damaged_key_is_one_sentence_and_stays_as_it_is(path: Path, damaged: bytes) -> None:
    Key.read_or_create(path)
    path.write_bytes(damaged)
    for take in (Key.read_or_create, Key.read):
        with pytest.raises(BadInput, match=rf"^Expected the key {path} to be 64 hexadecimal digits, got .*\.$") as said:
            take(path)
        assert str(said.value).count("\n") == 0
    assert path.read_bytes() == damaged


def test_a_copied_key_is_the_key(path: Path) -> None:
    """By hand, by mail, with the line ends of another system."""
    path.parent.mkdir(parents=True)
    path.touch(mode=0o600)
    path.write_text(f"  {KEY.secret.hex()}\r\n")
    assert Key.read_or_create(path) == KEY


def test_a_place_that_cannot_hold_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NotADirectoryError):
        Key.read_or_create(tmp_path / "file" / "fingerprint.key")
    with pytest.raises(IsADirectoryError):
        Key.read_or_create(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=rf"^Expected the key {tmp_path}/gone to stay where it was put\.$"):
        Key.read_or_create(tmp_path / "gone")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder where even root makes no file")
def test_a_folder_that_takes_no_file_is_one_sentence_with_the_next_step() -> None:
    place = Path("/proc/self/dpsweep/fingerprint.key")
    with pytest.raises(BadInput, match=rf"^Expected {place.parent} to be a place for a key: .*; DPSWEEP_KEY names"):
        Key.read_or_create(place)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_short_secret_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"^Expected secret={size} bytes to be 32\.$"):
        Key(secret=bytes(size))


def test_the_key_lies_in_the_users_configuration_or_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for unsaid in ("", None):
        monkeypatch.delenv("DPSWEEP_KEY", raising=False) if unsaid is None else monkeypatch.setenv(
            "DPSWEEP_KEY", unsaid
        )
        assert Key.user_key_path().name == "fingerprint.key"
        assert sys.platform != "linux" or Key.user_key_path().parent == tmp_path / "dpsweep"
    monkeypatch.setenv("DPSWEEP_KEY", "~/team.key")
    assert Key.user_key_path() == Path.home() / "team.key"
