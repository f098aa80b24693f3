"""Texts that the papers use: Enron-Spam as raw mails, and the phrases of SST-2.

A record of Enron-Spam is a mail: six archives, or their unpacked folders, with hashed word counts of each mail. The
part enron1 contains the same mails as `dataset=enron`, in another form that no checksum recognises: users of both data
sets must add the costs of both accounts.

SST-2 has the sentiment of phrases from film reviews, as a bag of hashed words or as token numbers. Many phrases are
parts of the same sentence. A guarantee for a record protects one phrase; it protects neither its sentence nor the
author of the review. The file does not say which phrases belong together.
"""

from __future__ import annotations

import tarfile
import zlib
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.columns import Column, positions_in_list
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.mismatches import mismatches_refused
from dpsweep.trainers.data.official_files import FromFiles
from dpsweep.trainers.data.preprocessing import (
    check_bound_fits_one_byte,
    hashed_word_counts_of_texts,
    preprocessing_form_of_labelled_tokens,
    preprocessing_form_of_word_counts,
)
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dpsweep.trainers.data.official_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.vocabularies import Vocabulary


KINDS = ("ham", "spam")
"""The folders of ham and spam mails; a mail's label is the index of its folder here."""
_END, _ARCHIVE = ".txt", ".tar.gz"


@dataclass(frozen=True, kw_only=True)
class EnronMail(Declared):
    """The mails of `parts`, each a folder or an archive in one of `folders` below the user's; all are private.

    `shape` is the number of buckets that words are hashed to; counts are clamped to `most`. Bytes are read as Latin-1,
    which has a character for each byte.
    Shapes: features uint8 [n, buckets], scaled to x / most in [0, 1]; label 1 is spam.
    Source: Metsis, Androutsopoulos, Paliouras, Spam Filtering with Naive Bayes, CEAS 2006.
    """

    sizes = ("buckets",)
    only_classes = len(KINDS)
    most: int
    folders: tuple[str, ...]
    parts: tuple[str, ...]
    nonzero = 150

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "folders", tuple(self.folders))
        object.__setattr__(self, "parts", tuple(self.parts))
        check_bound_fits_one_byte(self.most)
        if not self.folders:
            raise ValueError(f"Expected dataset.folders={list(self.folders)} to name a folder.")
        if not self.parts or len(set(self.parts)) != len(self.parts):
            raise ValueError(f"Expected dataset.parts={list(self.parts)} to be distinct, and one at least.")

    @property
    def preprocessing(self) -> Form:
        """The word counts of a mail."""
        return preprocessing_form_of_word_counts(self.shape[0], self.most, KINDS, "latin-1")

    def locate(self, folder: Path | None) -> None:
        """Find every part in the user's folder; nothing is downloaded, since no checksums are known."""
        paths = self._existing_paths_by_part(folder)
        if missing := [part for part in self.parts if part not in paths]:
            target = (folder or Path("<folder>")) / self.folders[0]
            raise BadInput(
                f"{self.name} is not {f'all in {folder}' if folder else 'on this machine'}: put "
                f"{', '.join(f'{part}{_ARCHIVE}' for part in missing)} into {target}, unpacked or not, "
                f"and say data={folder or '<folder>'} (or set DPSWEEP_DATA)."
            )

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Read every mail, since there are no checksums; the content of a part is the same, unpacked or not."""
        contents, total = [], 0
        for place in self._locate_part_paths(folder):
            mails = list(_iterate_mails_of_part(place))
            total += len(mails)
            contents.append(Content.from_chunks(f"{name} {len(mail)}\n".encode() + mail for name, mail in mails))
        self._check_mail_count(total)
        return tuple(contents)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All mails as private records, in the order of their parts and names; there are no public records."""
        import torch

        features = np.empty((self.records, self.shape[0]), dtype=np.uint8)
        labels: list[int] = []
        for place in self._locate_part_paths(folder):
            mails = list(_iterate_mails_of_part(place))
            first, last = len(labels), len(labels) + len(mails)
            if last <= self.records:
                features[first:last] = hashed_word_counts_of_texts(
                    [mail.decode("latin-1") for _, mail in mails], self.shape[0], self.most
                )
            labels += [KINDS.index(PurePosixPath(name).parent.name) for name, _ in mails]
        self._check_mail_count(len(labels))
        records = Records(
            features=torch.from_numpy(features),
            labels=torch.tensor(labels),
            scaling=Scaling(scale=float(self.most)),
            nonzero=self.nonzero,
        )
        return records, None

    def _check_mail_count(self, mails: int) -> None:
        if mails != self.records:
            raise BadInput(f"Expected {self.records} mails in {', '.join(self.parts)}, got {mails}.")

    def _locate_part_paths(self, folder: Path | None) -> list[Path]:
        self.locate(folder)
        paths = self._existing_paths_by_part(folder)
        return [paths[part] for part in self.parts]

    def _existing_paths_by_part(self, folder: Path | None) -> dict[str, Path]:
        """The path of each part that exists; a folder is preferred to an archive."""
        if folder is None:
            return {}
        paths: dict[str, Path] = {}
        for part in self.parts:
            places = [folder / below / part for below in self.folders]
            unpacked = [place for place in places if all((place / kind).is_dir() for kind in KINDS)]
            packed = [place.with_name(f"{part}{_ARCHIVE}") for place in places]
            for place in (*unpacked, *(file for file in packed if file.is_file())):
                paths.setdefault(part, place)
        return paths


def _iterate_mails_of_part(place: Path) -> Iterator[tuple[str, bytes]]:
    """A part's mails with their names (for example ham/0001.txt), in the order of their names.

    Errors: `BadInput`, one sentence that names the archive or the mail.
    """
    try:
        mails = dict(_iterate_unpacked_mails(place) if place.is_dir() else _iterate_archived_mails(place))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise BadInput(f"{place} cannot be read, it may be cut off ({error}): fetch it again.") from error
    for name in sorted(mails):
        if not mails[name].strip():
            raise BadInput(f"Expected {name} in {place} to hold a mail, got nothing.")
        yield name, mails[name]


def _iterate_unpacked_mails(place: Path) -> Iterator[tuple[str, bytes]]:
    for kind in KINDS:
        for path in (place / kind).glob(f"*{_END}"):
            yield f"{kind}/{path.name}", path.read_bytes()


def _iterate_archived_mails(place: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(place) as tape:
        for entry in tape:
            path = PurePosixPath(entry.name)
            if path.suffix == _END and path.parent.name in KINDS and (file := tape.extractfile(entry)) is not None:
                yield f"{path.parent.name}/{path.name}", file.read()


PRIVATE_FILE, PUBLIC_FILE = "train.tsv", "dev.tsv"
HEADER = ("sentence", "label")
LABELS = ("0", "1")
SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Phrases(FromFiles):
    """The phrases of train.tsv, which are private, and the sentences of dev.tsv, which are public.

    A record is one phrase, and the guarantee protects it alone: other phrases of its sentence are other records.
    Derived classes turn texts into features; label 1 is positive.
    Source: Socher et al., Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank, EMNLP 2013, as
    GLUE publishes it.
    """

    only_classes = len(LABELS)
    private_files = (PRIVATE_FILE,)

    @property
    def caution(self) -> str:
        """What a guarantee for a record leaves out, for every page."""
        return "A record is a phrase, and many phrases are parts of one sentence: no whole sentence is protected."

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The phrases of train.tsv, then the sentences of dev.tsv."""
        for file in (PRIVATE_FILE, PUBLIC_FILE):
            rows = labelled_texts_by_line_number(contents[file], file)
            labels = Column.from_cells(HEADER[1], file, {line: label for line, (_, label) in rows.items()})
            with mismatches_refused() as found:
                positions = positions_in_list(labels, LABELS, found)
            yield self._features_of_texts([text for text, _ in rows.values()]), positions

    @abstractmethod
    def _features_of_texts(self, texts: Sequence[str]) -> NDArray[np.generic]:
        """The features [n, width] of texts; each row is a function of its own text and of public constants alone."""


@dataclass(frozen=True, kw_only=True)
class Sst2(Phrases):
    """Phrases as counts of hashed words, clamped to `most`.

    Shapes: features uint8 [n, buckets], scaled to x / most in [0, 1].
    Source: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009, without signs.
    """

    sizes = ("buckets",)
    most: int
    nonzero = 9

    def _check_declared_fields(self) -> None:
        check_bound_fits_one_byte(self.most)

    @property
    def _scaling_to_inputs(self) -> Scaling:
        return Scaling(scale=float(self.most))

    @property
    def preprocessing(self) -> Form:
        """The word counts of a phrase."""
        return preprocessing_form_of_word_counts(self.shape[0], self.most, LABELS, "utf-8")

    def _features_of_texts(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        return hashed_word_counts_of_texts(texts, self.shape[0], self.most)


@dataclass(frozen=True, kw_only=True)
class Sst2Tokens(Phrases):
    """Phrases as token numbers in a published vocabulary, for a model with the same vocabulary.

    Shapes: features float32 [n, length], whole numbers below `vocabulary.words`; `vocabulary.padding` fills the row.
    """

    sizes = ("length",)
    vocabulary: Vocabulary = field()  # required, whatever the base class has

    def _check_declared_fields(self) -> None:
        if self.shape[0] < SHORTEST:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} >= [{SHORTEST}]: the marks and one word.")

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder, and the vocabulary."""
        self.files.find_or_download_files(self.name, folder)
        self.vocabulary.check_vocabulary_file()

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a phrase."""
        return preprocessing_form_of_labelled_tokens(self.vocabulary, self.shape[0], LABELS)

    def _features_of_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vocabulary.token_numbers_of_texts(texts, self.shape[0])


def labelled_texts_by_line_number(content: bytes, file: str) -> dict[int, tuple[str, str]]:
    """The texts and labels by line number, without the header; quotes have no special meaning."""
    header, *lines = content.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    if tuple(header.rstrip("\r").split("\t")) != HEADER:
        raise BadInput(f"Expected {' and '.join(HEADER)} in line 1 of {file}, got {header!r:.60}.")
    rows = {}
    for number, line in enumerate(lines, start=2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(HEADER):
            raise BadInput(f"Expected {len(HEADER)} values in line {number} of {file}, got {len(cells)}.")
        rows[number] = (cells[0], cells[1])
    return rows
