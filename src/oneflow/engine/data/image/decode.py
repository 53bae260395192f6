"""Compressed pictures to pixels: ordinary JPEG by libjpeg-turbo, everything else by Pillow.

A picture that is broken in any way the format lets one see is an error, never a picture with some wrong pixels. The
orientation noted in EXIF is not applied. The interpreter lock is free while pixels are decoded.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.optional import optional_package, package_or_stub

if TYPE_CHECKING:
    from PIL import Image  # most images are JPEG and never need it

_NEEDED_FOR = "decoding images"
simplejpeg = package_or_stub("simplejpeg", "vision", _NEEDED_FOR)

Bytes = bytes | bytearray | memoryview

COLORS = ("RGB", "BGR", "GRAY")

# A damaged header must not make us reserve gigabytes. Pillow refuses from the same number of pixels on.
MOST_PIXELS = 178_956_970

# Formats that are only data: Pillow would run other programs for some of the rest.
_FORMATS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "PPM", "TIFF", "WEBP")
_APP2, _START_OF_SCAN = 0xE2, 0xDA  # markers of JPEG
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def decode(data: Bytes, color: str = "RGB") -> np.ndarray:
    """The picture as uint8 of (height, width, channels): 3 channels in the order ``color`` names, or 1 for "GRAY".

    JPEG (also progressive, grey, CMYK), PNG (also palette, 16-bit), BMP, GIF (first frame), PPM, TIFF and WebP. 16-bit
    numbers keep their upper 8 bits, transparency is left out. What does not decode completely is a ``DataError``.
    """
    check_color(color)
    if is_jpeg(data):
        return _decode_jpeg(data, color)
    return _decode_other(data, color)


def size_of(data: Bytes) -> tuple[int, int]:
    """Width and height, read from the header alone."""
    if is_jpeg(data):
        return _jpeg_header(data)[:2]
    with _opened(data) as image:
        return image.size


def check_color(color: str) -> None:
    if color not in COLORS:
        raise ArgumentError(f"color is one of {', '.join(COLORS)}; got {color!r}")


def is_jpeg(data: Bytes) -> bool:
    return len(data) > 2 and data[0] == 0xFF and data[1] == 0xD8


def _decode_jpeg(data: Bytes, color: str) -> np.ndarray:
    width, height, stored = _jpeg_header(data)
    check_pixels(width, height)
    if stored in ("CMYK", "YCCK"):
        _jpeg_pixels(data, "CMYK")  # Pillow knows how to convert these, but does not tell what libjpeg warns of
        return _pillow_pixels(data, color)
    return _jpeg_pixels(data, color)


def _jpeg_header(data: Bytes) -> tuple[int, int, str]:
    try:
        height, width, stored, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except ValueError as error:
        raise DataError(f"broken JPEG header: {error}") from None
    except KeyError:  # simplejpeg looks up what a header cut short has not told
        raise DataError(f"broken JPEG header: cut short after {len(data)} bytes") from None
    return width, height, stored


def _jpeg_pixels(data: Bytes, color: str) -> np.ndarray:
    try:
        return simplejpeg.decode_jpeg(data, colorspace=color, strict=True)
    except ValueError as error:
        if "ICC" in str(error) and (bare := _without_profile(data)) is not None:
            return _jpeg_pixels(bare, color)
        raise DataError(f"broken JPEG: {error}") from None


def _without_profile(data: Bytes) -> bytes | None:
    """A JPEG without its colour profile: nothing here reads one, so that a broken one does not matter. None if there is
    none to leave out."""
    view, at, kept = memoryview(data), 2, [bytes(data[:2])]
    while at + 4 <= len(view) and view[at] == 0xFF and view[at + 1] != _START_OF_SCAN:
        end = at + 2 + int.from_bytes(view[at + 2 : at + 4], "big")
        if view[at + 1] != _APP2 or bytes(view[at + 4 : at + 16]) != b"ICC_PROFILE\0":
            kept.append(bytes(view[at:end]))
        at = end
    whole = b"".join([*kept, view[at:]])
    return whole if len(whole) < len(view) else None


def check_pixels(width: int, height: int) -> None:
    """A header that promises more pixels than any picture has is a ``DataError``."""
    if width * height > MOST_PIXELS:
        raise DataError(
            f"the header says {width} x {height} pixels, more than the {MOST_PIXELS} that are taken for a picture"
        )


def _decode_other(data: Bytes, color: str) -> np.ndarray:
    if bytes(data[:8]) == _PNG_SIGNATURE:
        _check_png(memoryview(data))
    return _pillow_pixels(data, color)


def _check_png(data: memoryview) -> None:
    """Checks the CRC of every chunk up to the end, because Pillow leaves out those of the pixels."""
    at = len(_PNG_SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        end = at + 12 + length
        if end > len(data):
            break
        if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise DataError(f"broken PNG: wrong CRC of the chunk {bytes(data[at + 4 : at + 8])!r} at byte {at}")
        if data[at + 4 : at + 8] == b"IEND":
            return
        at = end
    raise DataError(f"broken PNG: cut short after {len(data)} bytes")


def _opened(data: Bytes) -> Image.Image:
    pillow = optional_package("PIL.Image", "vision", _NEEDED_FOR)
    try:
        return pillow.open(io.BytesIO(data), formats=_FORMATS)
    except pillow.UnidentifiedImageError:
        raise DataError(f"not a picture: {len(data)} bytes that begin with {bytes(data[:8])!r}") from None
    except _pillow_errors() as error:
        raise DataError(f"broken picture: {error}") from None


def _pillow_errors() -> tuple[type[Exception], ...]:
    bomb = optional_package("PIL.Image", "vision", _NEEDED_FOR).DecompressionBombError
    return OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, bomb


def _pillow_pixels(data: Bytes, color: str) -> np.ndarray:
    with _opened(data) as image:
        check_pixels(*image.size)
        try:
            pixels = _eight_bit(image, "L" if color == "GRAY" else "RGB")
        except _pillow_errors() as error:
            raise DataError(f"broken {image.format} picture: {error}") from None
    if color == "GRAY":
        return pixels[:, :, None] if pixels.ndim == 2 else pixels[:, :, :1]
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if color == "BGR" else pixels


def _eight_bit(image: Image.Image, mode: str) -> np.ndarray:
    """The pixels in a mode of Pillow's, or as (height, width) if they are grey with more than 8 bits."""
    if image.mode == "F":
        raise DataError("a picture of floating-point numbers has no fixed range; convert it to 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow would clip these at 255 instead of scaling them
        deep = np.asarray(image)
        if deep.size and (deep.min() < 0 or deep.max() > 0xFFFF):
            raise DataError(f"pixel values from {deep.min()} to {deep.max()} are not those of 16 bits")
        return (deep >> 8).astype(np.uint8)
    return np.array(image.convert(mode))
