from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.official_files import Official

FILES = {"train.txt": b"one\ntwo\nthree\n" * 50, "test.txt": b"four\n" * 50}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def archive() -> bytes:
    """Both files in one compressed archive, in a folder of its own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"inside/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVE = archive()


def official(url: str, folders: tuple[str, ...] = ("tiny", "Tiny/raw")) -> Official:
    """A data set published as one gzip file each."""
    return Official(
        url=url,
        folders=folders,
        downloads={f"{name}.gz": md5(zipped(content)) for name, content in FILES.items()},
        contents={name: md5(content) for name, content in FILES.items()},
    )


def in_an_archive(url: str) -> Official:
    """The same data set, published as one archive."""
    contents = {name: md5(content) for name, content in FILES.items()}
    return Official(url=url, folders=("tiny",), downloads={"tiny.tar.gz": md5(ARCHIVE)}, contents=contents)


def put(place: Path, suffix: str = "") -> Path:
    """Both files, plain or gzipped, in a new folder."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        (place / f"{name}{suffix}").write_bytes(zipped(content) if suffix else content)
    return place


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "tiny", "Tiny/raw"])
def test_the_users_files_are_read_where_tools_put_them(tmp_path: Path, nowhere: str, below: str, suffix: str) -> None:
    put(tmp_path / "data" / below, suffix)
    assert official(nowhere).read_verified_contents("tiny", tmp_path / "data") == FILES


def test_plain_and_gzipped_files_mix(tmp_path: Path, nowhere: str) -> None:
    put(tmp_path / "data", ".gz")
    (tmp_path / "data" / "test.txt.gz").unlink()
    (tmp_path / "data" / "test.txt").write_bytes(FILES["test.txt"])
    assert official(nowhere).read_verified_contents("tiny", tmp_path / "data") == FILES


def test_the_data_sets_own_folder_goes_before_the_users_folder_itself(tmp_path: Path, nowhere: str) -> None:
    put(tmp_path / "data" / "tiny")
    (tmp_path / "data" / "train.txt").write_bytes(b"another data set's file of the same name")
    (tmp_path / "data" / "test.txt").write_bytes(b"another data set's file of the same name")
    assert official(nowhere).read_verified_contents("tiny", tmp_path / "data") == FILES


def test_files_of_several_places_are_gathered(tmp_path: Path, nowhere: str) -> None:
    put(tmp_path / "data" / "Tiny" / "raw")
    (tmp_path / "data" / "Tiny" / "raw" / "test.txt").rename(tmp_path / "data" / "test.txt")
    assert official(nowhere).read_verified_contents("tiny", tmp_path / "data") == FILES


def test_the_archive_is_read_as_published(tmp_path: Path, nowhere: str) -> None:
    (tmp_path / "tiny.tar.gz").write_bytes(ARCHIVE)
    assert in_an_archive(nowhere).read_verified_contents("tiny", tmp_path) == FILES


def test_a_zip_archive_is_read_as_published(tmp_path: Path, nowhere: str) -> None:
    with zipfile.ZipFile(tmp_path / "tiny.zip", "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"inside/{name}", content)
    published = dataclasses.replace(in_an_archive(nowhere), downloads={"tiny.zip": None})
    assert published.read_verified_contents("tiny", tmp_path) == FILES
    (tmp_path / "tiny.zip").write_bytes((tmp_path / "tiny.zip").read_bytes()[:-30])
    with pytest.raises(BadInput, match=r"tiny\.zip cannot be read, it may be cut off"):
        published.read_verified_contents("tiny", tmp_path)


def test_what_has_no_known_checksum_is_read_but_never_downloaded(publisher: Any, tmp_path: Path) -> None:
    put(publisher.folder, ".gz")
    files = official(publisher.url)
    unknown = dataclasses.replace(files, downloads=dict.fromkeys(files.downloads), contents=dict.fromkeys(FILES))
    assert (files.has_all_checksums, unknown.has_all_checksums) == (True, False)
    assert not dataclasses.replace(files, contents=files.contents | {"test.txt": None}).has_all_checksums
    with pytest.raises(BadInput, match=r"offers nothing with a known checksum to download: put train\.txt\.gz, test"):
        unknown.find_or_download_files("tiny", tmp_path)
    assert publisher.asked == []
    put(tmp_path / "tiny")
    (tmp_path / "tiny" / "test.txt").write_bytes(b"whatever it is")
    assert unknown.read_verified_contents("tiny", tmp_path) == FILES | {"test.txt": b"whatever it is"}


def test_the_systems_folder_needs_no_users_folder(tmp_path: Path, nowhere: str) -> None:
    system = str(put(tmp_path / "usr" / "share" / "tiny", ".gz"))
    assert official(nowhere, ("tiny", system)).read_verified_contents("tiny", None) == FILES


def test_gzip_files_compressed_by_others_are_the_same_contents(tmp_path: Path, nowhere: str) -> None:
    put(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).unlink()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1, mtime=1))
    assert official(nowhere).read_verified_contents("tiny", tmp_path) == FILES


@pytest.mark.parametrize("layout", ["plain", "gzipped", "gzipped by others", "archive"])
def test_a_file_is_recognised_however_it_is_kept(tmp_path: Path, nowhere: str, layout: str) -> None:
    source = in_an_archive(nowhere) if layout == "archive" else official(nowhere)
    if layout == "archive":
        (tmp_path / "tiny.tar.gz").write_bytes(ARCHIVE)
    else:
        put(tmp_path / "tiny", "" if layout == "plain" else ".gz")
    if layout == "gzipped by others":
        for name, content in FILES.items():
            (tmp_path / "tiny" / f"{name}.gz").write_bytes(gzip.compress(content, compresslevel=1, mtime=1))
    assert source.content_hashes_of_verified_private_files("tiny", tmp_path, ("train.txt",)) == (
        Content.from_chunks([FILES["train.txt"]]),
    )


def test_a_private_file_without_a_checksum_is_refused(tmp_path: Path, nowhere: str) -> None:
    put(tmp_path)
    with pytest.raises(BadInput, match=r"^Expected a checksum of more\.txt, which holds private records\.$"):
        official(nowhere).content_hashes_of_verified_private_files("tiny", tmp_path, ("train.txt", "more.txt"))


@pytest.mark.parametrize(
    "read",
    [
        Official.read_verified_contents,
        lambda *where: Official.content_hashes_of_verified_private_files(*where, private=()),
    ],
)
def test_every_file_is_checked_whoever_asks(tmp_path: Path, nowhere: str, read: Any) -> None:
    (tmp_path / "tiny.tar.gz").write_bytes(ARCHIVE)
    source = in_an_archive(nowhere)
    with pytest.raises(BadInput, match=r"^Expected md5=0+ of the contents of test\.txt in .*tiny\.tar\.gz, got "):
        read(dataclasses.replace(source, contents={**source.contents, "test.txt": "0" * 32}), "tiny", tmp_path)
    with pytest.raises(BadInput, match=r"^Expected more in .*tiny\.tar\.gz\.$"):
        read(dataclasses.replace(source, contents={**source.contents, "more": "0" * 32}), "tiny", tmp_path)


@pytest.mark.parametrize("folder", ["none", "empty"])
def test_absent_files_are_downloaded_once(publisher: Any, tmp_path: Path, cache: Path, folder: str) -> None:
    put(publisher.folder, ".gz")
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        where = None if folder == "none" else tmp_path / "empty"
        assert official(publisher.url).read_verified_contents("tiny", where) == FILES
    assert sorted(publisher.asked) == ["test.txt.gz", "train.txt.gz"]
    assert sorted(path.name for path in (cache / "tiny").iterdir()) == ["test.txt.gz", "train.txt.gz"]


def test_an_archive_is_downloaded(publisher: Any) -> None:
    (publisher.folder / "tiny.tar.gz").write_bytes(ARCHIVE)
    assert in_an_archive(publisher.url).read_verified_contents("tiny", None) == FILES


def test_the_users_files_are_never_downloaded(publisher: Any, tmp_path: Path) -> None:
    official(publisher.url).read_verified_contents("tiny", put(tmp_path / "tiny").parent)
    assert publisher.asked == []


def test_locating_opens_no_file_of_the_user(tmp_path: Path, nowhere: str) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(b"not the official contents")
    assert {path.name for path in official(nowhere).find_or_download_files("tiny", tmp_path)} == set(FILES)
    with pytest.raises(BadInput, match="this is not the official file"):
        official(nowhere).read_verified_contents("tiny", tmp_path)


def test_a_corrupt_download_is_one_sentence(publisher: Any) -> None:
    put(publisher.folder, ".gz")
    (publisher.folder / "train.txt.gz").write_bytes(b"<html>maintenance</html>")
    with pytest.raises(BadInput, match=r"^Expected md5=\w+ of http://127\.0\.0\.1:\d+/train\.txt\.gz, got another"):
        official(publisher.url).find_or_download_files("tiny", None)


def test_absent_and_offline_says_which_file_to_put_where(tmp_path: Path, nowhere: str) -> None:
    with pytest.raises(BadInput) as refusal:
        official(nowhere).find_or_download_files("tiny", tmp_path)
    assert str(refusal.value) == (
        f"tiny is not in {tmp_path}, and {nowhere} is out of reach (ConnectionError): put train.txt.gz, "
        f"test.txt.gz into {tmp_path}/tiny and say data={tmp_path} (or set DPSWEEP_DATA)."
    )


def test_absent_and_offline_without_a_folder_says_the_same(nowhere: str) -> None:
    with pytest.raises(BadInput, match=r"into <folder>/tiny and say data=<folder> \(or set DPSWEEP_DATA\)\.$"):
        official(nowhere).find_or_download_files("tiny", None)


def test_a_missing_file_among_others_is_named(tmp_path: Path, nowhere: str) -> None:
    (put(tmp_path / "tiny", ".gz") / "test.txt.gz").unlink()
    with pytest.raises(BadInput, match=rf"incomplete in {tmp_path}/tiny and .*: put test\.txt \(or as \.gz\) there"):
        official(nowhere).find_or_download_files("tiny", tmp_path)


def test_a_folder_that_does_not_exist_is_refused_before_any_download(publisher: Any, tmp_path: Path) -> None:
    put(publisher.folder, ".gz")
    with pytest.raises(BadInput, match=rf"^Expected data={tmp_path}/typo to be an existing folder\.$"):
        official(publisher.url).find_or_download_files("tiny", tmp_path / "typo")
    assert publisher.asked == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_another_file_under_the_official_name_is_refused(tmp_path: Path, nowhere: str, suffix: str) -> None:
    put(tmp_path, suffix)
    other = FILES["train.txt"].replace(b"two", b"TWO")
    (tmp_path / f"train.txt{suffix}").write_bytes(zipped(other) if suffix else other)
    sentence = rf"^Expected md5={md5(FILES['train.txt'])} of .*/train\.txt{suffix}, got {md5(other)}: "
    with pytest.raises(BadInput, match=sentence):
        official(nowhere).read_verified_contents("tiny", tmp_path)


@pytest.mark.parametrize("damage", ["cut", "no gzip", "bad bytes"])
def test_a_damaged_gzip_file_is_one_sentence(tmp_path: Path, nowhere: str, damage: str) -> None:
    put(tmp_path, ".gz")
    whole = zipped(FILES["train.txt"])
    spoilt = {
        "cut": whole[:-12],
        "no gzip": b"plain text",
        "bad bytes": whole[:12] + b"\xff" * 8 + whole[20:],
    }
    (tmp_path / "train.txt.gz").write_bytes(spoilt[damage])
    with pytest.raises(BadInput, match=r"train\.txt\.gz cannot be read, it may be cut off \(.*\): fetch it again\.$"):
        official(nowhere).read_verified_contents("tiny", tmp_path)


@pytest.mark.parametrize("size", [0, 20, 100])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, nowhere: str, size: int) -> None:
    (tmp_path / "tiny.tar.gz").write_bytes(ARCHIVE[:size])
    with pytest.raises(BadInput, match=r"tiny\.tar\.gz cannot be read|in .*tiny\.tar\.gz"):
        in_an_archive(nowhere).read_verified_contents("tiny", tmp_path)


def test_a_declaration_without_files_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected downloads and contents"):
        Official(url="http://127.0.0.1/", folders=(), downloads={}, contents={})
