"""Pictures inside a job: decode_ofrecord's codecs, and the chain from image decoder to CropMirrorNormalize."""

from __future__ import annotations

import io
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import oneflow as flow
from oneflow import data as fdata
from oneflow import image
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import DataError, JobError
from oneflow.engine.core.placement import parse_placement
from oneflow.engine.core.record.messages import FeatureValue, encode_record
from oneflow.engine.data.formats.records import write_records
from oneflow.engine.data.image import decode, keep_aspect_size, resize, shorter_side_size
from oneflow.engine.ir.trace import Trace, tracing

COUNT = 6


def picture(i: int, kind: str = "JPEG") -> bytes:
    rng = np.random.default_rng(i)
    small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize((40 + 3 * i, 30 + 5 * i), Image.Resampling.BICUBIC).save(data, kind)
    return data.getvalue()


PICTURES = [picture(i, "PNG" if i == 4 else "JPEG") for i in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures")
    records = [
        encode_record(
            {
                "encoded": FeatureValue("bytes_list", [PICTURES[i]]),
                "label": FeatureValue("int32_list", np.array([i], np.int32)),
            }
        )
        for i in range(COUNT)
    ]
    write_records(path / "part-0", records[:4])
    write_records(path / "part-1", records[4:])
    return path


@contextmanager
def job():
    settings = SimpleNamespace(
        is_train=False, default_data_type=dtypes.float32, default_initializer=None, random_seed=0
    )
    trace = Trace("job", settings, {}, parse_placement("cpu", "0:0"))
    with tracing(trace):
        yield trace


def run(body, steps: int = 1) -> list[dict[str, np.ndarray]]:
    """What ``steps`` calls of a job are fed by its readers, by the names that ``body`` gives its blobs."""
    with job() as trace:
        blobs = body()
    trace.graph.results = {name: blob.node for name, blob in blobs.items()}
    trace.graph.drop_unused_sources()
    found = []
    for _ in range(steps):
        fed = {
            node: tensor.numpy().copy()
            for source, nodes in trace.graph.sources
            for node, tensor in zip(nodes, source.next(), strict=True)
        }
        found.append({name: fed[blob.node] for name, blob in blobs.items()})
    trace.graph.close_sources()
    return found


def reader(folder, batch_size=COUNT, **more):
    return fdata.ofrecord_reader(folder, batch_size, 2, **more)


# ------------------------------------------------------------------ decode_ofrecord


def decoded(folder, codec, shape=(24, 20, 3), dtype=dtypes.float32, steps=1, key="encoded", **more):
    def body():
        conf = fdata.BlobConf(key, shape=shape, dtype=dtype, codec=codec, **more)
        return {"x": fdata.decode_ofrecord(folder, [conf], batch_size=COUNT, data_part_num=2)[0]}

    return np.concatenate([step["x"] for step in run(body, steps)])


def test_image_codec_is_blue_green_red_and_bilinear(folder):
    found = decoded(folder, fdata.ImageCodec([fdata.ImageResizePreprocessor(20, 24)]))
    assert found.dtype == np.float32
    for row, data in zip(found, PICTURES, strict=True):
        np.testing.assert_array_equal(row, resize(decode(data, "BGR"), 20, 24, "linear"))


def test_image_codec_grey_and_bgr2rgb(folder):
    small = fdata.ImageResizePreprocessor(20, 24)
    grey = decoded(folder, fdata.ImageCodec([small]), (24, 20, 1), dtypes.uint8)
    np.testing.assert_array_equal(grey[1], resize(decode(PICTURES[1], "GRAY"), 20, 24, "linear"))
    swapped = decoded(folder, fdata.ImageCodec([small, fdata.ImagePreprocessor("bgr2rgb")]))
    np.testing.assert_array_equal(swapped, decoded(folder, fdata.ImageCodec([small]))[..., ::-1])


def test_mirror_flips_about_half(folder):
    small = fdata.ImageResizePreprocessor(20, 24)
    plain = decoded(folder, fdata.ImageCodec([small]), steps=20)
    mirrored = decoded(folder, fdata.ImageCodec([small, fdata.ImagePreprocessor("mirror")]), steps=20)
    flipped = [np.array_equal(a, b[:, ::-1]) for a, b in zip(mirrored, plain, strict=True)]
    assert all(np.array_equal(a, b) for a, b, f in zip(mirrored, plain, flipped, strict=True) if not f)
    assert 40 < sum(flipped) < 80


def test_crop(folder):
    fixed = decoded(folder, fdata.ImageCodec([fdata.ImageCropPreprocessor(20, 24, 3, 5, random_xy=False)]))
    np.testing.assert_array_equal(fixed[2], decode(PICTURES[2], "BGR")[5:29, 3:23])
    moving = decoded(folder, fdata.ImageCodec([fdata.ImageCropPreprocessor(20, 24)]), steps=3)
    assert len({row.tobytes() for row in moving[::COUNT]}) == 3
    with pytest.raises(
        DataError, match=r"part-0: record 0 at byte 0: .*a crop of 50 x 20 does not fit in a picture of 40 x 30"
    ):
        decoded(folder, fdata.ImageCodec([fdata.ImageCropPreprocessor(50, 20)]))


def test_center_crop_takes_the_largest_part_of_its_shape(folder):
    found = decoded(folder, fdata.ImageCodec([fdata.ImageCenterCropPreprocessor(20, 24)]))
    picture = decode(PICTURES[0], "BGR")  # 30 x 40: a part of 5 : 6 is 30 x 25, 7 pixels from the left
    np.testing.assert_array_equal(found[0], resize(picture[:, 7:32], 20, 24, "linear"))


def test_target_resize_keeps_the_shape_of_a_picture(folder):
    corner = fdata.ImageCropPreprocessor(10, 9, random_xy=False)
    expected = resize(decode(PICTURES[0], "BGR"), 20, 15, "linear")[:9, :10]  # of 40 x 30
    for step in (dict(target_size=15), dict(target_size=60, max_size=20), dict(target_size=20, resize_side="longer")):
        found = decoded(folder, fdata.ImageCodec([fdata.ImageTargetResizePreprocessor(**step), corner]), (9, 10, 3))
        np.testing.assert_array_equal(found[0], expected)


def test_crops_of_random_size_lie_in_the_picture(folder):
    small = fdata.ImageResizePreprocessor(20, 24)
    whole = fdata.ImageCropWithRandomSizePreprocessor(aspect_ratio=(4 / 3, 4 / 3), area=(1.0, 1.0))
    np.testing.assert_array_equal(
        decoded(folder, fdata.ImageCodec([whole, small]))[0], decoded(folder, fdata.ImageCodec([small]))[0]
    )  # of 40 x 30
    rows = decoded(folder, fdata.ImageCodec([fdata.ImageCropWithRandomSizePreprocessor(), small]), steps=3)
    assert len({row.tobytes() for row in rows[::COUNT]}) == 3
    with pytest.raises(DataError, match=r"where shape \(24, 20, 3\) was asked for"):
        decoded(folder, fdata.ImageCodec([fdata.ImageCropWithRandomSizePreprocessor()]))


def test_a_picture_of_another_size_is_an_error(folder):
    with pytest.raises(DataError, match=r"part-0: record 0 .*is \(30, 40, 3\).*ImageResizePreprocessor"):
        decoded(folder, fdata.ImageCodec())


@pytest.mark.parametrize(("data_format", "mean"), [("channels_last", (1.0, 2.0, 3.0)), ("no_channel", (5.0, 0.0, 0.0))])
def test_norm_by_channel(folder, data_format, mean):
    codec = fdata.ImageCodec([fdata.ImageResizePreprocessor(20, 24)])
    norm = fdata.NormByChannelPreprocessor(mean, (2.0, 4.0, 8.0), data_format)
    found = decoded(folder, codec, preprocessors=[norm])
    expected = decoded(folder, codec)
    expected = (
        (expected - np.float32(mean)) / np.float32((2, 4, 8)) if data_format == "channels_last" else (expected - 5) / 2
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_raw_numbers_are_normalised_too(folder):
    norm = fdata.NormByChannelPreprocessor((1.0,), (2.0,), "channels_first")
    np.testing.assert_array_equal(
        decoded(folder, fdata.RawCodec(), (1,), key="label", preprocessors=[norm])[:, 0], (np.arange(COUNT) - 1) / 2
    )


def test_bytes_list_codec(folder):
    found = decoded(folder, fdata.BytesListCodec(), (2, 10_000), dtypes.uint8)
    assert found[0, 0, : len(PICTURES[0])].tobytes() == PICTURES[0]
    assert not found[0, 0, len(PICTURES[0]) :].any()
    assert not found[0, 1].any()


# ------------------------------------------------------------------ the reader's chain


def test_resize_to_a_blob(folder):
    def body():
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded", color_space="RGB")
        resized, scale, size = image.Resize(images, target_size=[33, 28])
        assert size is None
        assert (resized.shape, resized.dtype) == ((COUNT, 28, 33, 3), flow.uint8)
        return {"pixels": resized, "scale": scale}

    (found,) = run(body)
    for i, data in enumerate(PICTURES):
        pixels = decode(data, "RGB")
        np.testing.assert_array_equal(found["pixels"][i], resize(pixels, 33, 28, "auto"))
        np.testing.assert_allclose(found["scale"][i], (33 / pixels.shape[1], 28 / pixels.shape[0]), rtol=1e-6)


def test_old_form_of_resize(folder):
    def body():
        images = fdata.ofrecord_image_decoder(reader(folder), "encoded")
        new_size = image.resize(images, target_size=(20, 24), color_space="BGR")
        return {"pixels": image.resize(images, resize_x=20, resize_y=24), "new size, old color": new_size}

    (found,) = run(body)
    np.testing.assert_array_equal(found["new size, old color"], found["pixels"])
    np.testing.assert_array_equal(found["pixels"][3], resize(decode(PICTURES[3], "BGR"), 20, 24, "linear"))


MEAN, STD = (123.68, 116.779, 103.939), (58.393, 57.12, 57.375)


def test_evaluation_chain(folder):
    """Shorter side to 28, the middle of 20 x 24, normalised: as the CNN programs evaluate."""

    def body():
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded", color_space="RGB")
        resized = image.Resize(images, resize_shorter=28)
        return {"x": image.CropMirrorNormalize(resized, color_space="RGB", crop_h=20, crop_w=24, mean=MEAN, std=STD)}

    (found,) = run(body)
    assert found["x"].shape == (COUNT, 3, 20, 24)
    for row, data in zip(found["x"], PICTURES, strict=True):
        pixels = decode(data, "RGB")
        pixels = resize(pixels, *shorter_side_size(pixels.shape[1], pixels.shape[0], 28), "linear")
        top, left = (pixels.shape[0] - 20) // 2, (pixels.shape[1] - 24) // 2
        part = pixels[top : top + 20, left : left + 24].astype(np.float32)
        np.testing.assert_allclose(row, ((part - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1), atol=0.02)


def test_keep_aspect_ratio_gives_sizes(folder):
    def body():
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded")
        resized, scale, size = image.Resize(images, target_size=40, keep_aspect_ratio=True, resize_side="longer")
        x = image.CropMirrorNormalize(
            resized, crop_h=20, crop_w=20, crop_pos_x=0.0, crop_pos_y=1.0, output_layout="NHWC"
        )
        return {"x": x, "scale": scale, "size": size}

    (found,) = run(body)
    pixels = decode(PICTURES[1], "BGR")
    new = keep_aspect_size(pixels.shape[1], pixels.shape[0], 40, "longer")
    assert found["size"][1].tolist() == list(new)
    np.testing.assert_allclose(found["scale"][1], (new[0] / 43, new[1] / 35), rtol=1e-6)
    np.testing.assert_allclose(found["x"][1], resize(pixels, *new, "auto")[-20:, :20], atol=1)


def training(folder, seed=None, coin_seed=3, reader_seed=0, **more):
    def body():
        records = reader(folder, batch_size=4, random_shuffle=True, shuffle_buffer_size=3, seed=reader_seed)
        label = fdata.OFRecordRawDecoder(records, "label", (), dtypes.int32)
        images = fdata.OFRecordImageDecoderRandomCrop(records, "encoded", color_space="RGB", seed=seed, name="crop")
        resized = image.Resize(images, target_size=(16, 16))
        flips = flow.random.CoinFlip(4, seed=coin_seed)
        x = image.CropMirrorNormalize(resized[0], mirror_blob=flips, color_space="RGB", mean=MEAN, std=STD, **more)
        return {"x": x, "label": label, "flips": flips, "pixels": resized[0]}

    return run(body, 8)


def test_training_chain(folder):
    """Random crop, resize, coin flip, normalise: the flips are the coin's, the pixels those of the resized blob."""
    for step in training(folder, output_layout="NHWC"):
        for x, flip, pixels in zip(step["x"], step["flips"], step["pixels"], strict=True):
            expected = (pixels.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
            np.testing.assert_allclose(x, expected[:, ::-1] if flip else expected, atol=0.02)


def test_randomness_is_a_function_of_the_seeds(folder):
    def same(a, b, name):
        return all(np.array_equal(p[name], q[name]) for p, q in zip(a, b, strict=True))

    first = training(folder)
    assert all(same(first, training(folder), name) for name in first[0])
    assert same(first, training(folder, coin_seed=4), "pixels")
    assert not same(first, training(folder, coin_seed=4), "flips")
    assert same(first, training(folder, seed=4), "flips")
    assert not same(first, training(folder, seed=4), "pixels")
    assert not same(first, training(folder, reader_seed=1), "label")
    flips = np.concatenate([step["flips"] for step in first])
    assert 4 < flips.sum() < 28


def test_what_nothing_reads_is_not_decoded(folder):
    with job() as trace:
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded")
        x = image.CropMirrorNormalize(image.Resize(images, target_size=(8, 8))[0])
    assert len(trace.graph.sources) == 3
    trace.graph.results = x.node
    trace.graph.drop_unused_sources()
    ((source, _),) = trace.graph.sources
    (tensor,) = source.next()
    assert tensor.shape == (COUNT, 3, 8, 8)
    source.close()


def test_bytes_decoder_and_image_decode(folder):
    def body():
        buffers = fdata.OFRecordBytesDecoder(reader(folder), "encoded")
        return {"x": image.Resize(image.decode(buffers, color_space="GRAY"), target_size=(9, 8), channels=1)[0]}

    (found,) = run(body)
    np.testing.assert_array_equal(found["x"][4], resize(decode(PICTURES[4], "GRAY"), 9, 8, "auto"))


def test_ofrecord_loader_is_the_older_reader(folder):
    def body():
        records = fdata.ofrecord_loader(folder, 4, 2, shuffle=True, shuffle_buffer_size=3)
        return {"label": fdata.OFRecordRawDecoder(records, "label", (), dtypes.int32)}

    assert [step["label"].tolist() for step in run(body, 8)] == [step["label"].tolist() for step in training(folder)]


def test_a_picture_of_another_job(folder):
    with job():
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded")
    with job(), pytest.raises(JobError, match="belongs to another job"):
        image.Resize(images, target_size=(8, 8))


# ------------------------------------------------------------------ whole jobs


def test_a_job_runs_the_chain_and_any_blob_mirrors(folder):
    """Flips by a coin are done by the reader, flips by an input of the job in the job; both flip the same way."""

    @flow.global_function()
    def mirrored(
        which: flow.typing.Numpy.Placeholder((COUNT,), flow.int8),
    ) -> tuple[flow.typing.Numpy, flow.typing.Numpy]:
        images = fdata.OFRecordImageDecoder(reader(folder), "encoded")
        pixels = image.Resize(images, target_size=(10, 8))[0]
        return image.CropMirrorNormalize(pixels, which, output_layout="NHWC"), pixels

    which = np.array([0, 1, 0, 1, 1, 0], np.int8)
    x, pixels = mirrored(which)
    for row, level, flip in zip(x, pixels, which, strict=True):
        np.testing.assert_allclose(row, level[:, ::-1] if flip else level, atol=1)


def test_a_bad_picture_stops_the_job_with_its_place(tmp_path):
    good, bad = (
        encode_record({"encoded": FeatureValue("bytes_list", [data])}) for data in (PICTURES[0], PICTURES[0][:300])
    )
    write_records(tmp_path / "part-0", [good, bad])

    def define(**more):
        @flow.global_function()
        def read() -> flow.typing.Numpy:
            images = fdata.OFRecordImageDecoder(fdata.ofrecord_reader(tmp_path, 1, **more), "encoded")
            return image.CropMirrorNormalize(image.Resize(images, target_size=(8, 8))[0])

        return read

    read = define()
    first = read()
    with pytest.raises(DataError, match=rf"part-0: record 1 at byte {len(good) + 8}: broken JPEG"):
        read()
    lenient = define(on_error="skip")
    assert all(np.array_equal(lenient(), first) for _ in range(4))
