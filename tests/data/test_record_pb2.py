"""The message classes used as programs that write data sets use protobuf's."""

import struct

import numpy as np
import pytest

from oneflow.core.record import record_pb2 as ofrecord
from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats.records import read_records


def sample() -> ofrecord.OFRecord:
    return ofrecord.OFRecord(
        feature={
            "image": ofrecord.Feature(float_list=ofrecord.FloatList(value=np.arange(3, dtype=np.float32))),
            "label": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[7])),
            "id": ofrecord.Feature(int64_list=ofrecord.Int64List(value=(2**40,))),
            "raw": ofrecord.Feature(bytes_list=ofrecord.BytesList(value=[b"xy"])),
            "weight": ofrecord.Feature(double_list=ofrecord.DoubleList(value=[0.1])),
        }
    )


def test_writing_idiom(tmp_path):
    with open(tmp_path / "part-0", "wb") as file:
        for _ in range(2):
            file.write(struct.pack("q", sample().ByteSize()))
            file.write(sample().SerializeToString())
    records = list(read_records(tmp_path / "part-0"))
    assert len(records) == 2
    assert records[1].features["label"].values.tolist() == [7]


def test_parse_gives_the_same_message_back():
    parsed = ofrecord.OFRecord()
    data = sample().SerializeToString()
    assert parsed.ParseFromString(data) == len(data) == sample().ByteSize()
    assert parsed == sample() == ofrecord.OFRecord.FromString(data)
    assert parsed.feature["image"].float_list.value == [0.0, 1.0, 2.0]
    assert parsed.feature["raw"].bytes_list.value[0] == b"xy"
    assert parsed.feature["weight"].double_list.value[0] == 0.1
    assert sorted(parsed.feature) == ["id", "image", "label", "raw", "weight"]


def test_parse_replaces_what_was_there():
    parsed = sample()
    parsed.ParseFromString(ofrecord.OFRecord(feature={"a": ofrecord.Feature()}).SerializeToString())
    assert list(parsed.feature) == ["a"]


def test_filling_in_place():
    record = ofrecord.OFRecord()
    record.feature["label"].int32_list.value.append(3)
    record.feature["label"].int32_list.value.extend([4, np.int64(5)])
    record.feature["other"].CopyFrom(record.feature["label"])
    assert record.feature["other"].int32_list.value == [3, 4, 5]
    assert "missing" not in record.feature
    with pytest.raises(ValueError, match="CopyFrom"):
        record.feature["x"] = ofrecord.Feature()


def test_oneof():
    feature = ofrecord.Feature()
    assert feature.WhichOneof("kind") is None
    assert not feature.bytes_list.value
    assert feature.WhichOneof("kind") is None
    feature.float_list.value.append(1)
    assert feature.WhichOneof("kind") == "float_list"
    feature.bytes_list.value.append(b"x")
    assert feature.WhichOneof("kind") == "bytes_list"
    assert feature.HasField("bytes_list")
    assert not feature.HasField("float_list")
    assert not feature.float_list.value
    assert ofrecord.Feature(int64_list=ofrecord.Int64List()).WhichOneof("kind") == "int64_list"


def test_floats_are_kept_in_32_bits():
    assert ofrecord.FloatList(value=[0.1]).value[0] == np.float32(0.1)


BAD = [
    (lambda: ofrecord.Int32List(value=[2**31]), ValueError, "out of range"),
    (lambda: ofrecord.Int32List(value=[1.5]), TypeError, "float"),
    (lambda: ofrecord.Int64List(value=["1"]), TypeError, "str"),
    (lambda: ofrecord.BytesList(value=["text"]), TypeError, "encode text"),
    (lambda: ofrecord.FloatList(value=["1"]), TypeError, "number"),
    (lambda: ofrecord.Feature(float_list=ofrecord.Int32List()), TypeError, "FloatList"),
    (lambda: ofrecord.Feature(image_list=1), TypeError, "image_list"),
    (lambda: ofrecord.Feature().WhichOneof("x"), ValueError, "kind"),
    (lambda: ofrecord.OFRecord.FromString(b"\x0a\x10"), DataError, "16 bytes"),
]


@pytest.mark.parametrize(("call", "kind", "match"), BAD)
def test_wrong_use(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
