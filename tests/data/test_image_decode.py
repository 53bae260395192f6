from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
import simplejpeg
from pictures import photo, read_back, stored, ticks_during
from PIL import Image

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.image import decode, size_of

PHOTO = photo(61, 45)


def deep_png(values: np.ndarray, color_type: int) -> bytes:
    """A 16-bit PNG, written from the format's description."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "options", [{}, {"quality": 95, "subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"keep_rgb": True}]
)
def test_jpeg_has_the_pixels_that_pillow_gives(options: dict) -> None:
    data = stored(PHOTO, **options)
    np.testing.assert_array_equal(decode(data), read_back(data))
    np.testing.assert_array_equal(decode(data, "BGR"), read_back(data)[:, :, ::-1])
    assert decode(memoryview(data), "GRAY").shape == (45, 61, 1)


def test_grey_of_a_colour_jpeg_is_its_luma() -> None:
    grey = decode(stored(PHOTO), "GRAY")[:, :, 0].astype(int)
    luma = PHOTO.astype(float) @ (0.299, 0.587, 0.114)
    assert np.abs(grey - luma).mean() < 4


@pytest.mark.parametrize("color", ["RGB", "BGR"])
def test_grey_jpeg_has_three_equal_channels(color: str) -> None:
    data = stored(PHOTO[:, :, 0])
    np.testing.assert_array_equal(decode(data, color), np.repeat(read_back(data, "L")[:, :, None], 3, 2))
    np.testing.assert_array_equal(decode(data, "GRAY")[:, :, 0], read_back(data, "L"))


def test_cmyk_jpeg() -> None:
    data = stored(Image.fromarray(PHOTO).convert("CMYK"), quality=95)
    np.testing.assert_array_equal(decode(data), read_back(data))
    np.testing.assert_array_equal(decode(data, "BGR"), read_back(data)[:, :, ::-1])
    np.testing.assert_array_equal(decode(data, "GRAY")[:, :, 0], read_back(data, "L"))


def test_png_of_every_kind() -> None:
    image = Image.fromarray(PHOTO)
    np.testing.assert_array_equal(decode(stored(PHOTO, "PNG")), PHOTO)
    np.testing.assert_array_equal(decode(stored(PHOTO, "PNG"), "BGR"), PHOTO[:, :, ::-1])
    np.testing.assert_array_equal(decode(stored(PHOTO[:, :, 1], "PNG"), "GRAY")[:, :, 0], PHOTO[:, :, 1])
    palette = image.quantize(16)
    np.testing.assert_array_equal(decode(stored(palette, "PNG")), np.asarray(palette.convert("RGB")))
    see_through = image.copy()
    see_through.putalpha(100)
    np.testing.assert_array_equal(decode(stored(see_through, "PNG")), PHOTO)
    black_and_white = image.convert("1")
    np.testing.assert_array_equal(
        decode(stored(black_and_white, "PNG"))[:, :, 0], np.asarray(black_and_white.convert("L"))
    )


def test_sixteen_bits_keep_their_upper_eight() -> None:
    deep = np.random.default_rng(0).integers(0, 1 << 16, (7, 5, 3), dtype=np.uint16)
    np.testing.assert_array_equal(decode(deep_png(deep, 2)), deep >> 8)
    np.testing.assert_array_equal(decode(deep_png(deep[:, :, 0], 0), "GRAY")[:, :, 0], deep[:, :, 0] >> 8)
    np.testing.assert_array_equal(decode(deep_png(deep[:, :, 0], 0)), np.repeat(deep[:, :, :1] >> 8, 3, 2))


@pytest.mark.parametrize(
    ("kind", "exact"), [("BMP", True), ("GIF", False), ("PPM", True), ("TIFF", True), ("WEBP", False)]
)
def test_other_formats(kind: str, exact: bool) -> None:
    data = stored(PHOTO, kind)
    np.testing.assert_array_equal(decode(data), PHOTO if exact else read_back(data))


def test_exif_orientation_is_left_alone() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = stored(PHOTO, exif=exif)
    np.testing.assert_array_equal(decode(turned), decode(stored(PHOTO)))
    assert size_of(turned) == (61, 45)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP"])
def test_size_is_width_and_height(kind: str) -> None:
    assert size_of(stored(PHOTO, kind)) == (61, 45)
    assert size_of(memoryview(stored(PHOTO, kind))) == (61, 45)


def broken_pictures() -> dict[str, bytes]:
    jpeg, png = stored(photo(160, 120)), stored(photo(40, 30), "PNG")
    cmyk = stored(Image.fromarray(photo(160, 120)).convert("CMYK"))
    middle, idat = len(jpeg) // 2, png.index(b"IDAT") + 30
    return {
        "nothing": b"",
        "text": b"this is not a picture",
        "jpeg cut in half": jpeg[:middle],
        "jpeg without its last bytes": jpeg[:-40],
        "jpeg header alone": jpeg[:300],
        "two bytes of jpeg": jpeg[:3],
        "jpeg overwritten in the middle": jpeg[:middle] + b"\xff\xda" * 20 + jpeg[middle + 40 :],
        "jpeg with a hole": jpeg[:middle] + jpeg[middle + 500 :],
        "jpeg of 65500 x 65500": huge_jpeg(jpeg),
        "cmyk cut in half": cmyk[: len(cmyk) // 2],
        "cmyk with a hole": cmyk[: len(cmyk) // 2] + cmyk[len(cmyk) // 2 + 500 :],
        "progressive cut in half": (p := stored(photo(160, 120), progressive=True))[: len(p) // 2],
        "png cut in half": png[: len(png) // 2],
        "png with one wrong bit": png[:idat] + bytes([png[idat] ^ 4]) + png[idat + 1 :],
        "png without its end": png[:-12],
        "gif cut": stored(PHOTO, "GIF")[:200],
        "bmp cut": stored(PHOTO, "BMP")[:2000],
        "webp cut": stored(PHOTO, "WEBP")[:200],
        "floating-point tiff": stored(Image.fromarray(PHOTO[:, :, 0].astype(np.float32)), "TIFF"),
    }


def huge_jpeg(jpeg: bytes) -> bytes:
    frame = jpeg.index(b"\xff\xc0")
    return jpeg[: frame + 5] + struct.pack(">HH", 65500, 65500) + jpeg[frame + 9 :]


@pytest.mark.parametrize("name", broken_pictures())
@pytest.mark.parametrize("color", ["RGB", "GRAY"])
def test_a_broken_picture_is_an_error(name: str, color: str) -> None:
    with pytest.raises(DataError):
        decode(broken_pictures()[name], color)


def test_errors_say_what_came() -> None:
    with pytest.raises(DataError, match="not a picture: 21 bytes that begin with b'this is '"):
        decode(b"this is not a picture")
    with pytest.raises(DataError, match="wrong CRC of the chunk b'IDAT' at byte 33"):
        decode(broken_pictures()["png with one wrong bit"])
    with pytest.raises(DataError, match="65500 x 65500 pixels"):
        decode(broken_pictures()["jpeg of 65500 x 65500"])
    with pytest.raises(ArgumentError, match="'CMYK'"):
        decode(stored(PHOTO), "CMYK")


def test_a_thumbnail_with_an_end_marker_does_not_hide_a_cut() -> None:
    thumbnail = stored(photo(16, 12))
    jpeg = stored(photo(160, 120))
    marked = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + jpeg[2:]
    assert decode(marked).shape == (120, 160, 3)
    with pytest.raises(DataError):
        decode(marked[: len(thumbnail) + 2000])


@pytest.mark.quiet
def test_other_threads_run_while_pixels_are_decoded() -> None:
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(np.tile(photo(400, 300), (8, 8, 1))))
    assert ticks_during(lambda: decode(data)) >= 3


def test_png_is_read_from_a_slice_of_a_larger_buffer() -> None:
    png = stored(PHOTO, "PNG")
    around = memoryview(b"xx" + png + b"yy")
    np.testing.assert_array_equal(decode(around[2 : 2 + len(png)]), PHOTO)
