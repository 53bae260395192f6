"""TFRecord framing against bytes that TensorFlow wrote and against TensorBoard's own reader and writer."""

import gzip
import io
import os
import random
import tracemalloc
import zlib

import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tensorboard.summary.writer.record_writer import RecordWriter as TensorBoardWriter

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.formats import open_records
from oneflow.engine.data.formats.records import read_records, write_records
from oneflow.engine.data.formats.tfrecord import TFRECORD, masked_crc

VECTORS = [
    (b"hello", "0500000000000000 eab2043e 68656c6c6f bb1f1c19"),
    (b"", "0000000000000000 29039807 d8ea82a2"),
    (bytes(range(32)), "2000000000000000 29eda950" + bytes(range(32)).hex() + "92781f95"),
]


@pytest.mark.parametrize(("body", "record"), VECTORS)
def test_bytes_of_a_record(tmp_path, body, record):
    write_records(tmp_path / "a", [body], "tfrecord")
    assert (tmp_path / "a").read_bytes() == bytes.fromhex(record)
    assert [bytes(r.body) for r in read_records(tmp_path / "a", format=None)] == [body]


def test_masked_crc_of_the_check_string():
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def bodies(count=50):
    return [random.Random(n).randbytes(n * 37 % 1000) for n in range(count)]


def test_tensorboard_reads_what_we_write(tmp_path):
    write_records(tmp_path / "a", bodies(), "tfrecord")
    reader = PyRecordReader_New(str(tmp_path / "a"))
    found = []
    with pytest.raises(Exception, match="No more"):
        while True:
            reader.GetNext()
            found.append(reader.record())
    reader.file_handle.close()
    assert found == bodies()


def test_we_read_what_tensorboard_writes(tmp_path):
    file = io.BytesIO()
    writer = TensorBoardWriter(file)
    for body in bodies():
        writer.write(body)
    (tmp_path / "a").write_bytes(file.getvalue())
    records = list(read_records(tmp_path / "a", format=None))
    assert [bytes(r.body) for r in records] == bodies()
    assert records[-1].end == len(file.getvalue())


def test_features_of_a_record(tmp_path):
    features = {"x": FeatureValue("int64_list", [3, 4])}
    write_records(tmp_path / "a.tfrecord", [features], "tfrecord")
    (record,) = read_records(tmp_path / "a.tfrecord", format=None)
    assert record.features["x"].values.tolist() == [3, 4]
    assert record.pick(("x",))["x"].values.tolist() == [3, 4]


# what is done to the bytes of two records of 5 bytes each (21 per record), and what is said
DAMAGE = [
    (lambda d: d[:25], "record 1 at byte 21: the file ends inside the 12 bytes of the length and its CRC"),
    (lambda d: d[:36], "record 1 at byte 21: the record has 9 bytes, the file only 3 more"),
    (lambda d: d[:-1], "record 1 at byte 21: the record has 9 bytes, the file only 8 more"),
    (lambda d: flipped(d, 21), "record 1 at byte 21: the CRC of the length"),
    (lambda d: flipped(d, 30), "record 1 at byte 21: the CRC of the length"),
    (lambda d: flipped(d, 34), "record 1 at byte 21: the CRC of the record"),
    (lambda d: flipped(d, 41), "record 1 at byte 21: the CRC of the record"),
    (lambda d: b"\xff\xd8\xff\xe0 a picture", "record 0 at byte 0: the CRC of the length is .*no TFRecord"),
]


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_damage_names_file_record_and_byte(tmp_path, damage, reason, packed):
    write_records(tmp_path / "a", [b"first", b"other"], "tfrecord")
    data = damage((tmp_path / "a").read_bytes())
    (tmp_path / "a").write_bytes(gzip.compress(data) if packed else data)
    if packed:
        reason = reason.replace("the record has 9 bytes, the file only", "got . of 5 bytes").split(" of 5 bytes")[0]
    with pytest.raises(DataError, match=reason) as error:
        list(read_records(tmp_path / "a", format="tfrecord"))
    assert str(tmp_path / "a") in str(error.value)


def test_gzip(tmp_path):
    write_records(tmp_path / "a", bodies(), "tfrecord", compression="gzip")
    plain = tmp_path / "b"
    write_records(plain, bodies(), "tfrecord")
    assert gzip.decompress((tmp_path / "a").read_bytes()) == plain.read_bytes()
    for format in (None, "tfrecord"):
        assert [bytes(r.body) for r in read_records(tmp_path / "a", format=format)] == bodies()
    first = (tmp_path / "a").read_bytes()
    write_records(tmp_path / "a", bodies(), "tfrecord", compression="gzip")
    assert (tmp_path / "a").read_bytes() == first, "the same records make the same file"


def test_a_gzip_file_that_is_cut_or_broken(tmp_path):
    write_records(tmp_path / "a", bodies(), "tfrecord", compression="gzip")
    data = (tmp_path / "a").read_bytes()
    for broken in (data[:-9], data[: len(data) // 2], flipped(data, len(data) // 2)):
        (tmp_path / "a").write_bytes(broken)
        with pytest.raises(DataError, match="a: (broken gzip file|record)"):
            list(read_records(tmp_path / "a", format=None))


def test_compression_is_for_tfrecord(tmp_path):
    with pytest.raises(ArgumentError, match="'gzip' for a TFRecord file"):
        write_records(tmp_path / "a", [b"x"], "ofrecord", compression="gzip")
    with pytest.raises(ArgumentError, match="one of"):
        write_records(tmp_path / "a", [b"x"], "mxnet")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_memory_does_not_grow_with_the_file(tmp_path, compression):
    body = bytes(1 << 18)
    write_records(tmp_path / "a", (body for _ in range(64)), "tfrecord", compression)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_records(tmp_path / "a", format=None)) == 64
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_zlib_is_refused_by_its_name(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(zlib.compress(b"".join(TFRECORD.frame(b"some record")) * 50))
    with pytest.raises(
        DataError,
        match="records is a TFRecord file of the compression ZLIB, which is not read; write it with GZIP or without",
    ):
        open_records(path)
