"""Pictures: every kind of PNG and JPEG that is read, as it should look; and what cannot be used, in one sentence."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.pictures import MOST_NAMES, Orientation, PictureDeclaration

HEIGHT, WIDTH = 4, 5
GENERATOR = np.random.default_rng(0)
COLOURS = GENERATOR.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
WIDE = GENERATOR.integers(0, 65_536, (HEIGHT, WIDTH, 4), dtype=np.uint16)
ORIENTATION = 0x0112
GREY, RGB, GREY_AND_ALPHA, RGBA = 0, 2, 4, 6
SAMPLES = {GREY: 1, RGB: 3, GREY_AND_ALPHA: 2, RGBA: 4}
"""The numbers of a pixel, by PNG's types of colours."""

PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""Where the seven parts of an interlaced picture begin, and how far their rows and columns lie apart."""


def declared(channels: int = 3, largest: float = 255.0, orientation: str = "stored", **changed: Any) -> Any:
    given = {"shape": (channels, HEIGHT, WIDTH), "orientation": Orientation(orientation), "largest": largest}
    return PictureDeclaration(range_key="dataset.scale", range_value=largest, **given | changed)


def decoded(content: bytes, **options: Any) -> np.ndarray:
    """The pixels [height, width, channels] of one file."""
    return declared(**options).decode_pictures([content], ["a.png"], "in photos")[0].transpose(1, 2, 0)


def refusal(contents: list[bytes], names: list[str] | None = None, **options: Any) -> str:
    names = names or [f"{place}.png" for place in range(len(contents))]
    with pytest.raises(BadInput) as refused:
        declared(**options).decode_pictures(contents, names, "in photos")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def tagged(tag: int, kind: str = "PNG", image: Image.Image | None = None) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = tag
    return saved(image or Image.fromarray(COLOURS), kind, exif=exif)


def png_of_16_bits(pixels: np.ndarray, colours: int, more: bytes = b"", *, interlaced: bool = False) -> bytes:
    """A PNG file written by its specification, since Pillow writes only grey ones of 16 bits."""
    parts = [pixels[y::down, x::right] for y, x, down, right in (PASSES if interlaced else ((0, 0, 1, 1),))]

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, colours, 0, 0, interlaced)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in parts if part.size for row in part)
    chunks = (chunk(b"IHDR", header), more, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("tag", range(1, 9))
def test_pictures_are_turned_as_their_exif_data_say_where_that_is_declared(tag: int, kind: str) -> None:
    stored = Image.fromarray(COLOURS if tag < 5 else COLOURS.swapaxes(0, 1).copy())
    content = tagged(tag, kind, stored)
    with Image.open(BytesIO(content)) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert upright.shape == (HEIGHT, WIDTH, 3)
    assert np.array_equal(decoded(content, orientation="exif"), upright)


@pytest.mark.parametrize("tag", [3, 6])
def test_wide_pictures_are_turned_too(tag: int) -> None:
    wide = WIDE[:, :, 0] if tag == 3 else WIDE[:, :, 0].T.copy()
    content = tagged(tag, image=Image.fromarray(wide))
    with Image.open(BytesIO(content)) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(decoded(content, channels=1, largest=65_535.0, orientation="exif")[:, :, 0], upright)


@pytest.mark.parametrize("tag", range(2, 9))
def test_a_picture_that_says_that_it_lies_is_refused_unless_it_is_declared_what_to_do(tag: int) -> None:
    content = tagged(tag)
    assert refusal([content]) == (
        f"Expected 0.png in photos to be stored upright, as dataset.orientation=stored says, got EXIF orientation {tag}"
        ": declare dataset.orientation=exif to turn each picture as its own file says, or dataset.orientation=ignored "
        "to take all of them as they are stored."
    )
    assert np.array_equal(decoded(content, orientation="ignored"), COLOURS)


def test_a_photo_on_its_side_has_the_wrong_size_only_as_it_would_be_read() -> None:
    on_its_side = tagged(6, image=Image.fromarray(COLOURS.swapaxes(0, 1).copy()))
    assert "EXIF orientation 6: declare dataset.orientation=exif" in refusal([on_its_side])
    assert "of 4 x 5 pixels, as dataset.shape says, got 5 x 4" in refusal([on_its_side], orientation="ignored")
    assert "of 4 x 5 pixels, as dataset.shape says, got 5 x 4" in refusal([tagged(6)], orientation="exif")


@pytest.mark.parametrize("orientation", Orientation)
@pytest.mark.parametrize(
    "content",
    [
        *(tagged(tag) for tag in (0, 1, 9)),
        *(
            saved(Image.fromarray(COLOURS), exif=b"Exif\0\0" + exif)
            for exif in (b"garbage", b"MM\0*\0\0\0\x08\0\x05", b"")
        ),
    ],
)
def test_exif_data_that_say_nothing_of_a_turn_turn_nothing(content: bytes, orientation: str) -> None:
    assert np.array_equal(decoded(content, orientation=orientation), COLOURS)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("colours", SAMPLES)
def test_16_bits_are_read_in_full(colours: int, interlaced: bool) -> None:
    pixels = WIDE[:, :, : SAMPLES[colours]]
    content = png_of_16_bits(pixels, colours, interlaced=interlaced)
    found = decoded(content, largest=65_535.0)
    assert found.dtype == np.uint16
    expected = pixels[:, :, :3] if SAMPLES[colours] >= 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
    assert np.array_equal(found, expected)
    if SAMPLES[colours] < 3:
        assert np.array_equal(decoded(content, channels=1, largest=65_535.0), pixels[:, :, :1])


def test_wide_colours_become_grey_as_bytes_do() -> None:
    narrow = np.asarray(Image.fromarray(COLOURS).convert("L"))
    found = decoded(png_of_16_bits(COLOURS.astype(np.uint16) * 257, RGB), channels=1, largest=65_535.0)[:, :, 0]
    assert np.abs(found / 257 - narrow).max() <= 0.5, "bytes are rounded"
    white = decoded(png_of_16_bits(np.full_like(WIDE, 65_535), RGBA), channels=1, largest=4_095.0)
    assert (white == 65_535).all()


def test_a_colour_that_stands_for_transparency_stays_that_colour() -> None:
    transparent = struct.pack(">I", 6) + b"tRNS" + WIDE[0, 0, :3].astype(">u2").tobytes()
    chunk = transparent + struct.pack(">I", zlib.crc32(transparent[4:]))
    found = decoded(png_of_16_bits(WIDE[:, :, :3], RGB, chunk), largest=65_535.0)
    assert np.array_equal(found, WIDE[:, :, :3])
    key = saved(Image.fromarray(COLOURS), transparency=tuple(COLOURS[0, 0].tolist()))
    assert np.array_equal(decoded(key), COLOURS)
    grey = saved(Image.fromarray(COLOURS[:, :, 0]), transparency=int(COLOURS[0, 0, 0]))
    assert np.array_equal(decoded(grey, channels=1)[:, :, 0], COLOURS[:, :, 0])


def test_pillows_own_16_bits_are_read_in_full() -> None:
    content = saved(Image.fromarray(WIDE[:, :, 0]))
    assert np.array_equal(decoded(content, channels=1, largest=65_535.0)[:, :, 0], WIDE[:, :, 0])


def test_8_and_16_bits_do_not_mix() -> None:
    wide, narrow = png_of_16_bits(WIDE[:, :, :3], RGB), saved(Image.fromarray(COLOURS))
    jpeg = saved(Image.fromarray(COLOURS), "JPEG")
    assert refusal([narrow, wide]) == (
        "Expected 1.png in photos to have 8 bits a channel, as dataset.scale=255.0 says, got 16: where all pictures "
        "have 16, declare dataset.scale=65535."
    )
    assert refusal([narrow, wide, jpeg], largest=65_535.0) == (
        "Expected each picture in photos to have 16 bits a channel, as dataset.scale=65535.0 says, got 8 at 0.png, "
        "2.png; where all pictures have 8, declare dataset.scale=255."
    )
    assert np.array_equal(decoded(narrow, largest=256.0), COLOURS), "bytes are divided by 256 too"


@pytest.mark.parametrize("colour", [(255, 0, 0), (20, 200, 90), (255, 255, 255), (0, 0, 0)])
def test_inks_become_colours_though_adobe_stores_them_inverted(colour: tuple[int, int, int]) -> None:
    inks = Image.new("RGB", (WIDTH, HEIGHT), colour).convert("CMYK")
    adobes = saved(inks, "JPEG", quality=100)
    assert b"Adobe" in adobes
    assert np.abs(decoded(adobes).astype(int) - np.array(colour)).max() <= 4


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_every_kind_of_colours_is_read_without_its_transparency(mode: str, channels: int) -> None:
    image = Image.fromarray(COLOURS).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(COLOURS[:, :, 1]))
    opaque = np.asarray(image.convert("RGB"))
    kept = opaque if channels == 3 else np.asarray(Image.fromarray(opaque).convert("L"))[:, :, None]
    assert np.array_equal(decoded(saved(image), channels=channels), kept)
    if mode == "P":
        transparent = saved(image, transparency=bytes(range(256)))
        assert np.array_equal(decoded(transparent, channels=channels), kept)
        assert np.array_equal(decoded(saved(image, transparency=0), channels=channels), kept)


def test_an_animated_picture_is_refused_and_of_a_telephones_file_the_first_is_read() -> None:
    frames = [Image.fromarray(np.roll(COLOURS, place, axis=0)) for place in range(3)]
    animated = saved(frames[0], save_all=True, append_images=frames[1:])
    assert refusal([animated]) == (
        "Expected 0.png in photos to be one picture, got 3 in an animated one: keep the one that is meant."
    )
    several = saved(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert np.array_equal(decoded(several), decoded(saved(frames[0], "JPEG")))


def test_all_that_cannot_be_used_are_named_at_once() -> None:
    whole, large, wide = (
        saved(Image.fromarray(COLOURS)),
        saved(Image.new("RGB", (50, 60))),
        saved(Image.new("L", (9, 4))),
    )
    names = [f"{place}.png" for place in range(30)]
    contents = [b"" if place < 24 else large if place < 26 else wide if place < 27 else whole for place in range(30)]
    assert refusal(contents, names) == (
        "Expected each picture in photos to be a whole PNG or JPEG picture, got another kind of file at "
        + ", ".join(names[:MOST_NAMES])
        + " and 4 more; and to be a picture of 4 x 5 pixels, as dataset.shape says, got 24.png (60 x 50), 25.png "
        "(60 x 50), 26.png (4 x 9); resize pictures one at a time."
    )


def test_a_size_that_differs_takes_no_memory_and_a_damaged_file_is_said_to_be_one() -> None:
    whole = saved(Image.fromarray(COLOURS))
    assert "to be a whole PNG or JPEG picture, got OSError" in refusal([whole[:-40]])
    wide = png_of_16_bits(WIDE, RGBA)
    assert "to be a whole PNG or JPEG picture, got OSError" in refusal([wide[:-40]], largest=65_535.0)
    header = bytearray(whole)
    header[16:24] = struct.pack(">II", 9_000, 9_000)
    header[29:33] = struct.pack(">I", zlib.crc32(bytes(header[12:29])))
    assert "of 4 x 5 pixels, as dataset.shape says, got 9000 x 9000" in refusal([bytes(header)])
