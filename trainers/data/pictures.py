"""Pictures of the user: PNG and JPEG files, decoded one at a time by what is declared about all of them.

A declaration says the size, the colours, the bits of a channel, and what the orientation in a file's EXIF data does.
A picture that differs is refused, never resized or rescaled: so its pixels are a function of its own file and of public
constants. All pictures are tried before anything is said, and one sentence names those that cannot be used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.records import DIGEST_BYTES
from dpsweep.trainers.user_modules import error_as_one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

    Pixels: TypeAlias = NDArray[np.generic]

FORMATS = ("PNG", "JPEG")
MODES = {1: "L", 3: "RGB"}
"""Pillow's name of a picture's colours, by the number of channels: grey, or red, green and blue."""

MOST_NAMES = 20
"""The number of files that a refusal names for each defect."""

LARGEST_RANGE_OF_BYTES = 256
"""A larger declared scale or bound says that pictures have 16 bits a channel; bytes are divided by 255 or by 256."""

LARGEST_OF_16_BITS = 65_535.0

_READ = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")
"""The modes of 8 bits a channel at most."""

_PNG_BITS, _PNG_COLOURS = 24, 25
"""Where a PNG file has the bits of a channel and its type of colours: in its header, the first chunk."""

_GREY, _GREY_AND_ALPHA = 0, 4
_EXIF_ORIENTATION = 0x0112
_RED, _GREEN, _BLUE, _HALF = (np.uint32(weight) for weight in (19_595, 38_470, 7_471, 32_768))
"""ITU-R 601's weights of the colours in grey, in 65536ths, as Pillow has them for bytes."""

_TURNS: Mapping[int, Callable[[Any], Any]] = {
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: np.rot90,
}
"""By the orientation in EXIF data: how stored pixels [height, width, channels] become upright (CIPA DC-008, 4.6.5)."""


class Orientation(StrEnum):
    """What the orientation in a picture's EXIF data does."""

    STORED = "stored"
    """Pictures are as they are stored; a file that says that it should be turned is refused."""
    EXIF = "exif"
    """Each picture is turned as its own file says."""
    IGNORED = "ignored"
    """Pictures are as they are stored, whatever their files say."""


def checked_orientation(orientation: object) -> Orientation:
    """The declared orientation; raises ValueError for another value."""
    if orientation not in (*Orientation,):
        raise ValueError(f"Expected dataset.orientation={orientation!r} to be one of {', '.join(Orientation)}.")
    return Orientation(str(orientation))


def check_picture_shape(shape: tuple[int, ...]) -> None:
    """Refuse a declared shape that is not [channels, height, width] of grey or coloured pictures."""
    if len(shape) != 3 or shape[0] not in MODES:
        raise ValueError(f"Expected dataset.shape={list(shape)} of [1 or 3, height, width]: grey or coloured pictures.")


def declared_bits_per_channel(largest: float) -> int:
    """8 or 16, by the declared scale or upper bound of the numbers."""
    return 8 if largest <= LARGEST_RANGE_OF_BYTES else 16


@dataclass(frozen=True, kw_only=True)
class _Defect:
    """What a picture was expected to be and is not, and what to do."""

    expected: str
    got: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class PictureDeclaration:
    """What is declared about all pictures: `shape` [channels, height, width], the orientation, and the largest number.

    `range_key` is the key of the declaration that says the largest number, `range_value` its value, and `range_form`
    how another largest number would be written there.
    """

    shape: tuple[int, ...]
    orientation: Orientation
    largest: float
    range_key: str
    range_value: object
    range_form: str = "{}"

    def __post_init__(self) -> None:
        check_picture_shape(self.shape)

    @property
    def bits(self) -> int:
        """The bits of a channel."""
        return declared_bits_per_channel(self.largest)

    def decode_pictures(self, contents: Sequence[bytes], names: Sequence[str], place: str) -> Pixels:
        """The pixels [n, channels, height, width] of pictures' files, uint8 or, of 16 bits, uint16.

        Colours become grey or grey becomes three equal colours, as the shape declares; transparency is left out. Of a
        JPEG file that holds several pictures, as telephones write them, it is the first.
        Errors: `BadInput`, one sentence with the names of the files that cannot be used; `place` is as 'in photos'.
        """
        pixels: Pixels = np.empty((len(contents), *self.shape), dtype=np.uint8 if self.bits == 8 else np.uint16)
        defects: list[tuple[str, _Defect]] = []
        for picture, content, name in zip(pixels, contents, names, strict=True):
            decoded = self._decode_or_find_defect(content)
            if isinstance(decoded, _Defect):
                defects.append((name, decoded))
            else:
                picture[:] = decoded
        if defects:
            raise BadInput(_sentence_about_defects(defects, place))
        return pixels

    def _decode_or_find_defect(self, content: bytes) -> Pixels | _Defect:
        from PIL import Image

        try:  # what a file says beside its pixels, in notes that are damaged say, is none of a sweep's business
            with warnings.catch_warnings(action="ignore"), Image.open(BytesIO(content), formats=FORMATS) as picture:
                return self._defect_before_decoding(picture, content) or self._upright_pixels(picture, content)
        except Exception as error:  # noqa: BLE001 - damaged files make Pillow raise errors of many kinds
            reason = error_as_one_line(error)
            got = "another kind of file" if "cannot identify" in reason else reason
            return _Defect(expected="to be a whole PNG or JPEG picture", got=got)

    def _defect_before_decoding(self, picture: Image.Image, content: bytes) -> _Defect | None:
        """What a file's header tells; so a picture of another size takes no memory."""
        _, height, width = self.shape
        if picture.format == "PNG" and (frames := getattr(picture, "n_frames", 1)) > 1:
            return _Defect(
                expected="to be one picture",
                got=f"{frames} in an animated one",
                remedy="keep the one that is meant",
            )
        if picture.size not in ((width, height), (height, width)):
            return self._defect_of_size(picture.height, picture.width)
        bits = content[_PNG_BITS] if picture.format == "PNG" and content[_PNG_BITS] == 16 else 8
        if bits != self.bits:
            other = self.range_form.format(65_535 if bits == 16 else 255)
            return _Defect(
                expected=f"to have {self.bits} bits a channel, as {self.range_key}={self.range_value} says",
                got=str(bits),
                remedy=f"where all pictures have {bits}, declare {self.range_key}={other}",
            )
        if bits == 8 and picture.mode not in _READ:
            return _Defect(expected="to be a grey or coloured picture", got=f"one of mode {picture.mode}")
        return None

    def _upright_pixels(self, picture: Image.Image, content: bytes) -> Pixels | _Defect:
        """The pixels [channels, height, width], turned as declared."""
        channels, height, width = self.shape
        pixels: Pixels = (
            _pixels_of_16_bits(picture, content, channels) if self.bits == 16 else _pixels_of_8_bits(picture, channels)
        )
        tag = _exif_orientation(picture)
        if tag in _TURNS and self.orientation is Orientation.STORED:
            return _Defect(
                expected="to be stored upright, as dataset.orientation=stored says",
                got=f"EXIF orientation {tag}",
                remedy="declare dataset.orientation=exif to turn each picture as its own file says, or "
                "dataset.orientation=ignored to take all of them as they are stored",
            )
        if tag in _TURNS and self.orientation is Orientation.EXIF:
            pixels = _TURNS[tag](pixels)
        if pixels.shape[:2] != (height, width):
            return self._defect_of_size(*pixels.shape[:2])
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _defect_of_size(self, height: int, width: int) -> _Defect:
        return _Defect(
            expected=f"to be a picture of {self.shape[1]} x {self.shape[2]} pixels, as dataset.shape says",
            got=f"{height} x {width}",
            remedy="resize pictures one at a time",
        )


def _pixels_of_8_bits(picture: Image.Image, channels: int) -> NDArray[np.uint8]:
    """The pixels [height, width, channels]; a colour that stands for transparency stays that colour."""
    opaque = picture.convert("RGBA") if "transparency" in picture.info else picture
    pixels = np.asarray(opaque.convert(MODES[channels]), dtype=np.uint8)
    return pixels.reshape(*pixels.shape[:2], channels)


def _pixels_of_16_bits(picture: Image.Image, content: bytes, channels: int) -> NDArray[np.uint16]:
    """The pixels [height, width, channels] of a PNG file with 16 bits a channel.

    Pillow keeps the upper bytes of colours alone: they are decoded once more for the lower ones.
    """
    if content[_PNG_COLOURS] == _GREY:
        stored = np.asarray(picture).astype(np.uint16)[:, :, None]
    elif content[_PNG_COLOURS] == _GREY_AND_ALPHA:
        grey = _decoded_as(picture, "RGBA")  # four bytes: both of grey, both of transparency
        stored = _join_bytes(grey[:, :, :1], grey[:, :, 1:2])
    else:
        from PIL import Image

        with Image.open(BytesIO(content), formats=FORMATS) as again:
            lower = _decoded_as(again, f"{again.mode};16L")  # as if the upper byte came last
        stored = _join_bytes(np.asarray(picture)[:, :, :3], lower[:, :, :3])
    if stored.shape[2] == channels:
        return stored
    if channels == 3:
        return np.repeat(stored, 3, axis=2)
    red, green, blue = stored.astype(np.uint32).transpose(2, 0, 1)
    weighted: NDArray[np.uint32] = _RED * red + _GREEN * green + _BLUE * blue + _HALF
    return (weighted >> 16).astype(np.uint16)[:, :, None]


def _join_bytes(upper: NDArray[np.uint8], lower: NDArray[np.uint8]) -> NDArray[np.uint16]:
    return (upper.astype(np.uint32) * 256 + lower).astype(np.uint16)


def _decoded_as(picture: Any, layout: str) -> NDArray[np.uint8]:
    """The bytes of a picture that is not decoded yet, read as if they lay in this layout of Pillow's."""
    codec, extents, offset, _ = picture.tile[0]
    picture.tile = [(codec, extents, offset, layout)]
    return np.asarray(picture, dtype=np.uint8)


def _exif_orientation(picture: Image.Image) -> int:
    """The orientation in the EXIF data of a decoded picture; 1, upright, where they say none or cannot be read."""
    try:
        tag = picture.getexif().get(_EXIF_ORIENTATION)
    except Exception:  # noqa: BLE001 - damaged EXIF data make Pillow raise errors of many kinds
        return 1
    return tag if isinstance(tag, int) else 1


def _sentence_about_defects(defects: Sequence[tuple[str, _Defect]], place: str) -> str:
    """One sentence: the file and its defect, or for each kind of defect the first files that have it."""
    if len(defects) == 1:
        ((name, defect),) = defects
        remedy = f": {defect.remedy}" if defect.remedy else ""
        return f"Expected {name} {place} {defect.expected}, got {defect.got}{remedy}."
    kinds: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, defect in defects:
        kinds.setdefault((defect.expected, defect.remedy), []).append((name, defect.got))
    parts = []
    for (expected, remedy), files in kinds.items():
        same = len({got for _, got in files}) == 1
        named = ", ".join(name if same else f"{name} ({got})" for name, got in files[:MOST_NAMES])
        named += f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
        got = f"{files[0][1]} at {named}" if same else named
        parts.append(f"{expected}, got {got}" + (f"; {remedy}" if remedy else ""))
    return f"Expected each picture {place} {'; and '.join(parts)}."


def digests_of_pictures_and_labels(contents: Sequence[bytes], labels: Sequence[int]) -> NDArray[np.uint8]:
    """The digest of each picture's file and label, uint8 [n, 32]; alike on machines whose decoders differ."""
    digests = (
        blake2b(int(label).to_bytes(8, "little") + content, digest_size=DIGEST_BYTES).digest()
        for label, content in zip(labels, contents, strict=True)
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def content_fingerprint_of_pictures(contents: Iterable[bytes]) -> Content:
    """The content that identifies a data set: the set of its files, whatever their names, labels and order."""
    return Content.from_chunks(sorted(blake2b(content).digest() for content in contents))
