"""Pictures in files, as arrays of bytes: PNG and JPEG alone, of the declared size; nothing is resized."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.records import DIGEST_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = ("PNG", "JPEG")
MODES = {1: "L", 3: "RGB"}
"""Pillow's name of a picture's colours, by the number of channels: grey, or red, green and blue."""

_READ = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")
"""The modes of 8 bits a channel at most; others would lose their lower bits."""


def check_picture_shape(shape: tuple[int, ...]) -> None:
    """Refuse a declared shape that is not [channels, height, width] of grey or coloured pictures."""
    if len(shape) != 3 or shape[0] not in MODES:
        raise ValueError(f"Expected dataset.shape={list(shape)} of [1 or 3, height, width]: grey or coloured pictures.")


def decoded(content: bytes, shape: tuple[int, ...], where: str) -> NDArray[np.uint8]:
    """The pixels uint8 [channels, height, width] of a picture's file; `where` names it in messages.

    Colours become grey or grey becomes three equal colours, as the shape declares; transparency is left out, and a
    note on the orientation of a camera has no effect.
    Errors: `BadInput`, one sentence, for another format or size and for a damaged file.
    """
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as picture:
            if picture.size != (width, height):
                raise BadInput(
                    f"Expected {where} to be a picture of {height} x {width} pixels, as dataset.shape says, got "
                    f"{picture.height} x {picture.width}: resize it, one picture at a time."
                )
            if picture.mode not in _READ:
                raise BadInput(f"Expected {where} to have 8 bits a channel, got a picture of mode {picture.mode}.")
            opaque = picture.convert("RGBA") if "transparency" in picture.info else picture
            pixels = np.asarray(opaque.convert(MODES[channels]), dtype=np.uint8)
    except BadInput:
        raise
    except Exception as error:  # damaged files make Pillow raise errors of many kinds
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
        reason = "another kind of file" if "cannot identify" in reason else reason
        raise BadInput(f"Expected {where} to be a whole PNG or JPEG picture, got {reason}.") from error
    return np.ascontiguousarray(pixels.reshape(height, width, channels).transpose(2, 0, 1))


def digests_of(contents: Sequence[bytes], labels: Sequence[int]) -> NDArray[np.uint8]:
    """The digest of each picture's file and label, uint8 [n, 32]; alike on machines whose decoders differ."""
    digests = (
        blake2b(int(label).to_bytes(8, "little") + content, digest_size=DIGEST_BYTES).digest()
        for label, content in zip(labels, contents, strict=True)
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def content_of_pictures(contents: Iterable[bytes]) -> Content:
    """The content that identifies a data set: the set of its files, whatever their names, labels and order."""
    return Content.of(sorted(blake2b(content).digest() for content in contents))
