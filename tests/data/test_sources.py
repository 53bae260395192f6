"""Readers, decoders and random batches inside a traced job."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from oneflow import data as fdata
from oneflow import image
from oneflow.core.record import record_pb2 as ofrecord
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import ArgumentError, DataError, JobError, NameError_, OutsideJobError, UnsupportedError
from oneflow.engine.core.placement import parse_placement
from oneflow.engine.data.formats.records import write_records
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.initializer import constant_initializer, zeros_initializer


@contextmanager
def job():
    settings = SimpleNamespace(
        is_train=False, default_data_type=dtypes.float32, default_initializer=None, random_seed=0
    )
    trace = Trace("job", settings, {}, parse_placement("cpu", "0:0"))
    with tracing(trace):
        yield trace


def step(trace) -> dict[str, np.ndarray]:
    """What one call of the job is fed, by op name."""
    fed = {}
    for source, nodes in trace.graph.sources:
        for node, tensor in zip(nodes, source.next(), strict=True):
            spec = op_note(node).spec
            assert (tuple(tensor.shape), tensor.dtype) == (spec.shape, spec.dtype.torch)
            fed[op_note(node).name] = tensor.numpy()
    return fed


def record(i: int) -> ofrecord.OFRecord:
    return ofrecord.OFRecord(
        feature={
            "label": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[i])),
            "image": ofrecord.Feature(float_list=ofrecord.FloatList(value=[i + n / 8 for n in range(6)])),
            "double": ofrecord.Feature(double_list=ofrecord.DoubleList(value=[i + 0.5])),
            "huge": ofrecord.Feature(double_list=ofrecord.DoubleList(value=[1e300, float("inf"), float("nan")])),
            "big": ofrecord.Feature(int64_list=ofrecord.Int64List(value=[2**40 + i])),
            "bytes": ofrecord.Feature(bytes_list=ofrecord.BytesList(value=[bytes([1, 200, 255])])),
            "two": ofrecord.Feature(bytes_list=ofrecord.BytesList(value=[b"a", b"b"])),
            "words": ofrecord.Feature(int64_list=ofrecord.Int64List(value=range(1, i + 1))),
        }
    )


@pytest.fixture
def folder(tmp_path):
    write_records(tmp_path / "part-00000", [record(0), record(1), record(2)])
    write_records(tmp_path / "part-00001", [record(3), record(4)])
    return tmp_path


def decode(folder, key, shape, dtype, **more):
    """One batch of all five records' feature ``key``."""
    with job() as trace:
        reader = fdata.ofrecord_reader(folder, batch_size=5, data_part_num=2, part_name_suffix_length=5)
        blob = fdata.OFRecordRawDecoder(reader, key, shape=shape, dtype=dtype, name="x", **more)
        assert blob.shape == (5, *shape)
    return step(trace)["x"]


def test_decoders_of_one_reader_see_the_same_records(folder):
    with job() as trace:
        reader = fdata.ofrecord_reader(
            folder, batch_size=2, data_part_num=2, part_name_suffix_length=5, random_shuffle=True
        )
        assert reader.shape == (2,)
        labels = fdata.OFRecordRawDecoder(reader, "label", shape=(), dtype=dtypes.int32, name="labels")
        images = fdata.ofrecord_raw_decoder(reader, "image", shape=(2, 3), dtype=dtypes.float32, name="images")
    assert (labels.shape, images.shape) == ((2,), (2, 2, 3))
    for _ in range(20):
        fed = step(trace)
        expected = fed["labels"][:, None] + np.arange(6, dtype=np.float32) / 8
        np.testing.assert_array_equal(fed["images"].reshape(2, 6), expected)


def test_order_over_steps(folder):
    with job() as trace:
        reader = fdata.ofrecord_reader(folder, batch_size=2, data_part_num=2, part_name_suffix_length=5)
        fdata.OFRecordRawDecoder(reader, "label", shape=(1,), dtype=dtypes.int32, name="labels")
    assert [step(trace)["labels"].ravel().tolist() for _ in range(5)] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_number_lists_are_cast(folder):
    np.testing.assert_array_equal(
        decode(folder, "double", (1,), dtypes.float32), np.arange(5, dtype=np.float32)[:, None] + 0.5
    )
    np.testing.assert_array_equal(decode(folder, "double", (), dtypes.int32), np.arange(5))
    np.testing.assert_array_equal(decode(folder, "huge", (3,), dtypes.float64), [[1e300, np.inf, np.nan]] * 5)
    np.testing.assert_array_equal(decode(folder, "big", (), dtypes.float32), np.full(5, 2.0**40))
    np.testing.assert_array_equal(decode(folder, "big", (), dtypes.int64), np.arange(5) + 2**40)
    np.testing.assert_array_equal(decode(folder, "label", (), dtypes.float32), np.arange(5, dtype=np.float32))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (dtypes.uint8, [1, 200, 255]),
        (dtypes.int8, [1, -56, -1]),
        (dtypes.float32, [1, -56, -1]),
        (dtypes.int32, [1, -56, -1]),
    ],
)
def test_bytes_are_signed_except_in_uint8(folder, dtype, values):
    assert decode(folder, "bytes", (3,), dtype)[0].tolist() == values


def test_zero_padding(folder):
    words = decode(folder, "words", (4,), dtypes.int64, auto_zero_padding=True)
    assert words.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0], [1, 2, 3, 0], [1, 2, 3, 4]]


BAD_RECORDS = [
    (
        "lable",
        (),
        dtypes.int32,
        {},
        r"part-00000: record 0 at byte 0: Field lable not found; the record has \['big', 'bytes'",
    ),
    ("words", (2,), dtypes.int32, {}, r"record 0 .*'words' has 0 values, shape \(2,\) takes 2; auto_zero_padding"),
    (
        "words",
        (2,),
        dtypes.int32,
        {"auto_zero_padding": True},
        r"part-00001: record 0 at byte 0: feature 'words' has 3 values",
    ),
    ("big", (), dtypes.int32, {}, "which int32 cannot hold"),
    (
        "huge",
        (3,),
        dtypes.float32,
        {},
        r"part-00000: record 0 at byte 0: feature 'huge' has values from 1e\+300 to inf, which float32 cannot hold",
    ),
    ("big", (), dtypes.float16, {}, "which float16 cannot hold"),
    ("two", (1,), dtypes.int8, {}, "exactly one entry, this one has 2"),
    ("bytes", (4,), dtypes.uint8, {}, "has 3 values"),
]


@pytest.mark.parametrize(("key", "shape", "dtype", "more", "match"), BAD_RECORDS)
def test_records_that_do_not_fit_are_named(folder, key, shape, dtype, more, match):
    with pytest.raises(DataError, match=match):
        decode(folder, key, shape, dtype, **more)


def test_decode_ofrecord(folder):
    with job() as trace:
        blobs = fdata.decode_ofrecord(
            str(folder),
            (
                fdata.BlobConf("image", shape=[6], dtype=dtypes.float32, codec=fdata.RawCodec()),
                fdata.BlobConf("label", shape=(), dtype=dtypes.int32, codec=fdata.RawCodec()),
                fdata.BlobConf("words", shape=(4,), dtype=dtypes.int32, codec=fdata.RawCodec(auto_zero_padding=True)),
            ),
            batch_size=3,
            data_part_num=2,
            part_name_suffix_length=5,
            name="decode",
        )
    assert [blob.shape for blob in blobs] == [(3, 6), (3,), (3, 4)]
    step(trace)
    fed = list(step(trace).values())
    assert fed[1].tolist() == [3, 4, 0]
    assert fed[0][:, 0].tolist() == [3.0, 4.0, 0.0]
    assert fed[2].tolist() == [[1, 2, 3, 0], [1, 2, 3, 4], [0, 0, 0, 0]]


def test_decode_ofrecord_shuffles(folder):
    def labels(**more):
        with job() as trace:
            conf = fdata.BlobConf("label", shape=(), dtype=dtypes.int32, codec=fdata.RawCodec())
            fdata.decode_ofrecord(
                folder, [conf], batch_size=5, data_part_num=2, part_name_suffix_length=5, name="d", **more
            )
        return [step(trace)["d"].tolist() for _ in range(4)]

    assert labels(shuffle=True, buffer_size=4) == labels(shuffle=True, buffer_size=4)
    assert labels(shuffle=True, buffer_size=4) != labels()


def test_sources_resume_together(folder):
    def make():
        with job() as trace:
            reader = fdata.ofrecord_reader(
                folder, 2, 2, part_name_suffix_length=5, random_shuffle=True, shuffle_buffer_size=3
            )
            fdata.OFRecordRawDecoder(reader, "label", (), dtypes.int32, name="labels")
            fdata.OFRecordRawDecoder(reader, "double", (), dtypes.float64, name="doubles")
        return trace

    whole = make()
    expected = [step(whole) for _ in range(12)]
    first, second = make(), make()
    for _ in range(5):
        step(first)
    states = {source.name: source.state() for source, _ in first.graph.sources}
    assert list(states) == ["OFRecordReader_0"]
    step(second)
    for source, _ in second.graph.sources:
        source.load_state(states[source.name])
    for fed in expected[5:]:
        got = step(second)
        for name in fed:
            np.testing.assert_array_equal(got[name], fed[name])


def test_decode_random_is_the_same_batch_every_time():
    with job() as trace:
        blob = fdata.decode_random((3, 4), dtypes.float32, batch_size=8, name="images")
        fdata.decode_random((3, 4), dtypes.float32, batch_size=8, name="others")
        fdata.decode_random((), dtypes.int32, batch_size=8, initializer=zeros_initializer(dtypes.int32), name="labels")
        fdata.decode_random((1,), dtypes.float32, initializer=constant_initializer(3.0), name="threes")
    assert blob.shape == (8, 3, 4)
    first, second, third = step(trace), step(trace), step(trace)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_array_equal(first[name], third[name])
    assert first["images"].min() >= 0
    assert first["images"].max() <= 1
    assert first["images"].std() > 0.2
    assert not np.array_equal(first["images"], first["others"])
    assert first["labels"].tolist() == [0] * 8
    assert first["threes"].tolist() == [[3.0]]


def test_decode_random_is_the_same_in_another_run():
    def make():
        with job() as trace:
            fdata.decode_random((4,), dtypes.float32, name="images")
        return trace

    one, other = make(), make()
    np.testing.assert_array_equal(step(one)["images"], step(other)["images"])
    assert one.graph.sources[0][0].state() is None


def _reader(folder, **more):
    return fdata.ofrecord_reader(folder, **{"data_part_num": 2, "part_name_suffix_length": 5, **more})


def _conf(codec, **more):
    return fdata.BlobConf("label", shape=(), dtype=dtypes.int32, codec=codec, **more)


def _normed(dtype):
    codec, norm = fdata.RawCodec(), fdata.NormByChannelPreprocessor((1.0, 2.0, 3.0))
    return fdata.BlobConf("label", shape=(1,), dtype=dtype, codec=codec, preprocessors=[norm])


def _images(folder):
    return fdata.OFRecordImageDecoder(_reader(folder), "encoded")


def _resized(folder):
    return image.Resize(_images(folder), resize_x=3, resize_y=3)


def _pixels(dtype):
    return fdata.BlobConf("encoded", shape=(2, 2, 3), dtype=dtype, codec=fdata.ImageCodec())


def _random_crop(folder, **more):
    return fdata.OFRecordImageDecoderRandomCrop(_reader(folder), "encoded", **more)


BAD_CALLS = [
    (
        lambda f: _reader(f, data_part_num=3),
        DataError,
        r"test_sources.py.*ofrecord_reader: .*part-00002: the file cannot be opened: No such file.*data_part_num",
    ),
    (lambda f: _reader(f, part_name_suffix_length=-1), DataError, "part-0: the file cannot be opened"),
    (lambda f: _reader(f, part_name_suffix_length=0), ArgumentError, "part_name_suffix_length"),
    (lambda f: _reader(f, batch_size=0), ArgumentError, "batch_size is an int of at least 1, got 0"),
    (lambda f: _reader(f, data_part_num=-1), ArgumentError, "data_part_num"),
    (lambda f: _reader(f, shuffle_buffer_size=0), ArgumentError, "shuffle_buffer_size"),
    (
        lambda f: fdata.OFRecordRawDecoder(1, "label", (), dtypes.int32),
        ArgumentError,
        "what flow.data.ofrecord_reader gave",
    ),
    (
        lambda f: fdata.OFRecordRawDecoder(_reader(f), "label", 3, dtypes.int32),
        ArgumentError,
        "a list or tuple of ints > 0",
    ),
    (lambda f: fdata.OFRecordRawDecoder(_reader(f), "label", (), dtypes.bfloat16), UnsupportedError, "bfloat16"),
    (
        lambda f: fdata.OFRecordRawDecoder(_reader(f), "label", (), dtypes.int32, True),
        UnsupportedError,
        "dim1_varying_length",
    ),
    (lambda f: (_reader(f, name="r"), _reader(f, name="r")), NameError_, "already exist"),
    (lambda f: fdata.decode_ofrecord(f, []), ArgumentError, "list or tuple of flow.data.BlobConf"),
    (lambda f: fdata.decode_ofrecord(f, [_conf("raw")]), UnsupportedError, "RawCodec"),
    (
        lambda f: fdata.decode_ofrecord(f, [_conf(fdata.RawCodec(), preprocessors=["x"])]),
        UnsupportedError,
        "NormByChannelPreprocessor",
    ),
    (
        lambda f: fdata.decode_ofrecord(f, [_conf(fdata.RawCodec())], data_part_num=2),
        DataError,
        "part-0: the file cannot",
    ),
    (lambda f: _reader(f, on_error="ignore"), ArgumentError, "on_error is 'raise' or 'skip'"),
    (lambda f: fdata.ImagePreprocessor("rgb2bgr"), ValueError, "'bgr2rgb' or 'mirror', got 'rgb2bgr'"),
    (lambda f: fdata.ImageCodec([3]), ArgumentError, "Image.*Preprocessor, got 3"),
    (lambda f: fdata.ImageResizePreprocessor(0, 3), ArgumentError, "width is an int of at least 1"),
    (lambda f: fdata.ImageCropPreprocessor(2, 2, -1), ArgumentError, "x and y are at least 0"),
    (lambda f: fdata.ImageCenterCropPreprocessor(2, 0), ArgumentError, "height is an int of at least 1"),
    (
        lambda f: fdata.ImageCropWithRandomSizePreprocessor(area=(0.5, 2)),
        ArgumentError,
        "area is two numbers, 0 < low <= high <= 1.0; got",
    ),
    (
        lambda f: fdata.ImageTargetResizePreprocessor(2, resize_side="both"),
        ArgumentError,
        "'shorter' or 'longer', got 'both'",
    ),
    (lambda f: fdata.NormByChannelPreprocessor((1.0,), (0.0,)), ArgumentError, "std of 0"),
    (
        lambda f: fdata.NormByChannelPreprocessor((1.0,), (1.0,), "NHWC"),
        ArgumentError,
        "data_format is one of channels_last",
    ),
    (
        lambda f: fdata.decode_ofrecord(f, [_conf(fdata.ImageCodec())]),
        ArgumentError,
        r"\(height, width, 1 or 3\), got \(\)",
    ),
    (
        lambda f: fdata.decode_ofrecord(f, [_conf(fdata.BytesListCodec())]),
        ArgumentError,
        "BytesListCodec decodes to int8",
    ),
    (lambda f: fdata.decode_ofrecord(f, [_normed(dtypes.int32)]), ArgumentError, "normalises a float blob"),
    (lambda f: fdata.decode_ofrecord(f, [_normed(dtypes.float32)]), ArgumentError, "got 3 and 3 for 1 channels"),
    (lambda f: fdata.OFRecordImageDecoder(_reader(f), "encoded", "CMYK"), ArgumentError, "color_space is one of RGB"),
    (lambda f: _random_crop(f, num_attempts=0), ArgumentError, "num_attempts"),
    (lambda f: _random_crop(f, random_area=[0.5, 1.5]), ArgumentError, "random_area is two numbers"),
    (lambda f: _random_crop(f, random_aspect_ratio=[2.0, 1.0]), ArgumentError, "random_aspect_ratio"),
    (lambda f: image.Resize(_reader(f), target_size=[2, 2]), ArgumentError, "image decoder gave"),
    (lambda f: image.Resize(_images(f)), ArgumentError, r"target_size is \(width, height\), got None"),
    (lambda f: image.Resize(_images(f), target_size=3), ArgumentError, "keep_aspect_ratio=True"),
    (lambda f: image.Resize(_images(f), target_size=(3, 3), channels=1), ArgumentError, "3 channels; 1 were asked for"),
    (
        lambda f: image.Resize(_images(f), target_size=(3, 3), interpolation_type="lanczos"),
        UnsupportedError,
        "interpolates by",
    ),
    (lambda f: image.Resize(_images(f), resize_shorter=3, resize_x=3), ArgumentError, "not all of them"),
    (
        lambda f: image.Resize(image.Resize(_images(f), resize_shorter=3), resize_shorter=2),
        UnsupportedError,
        "was resized before",
    ),
    (lambda f: image.CropMirrorNormalize(_images(f)), ArgumentError, "crop_h is an int of at least 1"),
    (
        lambda f: image.CropMirrorNormalize(_images(f), crop_h=1, crop_w=1, mean=[1.0, 2.0]),
        ArgumentError,
        "mean is a list of 1 or 3 numbers",
    ),
    (
        lambda f: image.CropMirrorNormalize(_images(f), crop_h=1, crop_w=1, mean=5.0),
        ArgumentError,
        "mean is a list of 1 or 3 numbers",
    ),
    (
        lambda f: image.CropMirrorNormalize(_images(f), crop_h=-1, crop_w=1),
        ArgumentError,
        "crop_h is an int of at least 0",
    ),
    (
        lambda f: image.CropMirrorNormalize(_images(f), crop_h=1, crop_w=1, crop_pos_x=1.5),
        ArgumentError,
        "from 0 to 1, got 0.5 and 1.5",
    ),
    (
        lambda f: image.CropMirrorNormalize(_resized(f), crop_h=4, crop_w=2),
        ArgumentError,
        "2 x 4 does not fit in pictures of 3 x 3",
    ),
    (
        lambda f: image.CropMirrorNormalize(fdata.decode_random((2,), dtypes.uint8)),
        ArgumentError,
        "batch, height, width, channels",
    ),
    (
        lambda f: image.Resize(_images(f), target_size=3, keep_aspect_ratio=True, resize_side="left"),
        ArgumentError,
        "resize_side is",
    ),
    (
        lambda f: image.Resize(_images(f), target_size=3, keep_aspect_ratio=True, max_size="9"),
        ArgumentError,
        "max_size is an int",
    ),
    (
        lambda f: fdata.OFRecordRawDecoder(_reader(f), 3, (), dtypes.int32),
        ArgumentError,
        "name of a feature is a str, got 3",
    ),
    (lambda f: fdata.OFRecordImageDecoder(_reader(f), None), ArgumentError, "name of a feature is a str"),
    (lambda f: _reader(f, seed="1"), ArgumentError, "seed is an int, got '1'"),
    (lambda f: _reader(f, max_errors=-1), ArgumentError, "max_errors is an int of at least 0"),
    (lambda f: fdata.decode_ofrecord(f, [_pixels(dtypes.int8)]), ArgumentError, "int8 cannot hold the levels 0 to 255"),
    (lambda f: image.CropMirrorNormalize(_images(f), crop_h=1, crop_w=1, std=[0.0]), ArgumentError, "std is above 0"),
    (
        lambda f: image.CropMirrorNormalize(_images(f), color_space="GRAY"),
        ArgumentError,
        "3 channels; 1 were asked for",
    ),
    (lambda f: image.CropMirrorNormalize(_images(f), output_layout="HWC"), ArgumentError, "'NCHW' or 'NHWC'"),
    (lambda f: image.CropMirrorNormalize(3), ArgumentError, "or a uint8 blob, got 3"),
    (lambda f: image.decode(_images(f)), ArgumentError, "what flow.data.OFRecordBytesDecoder gave"),
    (lambda f: fdata.decode_random((2,), dtypes.float32, batch_size=0), ArgumentError, "batch_size"),
    (lambda f: fdata.decode_random((2,), dtypes.float32, initializer=3), ArgumentError, "not an initializer"),
    (lambda f: fdata.decode_random((2,), dtypes.float32, tick=1), UnsupportedError, "tick"),
]


@pytest.mark.parametrize(("call", "kind", "match"), BAD_CALLS)
def test_wrong_calls(folder, call, kind, match):
    with job(), pytest.raises(kind, match=match):
        call(folder)


def test_outside_a_job_and_across_jobs(folder):
    with pytest.raises(OutsideJobError, match=r"flow\.data\.ofrecord_reader was called outside"):
        _reader(folder)
    with job():
        reader = _reader(folder)
    with job(), pytest.raises(JobError, match="belongs to another job"):
        fdata.OFRecordRawDecoder(reader, "label", (), dtypes.int32)
