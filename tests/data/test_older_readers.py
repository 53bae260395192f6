"""Readers and picture ops that programs of 2020 and 2021 call, in jobs on one device."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from loader_records import picture

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.data.image import decode
from oneflow.engine.data.image.resize import resize


def called(body, *inputs):
    flow.clear_default_session()
    defs = [flow.FixedTensorDef(a.shape, dtype=flow.uint8 if a.dtype == np.uint8 else flow.int8) for a in inputs]

    @flow.global_function()
    def job(xs=defs or [flow.FixedTensorDef((1,))]):
        return body(*xs) if inputs else body()

    return job(list(inputs) or [np.zeros(1, np.float32)]).get()


def test_pictures_and_labels_by_one_reader(folder):
    def body():
        images, labels = flow.data.ofrecord_image_classification_reader(
            str(folder), "encoded", "label", 4, 3, color_space="RGB"
        )
        return flow.image.Resize(images, target_size=(8, 6))[0], labels

    pictures, labels = called(body)
    assert labels.numpy().tolist() == [[0], [1], [2], [3]]
    np.testing.assert_array_equal(pictures[2], resize(decode(picture(2), "RGB"), 8, 6, "auto"))


def test_a_random_part_in_one_size(folder):
    def body():
        records = flow.data.ofrecord_reader(str(folder), 4, 3)
        whole = flow.data.ImageDecoderRandomCropResize(
            flow.data.OFRecordBytesDecoder(records, "encoded"), 8, 6, random_area=[1, 1], random_aspect_ratio=[1.4, 1.5]
        )
        part = flow.image.random_crop(flow.data.OFRecordImageDecoder(records, "encoded"), seed=3)
        return whole, flow.image.Resize(part, target_size=(8, 6))[0]

    whole, part = called(body)
    assert whole.shape == part.shape == (4, 6, 8, 3) and whole.dtype == np.uint8
    assert (called(body)[1].numpy() == part.numpy()).all()


def test_flips_and_numbers_by_channel():
    x = np.random.default_rng(0).integers(0, 256, (4, 2, 3, 3), dtype=np.uint8)
    codes = np.int8([0, 1, 16, 17])
    flipped, all_flipped, normal = called(
        lambda image, code: (
            flow.image.flip(image, code),
            flow.image_flip(image, 1),
            flow.image.normalize(image, [2.0, 4.0, 5.0], [1.0, 2.0, 3.0]),
        ),
        x,
        codes,
    )
    np.testing.assert_array_equal(flipped, np.stack([x[0], x[1][:, ::-1], x[2][::-1], x[3][::-1, ::-1]]))
    np.testing.assert_array_equal(all_flipped, x[:, :, ::-1])
    np.testing.assert_allclose(normal, (x - np.float32([1, 2, 3])) / np.float32([2, 4, 5]), rtol=1e-6)
    with pytest.raises(ArgumentError, match="a code is 0, 1 .left to right., 16 .upside down. or 17 .both., got 2"):
        called(lambda image: flow.image.flip(image, 2), x)
    with pytest.raises(ArgumentError, match="a mean and a std other than 0 for each of 3 channels"):
        called(lambda image: flow.image.normalize(image, [1.0, 2.0], [0.0]), x)


def test_pictures_of_their_own_sizes_are_resized_before_they_are_flipped(folder):
    def body():
        return flow.image.flip(
            flow.data.OFRecordImageDecoder(flow.data.ofrecord_reader(str(folder), 4, 3), "encoded"), 1
        )

    with pytest.raises(UnsupportedError, match="pictures of their own sizes; give it what flow.image.Resize makes"):
        called(body)


def test_bicubic_follows_opencv_s_kernel():
    """By hand in one direction: the four neighbours of each place with the weights of the cubic kernel for a =
    -0.75."""
    line = np.random.default_rng(1).integers(0, 256, (1, 8, 1), dtype=np.uint8)

    def weight(t):
        t, a = abs(t), -0.75
        return (
            (a + 2) * t**3 - (a + 3) * t**2 + 1
            if t <= 1
            else a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
            if t < 2
            else 0.0
        )

    expected = []
    for i in range(13):
        place = (i + 0.5) * 8 / 13 - 0.5
        first = int(np.floor(place)) - 1
        expected.append(sum(weight(place - j) * float(line[0, min(max(j, 0), 7), 0]) for j in range(first, first + 4)))
    found = resize(line, 13, 1, "cubic")[0, :, 0].astype(float)
    assert np.abs(found - np.clip(expected, 0, 255)).max() <= 0.51


def indexed(folder, documents):
    sizes = np.array([len(d) for d in documents], "<i4")
    tokens = np.concatenate(documents).astype("<i4")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(sizes), len(sizes) + 1)
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype("<i8") * 4
    (folder / "text.idx").write_bytes(
        head + sizes.tobytes() + pointers.tobytes() + np.arange(len(sizes) + 1, dtype="<i8").tobytes()
    )
    (folder / "text.bin").write_bytes(tokens.tobytes())
    return str(folder / "text"), tokens


def test_tokens_in_a_row(tmp_path):
    prefix, tokens = indexed(tmp_path, [np.arange(1, 8), np.arange(8, 14)])

    @flow.global_function()
    def job() -> flow.typing.Numpy:
        return flow.data.megatron_gpt_mmap_data_loader(prefix, 3, 4, 2, shuffle=False)

    assert [job().tolist(), job().tolist()] == [[[1, 2, 3, 4], [4, 5, 6, 7]], [[7, 8, 9, 10], [10, 11, 12, 13]]]
    assert job().tolist()[0] == [1, 2, 3, 4] and tokens[0] == 1


def test_what_a_token_loader_does_not_take(tmp_path):
    prefix, _ = indexed(tmp_path, [np.arange(1, 8)])
    with pytest.raises(UnsupportedError, match="tokens are integers, got dtype float32"):
        called(lambda: flow.data.megatron_gpt_mmap_data_loader(prefix, 3, 4, 2, dtype=flow.float32))
    with pytest.raises(
        ArgumentError, match="split_sizes is a list of numbers and split_index the place of one of them"
    ):
        called(lambda: flow.data.megatron_gpt_mmap_data_loader(prefix, 3, 4, 2, split_sizes=["x"], split_index=0))
