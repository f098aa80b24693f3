from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.official_files import download_cache_folder_of_dataset, download_file_unless_present

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"four records, one a line\n" * 4
MD5 = hashlib.md5(CONTENT).hexdigest()


def test_a_published_file_is_fetched_once_and_kept(publisher: Any, cache: Path) -> None:
    (publisher.folder / "small.csv").write_bytes(CONTENT)
    for _ in range(2):
        kept = download_file_unless_present(
            f"{publisher.url}small.csv", md5=MD5, folder=download_cache_folder_of_dataset("tiny")
        )
        assert kept == cache / "tiny" / "small.csv"
        assert kept.read_bytes() == CONTENT
    assert publisher.asked == ["small.csv"]


def test_a_kept_copy_that_was_damaged_is_fetched_again(publisher: Any, cache: Path) -> None:
    (publisher.folder / "small.csv").write_bytes(CONTENT)
    (cache / "tiny").mkdir(parents=True)
    (cache / "tiny" / "small.csv").write_bytes(CONTENT[:10])
    assert (
        download_file_unless_present(
            f"{publisher.url}small.csv", md5=MD5, folder=download_cache_folder_of_dataset("tiny")
        ).read_bytes()
        == CONTENT
    )


def test_a_file_with_another_checksum_is_discarded_in_one_sentence(publisher: Any, cache: Path) -> None:
    (publisher.folder / "small.csv").write_bytes(CONTENT + b"?")
    with pytest.raises(BadInput, match=rf"^Expected md5={MD5} of {publisher.url}small\.csv, got another.*data=.*\.$"):
        download_file_unless_present(
            f"{publisher.url}small.csv", md5=MD5, folder=download_cache_folder_of_dataset("tiny")
        )
    assert not list(cache.rglob("*.csv"))


def test_a_file_that_is_not_published_is_an_os_error(publisher: Any) -> None:
    with pytest.raises(OSError, match="404"):
        download_file_unless_present(
            f"{publisher.url}small.csv", md5=MD5, folder=download_cache_folder_of_dataset("tiny")
        )


def test_a_refused_connection_is_an_os_error(nowhere: str) -> None:
    with pytest.raises(OSError, match="refused"):
        download_file_unless_present(f"{nowhere}small.csv", md5=MD5, folder=download_cache_folder_of_dataset("tiny"))


def test_a_folder_that_cannot_be_written_is_an_os_error(publisher: Any, tmp_path: Path) -> None:
    (publisher.folder / "small.csv").write_bytes(CONTENT)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        download_file_unless_present(f"{publisher.url}small.csv", md5=MD5, folder=tmp_path / "file")
