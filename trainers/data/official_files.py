"""The official files of a data set: found or downloaded, checked by checksums, and the data sets made of them.

A data set of official files states which of its files are private and how their bytes are parsed; this module finds and
checks the files, plain, gzipped or in an archive. The only module that imports pooch.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Arrays: TypeAlias = tuple[NDArray[np.generic], NDArray[np.int64]]


def read_contents(paths: tuple[Path, ...], md5: Mapping[str, str | None]) -> dict[str, bytes]:
    """The decompressed contents of every file named in `md5`, found among `paths`.

    Guarantee: each has its checksum, where one is known; nothing has been parsed before.
    Errors: `BadInput`, one sentence that names the file.
    """
    return dict(_iterate_verified_contents(paths, md5))


def verify_contents(
    paths: tuple[Path, ...], md5: Mapping[str, str | None], private: Collection[str]
) -> tuple[Content, ...]:
    """The content of each of the `private` files, read once and not kept.

    Guarantee: every file named in `md5`, private or not, has its checksum, where one is known; nothing has been parsed.
    Errors: `BadInput`, one sentence that names the file.
    """
    for name in private:
        if name not in md5:
            raise BadInput(f"Expected a checksum of {name}, which holds private records.")
    return tuple(
        Content.from_chunks((content,)) for name, content in _iterate_verified_contents(paths, md5) if name in private
    )


def _iterate_verified_contents(paths: tuple[Path, ...], md5: Mapping[str, str | None]) -> Iterator[tuple[str, bytes]]:
    """The names and contents, file after file; raises at the end if a file named in `md5` is missing."""
    missing = dict.fromkeys(md5)
    for path in paths:
        try:
            for name, content in _iterate_file_or_archive_contents(path):
                if name in md5:
                    if (expected := md5[name]) is not None:
                        _check_md5_of_content(content, expected, name, path)
                    missing.pop(name, None)
                    yield name, content
        except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
            raise BadInput(f"{path} cannot be read, it may be cut off ({error}): fetch it again.") from error
    for name in missing:
        raise BadInput(f"Expected {name} in {', '.join(map(str, paths))}.")


def _iterate_file_or_archive_contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The names and contents in a file: an archive's members, or the decompressed file itself."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as tape:
            for entry in tape:
                if (file := tape.extractfile(entry)) is not None:
                    yield PurePosixPath(entry.name).name, file.read()
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield PurePosixPath(member.filename).name, archive.read(member)
    elif path.suffix == ".gz":
        yield path.stem, gzip.decompress(path.read_bytes())
    else:
        yield path.name, path.read_bytes()


def _check_md5_of_content(content: bytes, expected: str, name: str, path: Path) -> None:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != expected:
        within = "" if path.name.removesuffix(".gz") == name else f" in {path}"
        raise BadInput(
            f"Expected md5={expected} of the contents of {name if within else path}{within}, got {digest}: "
            f"this is not the official file."
        )


def download_cache_folder_of_dataset(name: str) -> Path:
    """The folder that keeps downloaded files of the data set `name` between sweeps."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("dpsweep", appauthor=False)) / name


def download_file_unless_present(url: str, *, md5: str, folder: Path) -> Path:
    """The file at `url`, stored in `folder` under its own name and downloaded only if no verified copy is there.

    Guarantee: the returned file has the checksum `md5`; a file with another checksum is discarded.
    Errors: `OSError` if the server cannot be reached or `folder` cannot be written; `BadInput` for a wrong checksum.
    """
    import pooch

    name = url.rpartition("/")[2]
    browser = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16)
    try:
        path = pooch.retrieve(url, known_hash=f"md5:{md5}", fname=name, path=folder, downloader=browser)
    except OSError:
        raise
    except ValueError as error:
        raise BadInput(
            f"Expected md5={md5} of {url}, got another file, which was discarded: try again later, "
            f"or put {name} into a folder of yours and name that by data=<folder> or DPSWEEP_DATA."
        ) from error
    return Path(path)


@dataclass(frozen=True, kw_only=True)
class Official:
    """The official files of one data set.

    `contents` maps the name of each decompressed file to its md5; `downloads` maps each file published below `url` to
    its md5. A checksum is null if it is not known: the file is then never downloaded, and the data set checks its
    content. `folders` are the places where common tools store the files: below the user's folder, or absolute.
    """

    url: str
    downloads: Mapping[str, str | None]
    contents: Mapping[str, str | None]
    folders: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "downloads", dict(self.downloads))
        object.__setattr__(self, "contents", dict(self.contents))
        object.__setattr__(self, "folders", tuple(self.folders))
        if not (self.downloads and self.contents):
            raise ValueError("Expected downloads and contents to name at least one file each.")

    @property
    def has_all_checksums(self) -> bool:
        """Whether every file has a checksum, so that damage is detected without parsing records."""
        return None not in self.contents.values()

    def find_or_download_files(self, name: str, folder: Path | None) -> tuple[Path, ...]:
        """The files of data set `name`: the user's, else those of an earlier download, else downloaded now.

        Guarantee: opens only downloads, whose checksums it verifies.
        Errors: `BadInput`, one sentence that names the missing file and the folder for it.
        """
        if paths := self._local_file_paths(folder):
            return paths
        sums = self._checksums_of_downloads(name, folder)
        try:
            return tuple(
                download_file_unless_present(
                    f"{self.url.rstrip('/')}/{file}", md5=md5, folder=download_cache_folder_of_dataset(name)
                )
                for file, md5 in sums.items()
            )
        except OSError as error:
            raise BadInput(
                self._missing_files_advice(name, folder, f"is out of reach ({type(error).__name__})")
            ) from error

    def missing_files_sentence(self, name: str, folder: Path | None) -> str:
        """A sentence on what `locate` would download, and from where, or what it lacks; empty if the files are here.

        Guarantee: opens and downloads nothing.
        """
        cache = download_cache_folder_of_dataset(name)
        try:
            if self._local_file_paths(folder) or all(
                (cache / file).is_file() for file in self._checksums_of_downloads(name, folder)
            ):
                return ""
        except BadInput as missing:
            return str(missing)
        looked = f"in {folder} or {cache}" if folder else f"in {cache}, and no data=<folder> (or DPSWEEP_DATA) is given"
        return f"{name} is not {looked}: a sweep downloads {', '.join(self.downloads)} from {self.url}."

    def content_hashes_of_verified_private_files(
        self, name: str, folder: Path | None, private: Collection[str]
    ) -> tuple[Content, ...]:
        """The content of each of the `private` files of data set `name`, after a check of all known checksums.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """
        return verify_contents(self.find_or_download_files(name, folder), self.contents, private)

    def read_verified_contents(self, name: str, folder: Path | None) -> dict[str, bytes]:
        """The decompressed contents of every file of data set `name`, verified where a checksum is known.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """
        return read_contents(self.find_or_download_files(name, folder), self.contents)

    def _local_file_paths(self, folder: Path | None) -> tuple[Path, ...]:
        """The data set's files in one place or collected from several; empty if one is nowhere."""
        if folder is not None and not folder.is_dir():
            raise BadInput(f"Expected data={folder} to be an existing folder.")
        places = tuple(self._candidate_folders(folder))
        complete = next(filter(None, map(self._file_paths_if_all_in_folder, places)), None)
        return complete or self._file_paths_from_several_folders(places)

    def _checksums_of_downloads(self, name: str, folder: Path | None) -> dict[str, str]:
        """The md5 of each published file; `BadInput` if one is not known, so that nothing can be downloaded."""
        sums = {file: md5 for file, md5 in self.downloads.items() if md5 is not None}
        if len(sums) < len(self.downloads):
            raise BadInput(self._missing_files_advice(name, folder, "offers nothing with a known checksum to download"))
        return sums

    def _candidate_folders(self, folder: Path | None) -> Iterator[Path]:
        """The folders that may contain the files: the data set's folders first, then the user's folder itself."""
        for below in map(Path, self.folders):
            if folder is not None or below.is_absolute():
                yield below if folder is None else folder / below
        if folder is not None:
            yield folder

    def _file_paths_if_all_in_folder(self, place: Path) -> tuple[Path, ...]:
        """The data set's files in `place`, decompressed or as published; empty if one is missing."""
        paths = [path for file in self.contents if (path := _existing_plain_or_gzip_path(place / file))]
        if len(paths) == len(self.contents):
            return tuple(paths)
        published = tuple(place / file for file in self.downloads)
        return published if all(path.is_file() for path in published) else ()

    def _file_paths_from_several_folders(self, places: Sequence[Path]) -> tuple[Path, ...]:
        """The data set's files collected from several places; empty if one is in none of them."""
        paths = [
            next(filter(None, (_existing_plain_or_gzip_path(place / file) for place in places)), None)
            for file in self.contents
        ]
        return tuple(path for path in paths if path) if None not in paths else ()

    def _missing_file_names(self, place: Path) -> list[str]:
        return [file for file in self.contents if _existing_plain_or_gzip_path(place / file) is None]

    def _missing_files_advice(self, name: str, folder: Path | None, why: str) -> str:
        """One sentence: the missing files, the reason, and the remedy."""
        incomplete = [
            place
            for place in self._candidate_folders(folder)
            if len(self._missing_file_names(place)) < len(self.contents)
        ]
        if incomplete:
            return (
                f"{name} is incomplete in {incomplete[0]} and {self.url} {why}: "
                f"put {', '.join(self._missing_file_names(incomplete[0]))} (or as .gz) there too."
            )
        target = (folder or Path("<folder>")) / self.folders[0]
        return (
            f"{name} is not {f'in {folder}' if folder else 'on this machine'}, and {self.url} "
            f"{why}: put {', '.join(self.downloads)} into {target} "
            f"and say data={folder or '<folder>'} (or set DPSWEEP_DATA)."
        )


def _existing_plain_or_gzip_path(path: Path) -> Path | None:
    """The path of the decompressed or the gzipped file, whichever exists."""
    zipped = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else zipped if zipped.is_file() else None


@dataclass(frozen=True, kw_only=True)
class FromFiles(Declared, ABC):
    """A data set that reads its records from official files.

    `private_files` are those with private records; all of them if it names none.
    """

    private_files: ClassVar[tuple[str, ...]] = ()

    files: Official

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them."""
        self.files.find_or_download_files(self.name, folder)

    def missing_files(self, folder: Path | None) -> str:
        """Says also what a sweep would download."""
        return self.files.missing_files_sentence(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their official checksums, or parse all of them if a checksum is not known."""
        if not self.files.has_all_checksums:
            for _ in self._private_and_public_arrays(self.files.read_verified_contents(self.name, folder)):
                pass
        private = self.private_files or tuple(self.files.contents)
        return self.files.content_hashes_of_verified_private_files(self.name, folder, private)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records, and the public ones where there are any."""
        import torch

        private, *public = (
            Records(
                features=torch.from_numpy(features),
                labels=torch.from_numpy(labels),
                scaling=self._scaling_to_inputs,
                nonzero=self.nonzero,
            )
            for features, labels in self._private_and_public_arrays(
                self.files.read_verified_contents(self.name, folder)
            )
        )
        return private, public[0] if public else None

    @property
    def _scaling_to_inputs(self) -> Scaling:
        """The scaling from stored features to inputs; the identity if features are stored as inputs."""
        return Scaling()

    @abstractmethod
    def _private_and_public_arrays(self, contents: dict[str, bytes]) -> Iterable[Arrays]:
        """The features and labels of the private part, then of the public one where there is one.

        `contents` maps file names to bytes, verified where a checksum is known; the method may remove parsed entries.
        Errors: `BadInput`, one sentence that names the file and its defect.
        """
