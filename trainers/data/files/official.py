"""The official files of a data set: folders where users keep them, the URL that publishes them, and checksums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.checksums import read_contents, verify_contents
from dpsweep.trainers.data.files.download import cache_folder, download

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from dpsweep.accounting.ledger.data_fingerprint import Content


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
    def known(self) -> bool:
        """Whether every file has a checksum, so that damage is detected without parsing records."""
        return None not in self.contents.values()

    def locate(self, name: str, folder: Path | None) -> tuple[Path, ...]:
        """The files of data set `name`: the user's, else those of an earlier download, else downloaded now.

        Guarantee: opens only downloads, whose checksums it verifies.
        Errors: `BadInput`, one sentence that names the missing file and the folder for it.
        """
        if folder is not None and not folder.is_dir():
            raise BadInput(f"Expected data={folder} to be an existing folder.")
        for place in self._places(folder):
            if paths := self._complete(place):
                return paths
        if paths := self._collected(folder):
            return paths
        sums = {file: md5 for file, md5 in self.downloads.items() if md5 is not None}
        if len(sums) < len(self.downloads):
            raise BadInput(self._advice(name, folder, "offers nothing with a known checksum to download"))
        try:
            return tuple(
                download(f"{self.url.rstrip('/')}/{file}", md5=md5, folder=cache_folder(name))
                for file, md5 in sums.items()
            )
        except OSError as error:
            raise BadInput(self._advice(name, folder, f"is out of reach ({type(error).__name__})")) from error

    def absent(self, name: str, folder: Path | None) -> str:
        """A sentence on what `locate` would download, and from where, or what it lacks; empty if the files are here.

        Guarantee: opens and downloads nothing.
        """
        if folder is not None and not folder.is_dir():
            return f"Expected data={folder} to be an existing folder."
        if any(map(self._complete, self._places(folder))) or self._collected(folder):
            return ""
        if None in self.downloads.values():
            return self._advice(name, folder, "offers nothing with a known checksum to download")
        cache = cache_folder(name)
        if all((cache / file).is_file() for file in self.downloads):
            return ""
        looked = f"in {folder} or {cache}" if folder else f"in {cache}, and no DATA=<folder> (or DPSWEEP_DATA) is given"
        return f"{name} is not {looked}: a sweep downloads {', '.join(self.downloads)} from {self.url}."

    def verify(self, name: str, folder: Path | None, private: Collection[str]) -> tuple[Content, ...]:
        """The content of each of the `private` files of data set `name`, after a check of all known checksums.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """
        return verify_contents(self.locate(name, folder), self.contents, private)

    def read(self, name: str, folder: Path | None) -> dict[str, bytes]:
        """The decompressed contents of every file of data set `name`, verified where a checksum is known.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """
        return read_contents(self.locate(name, folder), self.contents)

    def _places(self, folder: Path | None) -> Iterator[Path]:
        """The folders that may contain the files: the data set's folders first, then the user's folder itself."""
        for below in map(Path, self.folders):
            if folder is not None or below.is_absolute():
                yield below if folder is None else folder / below
        if folder is not None:
            yield folder

    def _complete(self, place: Path) -> tuple[Path, ...]:
        """The data set's files in `place`, decompressed or as published; empty if one is missing."""
        paths = [path for file in self.contents if (path := _plain_or_gzip(place / file))]
        if len(paths) == len(self.contents):
            return tuple(paths)
        published = tuple(place / file for file in self.downloads)
        return published if all(path.is_file() for path in published) else ()

    def _collected(self, folder: Path | None) -> tuple[Path, ...]:
        """The data set's files collected from several places; empty if one is in none of them."""
        places = tuple(self._places(folder))
        paths = [next(filter(None, (_plain_or_gzip(place / file) for place in places)), None) for file in self.contents]
        return tuple(path for path in paths if path) if None not in paths else ()

    def _missing(self, place: Path) -> list[str]:
        return [file for file in self.contents if _plain_or_gzip(place / file) is None]

    def _advice(self, name: str, folder: Path | None, why: str) -> str:
        """One sentence: the missing files, the reason, and the remedy."""
        incomplete = [place for place in self._places(folder) if len(self._missing(place)) < len(self.contents)]
        if incomplete:
            return (
                f"{name} is incomplete in {incomplete[0]} and {self.url} {why}: "
                f"put {', '.join(self._missing(incomplete[0]))} (or as .gz) there too."
            )
        target = (folder or Path("<folder>")) / self.folders[0]
        return (
            f"{name} is not {f'in {folder}' if folder else 'on this machine'}, and {self.url} "
            f"{why}: put {', '.join(self.downloads)} into {target} "
            f"and say DATA={folder or '<folder>'} (or set DPSWEEP_DATA)."
        )


def _plain_or_gzip(path: Path) -> Path | None:
    """The path of the decompressed or the gzipped file, whichever exists."""
    zipped = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else zipped if zipped.is_file() else None
