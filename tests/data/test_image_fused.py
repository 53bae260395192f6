from __future__ import annotations

import random
import struct
import threading

import numpy as np
import pytest
import simplejpeg
import torch
from pictures import photo, stored, ticks_during
from PIL import Image
from test_image_decode import broken_pictures

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.image import (
    Window,
    backend,
    decode,
    decode_crop_resize_normalize,
    native,
    random_crop_window,
    resize,
    shorter_side_size,
)

MEAN, STD = (123.68, 116.78, 103.94), (58.4, 57.1, 57.4)
PHOTO = photo(161, 121)
BACKENDS = [
    "python",
    pytest.param("native", marks=pytest.mark.skipif(native.library is None, reason="the extension was not built")),
]
FILES = {
    "420": stored(PHOTO, quality=90),
    "422": stored(PHOTO, subsampling=1),
    "444": stored(PHOTO, subsampling=0),
    "440": simplejpeg.encode_jpeg(PHOTO, colorsubsampling="440"),
    "411": simplejpeg.encode_jpeg(PHOTO, colorsubsampling="411"),
    "progressive": stored(PHOTO, progressive=True),
    "restarts": stored(PHOTO, restart_marker_rows=1),
    "rgb": stored(PHOTO, keep_rgb=True),
    "grey": stored(PHOTO[:, :, 0]),
    "cmyk": stored(Image.fromarray(PHOTO).convert("CMYK")),
    "png": stored(PHOTO, "PNG"),
}


@pytest.fixture(params=BACKENDS)
def each_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ONEFLOW_IMAGE_BACKEND", request.param)
    assert backend() == request.param
    return request.param


def random_window(rng: random.Random, width: int = 161, height: int = 121) -> Window:
    w, h = rng.randint(1, width), rng.randint(1, height)
    return Window(rng.randint(0, width - w), rng.randint(0, height - h), w, h)


@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("name", FILES)
def test_a_window_without_resizing_has_exactly_the_pixels_of_a_full_decode(
    each_backend: str, name: str, color: str
) -> None:
    full = decode(FILES[name], color)
    rng = random.Random(name)
    for _ in range(25):
        window, flip = random_window(rng), rng.random() < 0.5
        out = np.full((full.shape[2], window.h, window.w), np.nan, np.float32)
        decode_crop_resize_normalize(FILES[name], window, None, flip, (0,), (1,), out, color=color)
        part = full[window.y : window.y + window.h, window.x : window.x + window.w]
        np.testing.assert_array_equal(out, (part[:, ::-1] if flip else part).transpose(2, 0, 1))


@pytest.mark.parametrize("name", FILES)
def test_a_narrow_window_has_exactly_the_pixels_of_a_full_decode(each_backend: str, name: str) -> None:
    full = decode(FILES[name], "RGB")
    for x, w in ((0, 1), (0, 2), (1, 1), (15, 3), (64, 2), (158, 3), (160, 1)):
        out = np.full((3, 40, w), np.nan, np.float32)
        decode_crop_resize_normalize(FILES[name], Window(x, 50, w, 40), None, False, (0,), (1,), out)
        np.testing.assert_array_equal(out, full[50:90, x : x + w].transpose(2, 0, 1))


def test_enlarging_by_area_takes_the_same_pixels_in_both_backends(each_backend: str) -> None:
    """Where a pixel of the result begins exactly where one of the source ends, rounding decides which it is."""
    image = decode(FILES["444"])
    for old in range(1, 60, 2):
        for new in (old + 1, 2 * old - 1, 7 * old, 110):
            for method in ("area", "nearest"):
                out = np.empty((3, 2, new), np.float32)
                decode_crop_resize_normalize(
                    FILES["444"], Window(0, 0, old, 2), None, False, (0,), (1,), out, method=method
                )
                assert np.abs(out - resize(image[:2, :old], new, 2, method).transpose(2, 0, 1)).max() <= 0.501, (
                    old,
                    new,
                    method,
                )


@pytest.mark.parametrize("method", ["antialias", "linear", "area", "nearest", "auto"])
def test_every_method_is_resize_within_one_level(each_backend: str, method: str) -> None:
    rng = random.Random(method)
    for _ in range(25):
        window = random_window(rng)
        width, height = rng.randint(1, 200), rng.randint(1, 200)
        out = np.empty((3, height, width), np.float32)
        decode_crop_resize_normalize(FILES["420"], window, None, False, (0,), (1,), out, method=method)
        part = decode(FILES["420"])[window.y : window.y + window.h, window.x : window.x + window.w]
        expected = resize(part, width, height, method).transpose(2, 0, 1)
        assert np.abs(out - expected).max() <= 1.001, (window, width, height)


def test_crop_and_resize_equal_pillows_within_one_level(each_backend: str) -> None:
    rng = random.Random(0)
    image = Image.fromarray(decode(FILES["420"]))
    for _ in range(25):
        x, y, w, h = random_crop_window(161, 121, (0.08, 1.0), (3 / 4, 4 / 3), 10, rng.random)
        expected = np.asarray(image.crop((x, y, x + w, y + h)).resize((64, 48), Image.Resampling.BILINEAR)).transpose(
            2, 0, 1
        )
        out = torch.empty(3, 48, 64)
        decode_crop_resize_normalize(FILES["420"], Window(x, y, w, h), (64, 48), False, (0,), (1,), out)
        assert np.abs(out.numpy() - expected).max() <= 1.001


def test_normalised_in_both_layouts(each_backend: str) -> None:
    planes, pixels, levels = torch.empty(3, 30, 40), torch.empty(30, 40, 3), torch.empty(3, 30, 40)
    window = Window(5, 6, 100, 90)
    decode_crop_resize_normalize(FILES["420"], window, None, True, (0,), (1,), levels)
    decode_crop_resize_normalize(FILES["420"], window, None, True, MEAN, STD, planes)
    decode_crop_resize_normalize(FILES["420"], window, None, True, MEAN, STD, pixels, layout="HWC")
    expected = (levels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    torch.testing.assert_close(planes, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pixels.permute(2, 0, 1), planes, atol=1e-6, rtol=1e-6)


def test_only_the_slot_of_a_batch_is_written(each_backend: str) -> None:
    batch = torch.zeros(3, 3, 32, 32)
    decode_crop_resize_normalize(FILES["420"], None, None, False, (-1,), (1,), batch[1])
    assert batch[0].abs().max() == 0 and batch[2].abs().max() == 0
    assert batch[1].min() >= 1


def test_resize_the_shorter_side_then_cut_the_middle(each_backend: str) -> None:
    out = np.empty((3, 56, 56), np.float32)
    decode_crop_resize_normalize(FILES["420"], None, lambda w, h: shorter_side_size(w, h, 64), False, (0,), (1,), out)
    resized = resize(decode(FILES["420"]), 85, 64)
    assert np.abs(out - resized[4:60, 14:70].transpose(2, 0, 1)).max() <= 1.001
    decode_crop_resize_normalize(FILES["420"], None, (85, 64), False, (0,), (1,), out, anchor=(1.0, 0.0))
    assert np.abs(out - resized[:56, 29:].transpose(2, 0, 1)).max() <= 1.001


def test_the_window_may_depend_on_the_size(each_backend: str) -> None:
    asked = []

    def lower_half(width: int, height: int) -> Window:
        asked.append((width, height))
        return Window(0, height // 2, width, height - height // 2)

    out = np.empty((3, 61, 161), np.float32)
    decode_crop_resize_normalize(FILES["420"], lower_half, None, False, (0,), (1,), out)
    assert asked == [(161, 121)]
    np.testing.assert_array_equal(out, decode(FILES["420"])[60:].transpose(2, 0, 1))


@pytest.mark.parametrize("name", broken_pictures())
def test_a_broken_picture_is_an_error(each_backend: str, name: str) -> None:
    out = np.empty((3, 16, 16), np.float32)
    with pytest.raises(DataError):
        decode_crop_resize_normalize(broken_pictures()[name], None, None, False, (0,), (1,), out)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_cut_below_the_window_is_an_error(each_backend: str, progressive: bool) -> None:
    thumbnail, jpeg = stored(photo(16, 12)), stored(photo(640, 480), progressive=progressive)
    jpeg = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + jpeg[2:]
    out = np.empty((3, 16, 16), np.float32)
    decode_crop_resize_normalize(jpeg, Window(0, 0, 20, 20), None, False, (0,), (1,), out)
    for length in (len(jpeg) // 2, len(jpeg) - 100, len(jpeg) - 2):
        with pytest.raises(DataError):
            decode_crop_resize_normalize(jpeg[:length], Window(0, 0, 20, 20), None, False, (0,), (1,), out)


def test_bytes_behind_the_end_do_no_harm(each_backend: str) -> None:
    out = np.empty((2, 3, 16, 16), np.float32)
    for i, data in enumerate((FILES["420"], FILES["420"] + b"\0" * 1000)):
        decode_crop_resize_normalize(data, Window(0, 0, 20, 20), None, False, (0,), (1,), out[i])
    np.testing.assert_array_equal(out[0], out[1])


@pytest.mark.parametrize(
    "profiles",
    [[b"\0\1"], [b"\1\2"], [b"\1\2", b"\1\2"], [b"\1\2", b"\2\3"]],
    ids=["number", "missing", "twice", "count"],
)
def test_a_broken_colour_profile_does_no_harm(each_backend: str, profiles: list[bytes]) -> None:
    """No profile is read, so that one which no reader would accept changes no pixel."""
    bodies = [b"ICC_PROFILE\0" + part + b"profile" for part in profiles]
    segments = b"".join(b"\xff\xe2" + struct.pack(">H", len(body) + 2) + body for body in bodies)
    with_profile, whole = FILES["420"][:2] + segments + FILES["420"][2:], Window(0, 0, 161, 121)
    out = np.empty((2, 3, 121, 161), np.float32)
    for i, data in enumerate((FILES["420"], with_profile)):
        decode_crop_resize_normalize(data, whole, None, False, (0,), (1,), out[i])
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(decode(with_profile), decode(FILES["420"]))
    with pytest.raises(DataError):
        decode_crop_resize_normalize(with_profile[: len(with_profile) // 2], whole, None, False, (0,), (1,), out[0])


def test_damaged_files_never_crash(each_backend: str) -> None:
    rng = random.Random(3)
    out = np.empty((3, 24, 24), np.float32)
    outcomes = set()
    for _ in range(300):
        data = bytearray(FILES[rng.choice(["420", "progressive", "grey", "422"])])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(2, len(data))] = rng.randrange(256)
        try:
            decode_crop_resize_normalize(data, None, None, False, (0,), (1,), out)
            outcomes.add("decoded")
        except DataError:
            outcomes.add("refused")
    assert outcomes == {"decoded", "refused"}


def test_threads_give_the_same_as_one(each_backend: str) -> None:
    rng = random.Random(5)
    windows = [random_window(rng) for _ in range(40)]

    def fill(batch: np.ndarray, share: slice) -> None:
        for window, slot in zip(windows[share], batch[share]):
            decode_crop_resize_normalize(FILES["420"], window, None, False, MEAN, STD, slot)

    alone, together = np.empty((2, 40, 3, 32, 32), np.float32)
    fill(alone, slice(None))
    threads = [threading.Thread(target=fill, args=(together, slice(i, None, 4))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(alone, together)


@pytest.mark.quiet
def test_other_threads_run_meanwhile(each_backend: str) -> None:
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(np.tile(photo(400, 300), (8, 8, 1))))
    out = np.empty((3, 64, 64), np.float32)
    assert ticks_during(lambda: decode_crop_resize_normalize(data, None, None, False, (0,), (1,), out)) >= 3


def test_wrong_arguments(each_backend: str) -> None:
    def call(out: object = None, **changes: object) -> None:
        arguments = {"window": None, "size": None, "flip": False, "mean": (0,), "std": (1,), **changes}
        decode_crop_resize_normalize(
            FILES["420"], out=np.empty((3, 8, 8), np.float32) if out is None else out, **arguments
        )  # type: ignore[arg-type]

    for changes, match in [
        ({"window": Window(0, 0, 162, 4)}, "does not lie within a picture of 161 x 121"),
        ({"size": (0, 8)}, "does not fit|at least 1"),
        ({"mean": (1, 2)}, "mean has 1 or 3 numbers"),
        ({"std": (1, 0, 1)}, "std must be above 0"),
        ({"method": "lanczos"}, "'lanczos'"),
        ({"layout": "NCHW"}, "'NCHW'"),
        ({"out": np.empty((3, 8, 8))}, "float64"),
        ({"out": np.empty((8, 8, 3), np.float32)}, "float32 of 3 channels"),
        ({"color": "CMYK"}, "'CMYK'"),
    ]:
        with pytest.raises((ArgumentError, DataError), match=match):
            call(**changes)
    with pytest.raises(DataError, match="8 x 8 does not fit in a picture of 4 x 20"):
        call(size=(4, 20))


def test_the_backend_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEFLOW_IMAGE_BACKEND", raising=False)
    assert backend() == ("python" if native.library is None else "native")
    monkeypatch.setenv("ONEFLOW_IMAGE_BACKEND", "gpu")
    with pytest.raises(ArgumentError, match="'gpu'"):
        backend()
    monkeypatch.setenv("ONEFLOW_IMAGE_BACKEND", "native")
    monkeypatch.setattr(native, "library", None)
    with pytest.raises(ArgumentError, match="was not built"):
        backend()
