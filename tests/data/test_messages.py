"""OFRecord messages against bytes made by hand from the wire format's rules."""

import numpy as np
import pytest

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import FeatureValue, decode_list, decode_record, encode_record


def record(feature: str) -> bytes:
    """The OFRecord, as hex, whose only entry is key "k" with the given feature."""
    value = bytes.fromhex(feature)
    entry = b"\x0a\x01k\x12" + bytes([len(value)]) + value
    return b"\x0a" + bytes([len(entry)]) + entry


# kind, values, the Feature's bytes
LISTS = [
    ("bytes_list", [b"xy", b""], "0a 06 0a 02 78 79 0a 00"),
    ("float_list", [1.0, -2.5], "12 0a 0a 08 00 00 80 3f 00 00 20 c0"),
    ("double_list", [0.5], "1a 0a 0a 08 00 00 00 00 00 00 e0 3f"),
    ("int32_list", [1, 300], "22 05 0a 03 01 ac 02"),
    ("int32_list", [-2], "22 0c 0a 0a fe ff ff ff ff ff ff ff ff 01"),
    ("int64_list", [2**40 + 5], "2a 08 0a 06 85 80 80 80 80 20"),
    ("int64_list", [-(2**63)], "2a 0c 0a 0a 80 80 80 80 80 80 80 80 80 01"),
    ("int32_list", [], "22 00"),
]


@pytest.mark.parametrize(("kind", "values", "feature"), LISTS)
def test_bytes_of_each_kind(kind, values, feature):
    assert encode_record({"k": FeatureValue(kind, values)}) == record(feature)
    decoded = decode_record(record(feature))["k"]
    assert decoded.kind == kind
    assert list(decoded.values) == values


# the same values unpacked, as a writer that ignores [packed] makes them
UNPACKED = [
    ("float_list", [1.0, -2.5], "12 0a 0d 00 00 80 3f 0d 00 00 20 c0"),
    ("double_list", [0.5], "1a 09 09 00 00 00 00 00 00 e0 3f"),
    ("int32_list", [1, 300], "22 05 08 01 08 ac 02"),
    ("int64_list", [1, 2, 3], "2a 06 08 01 0a 02 02 03"),
]


@pytest.mark.parametrize(("kind", "values", "feature"), UNPACKED)
def test_unpacked_and_mixed_lists_are_read(kind, values, feature):
    decoded = decode_record(record(feature))["k"]
    assert decoded.kind == kind
    assert decoded.values.tolist() == values


def test_unknown_fields_of_every_wire_type_are_skipped():
    unknown = bytes.fromhex("78 0179 01020304050607087a 02 aabb7d 010203047b 08 01 0b 10 01 0c 7c")
    message = unknown + record("22 03 0a 01 07") + unknown
    assert decode_record(message)["k"].values.tolist() == [7]
    assert decode_list("int32_list", unknown + bytes.fromhex("0a 01 07") + unknown).tolist() == [7]


def test_last_of_two_entries_counts_and_a_feature_may_be_empty():
    features = decode_record(record("22 03 0a 01 07") + record("22 03 0a 01 08") + bytes.fromhex("0a 03 0a 01 65"))
    assert features["k"].values.tolist() == [8]
    assert features["e"].kind is None


def test_lists_of_one_kind_join_and_another_kind_replaces():
    assert decode_record(record("22 03 0a 01 07 22 03 0a 01 08"))["k"].values.tolist() == [7, 8]
    assert decode_record(record("22 03 0a 01 07 0a 03 0a 01 78"))["k"].values == [b"x"]


def test_round_trip_of_random_values():
    rng = np.random.default_rng(0)
    features = {
        "f": FeatureValue("float_list", rng.standard_normal(300).astype(np.float32)),
        "d": FeatureValue("double_list", rng.standard_normal(3)),
        "i": FeatureValue("int32_list", rng.integers(-(2**31), 2**31, 200).astype(np.int32)),
        "l": FeatureValue("int64_list", rng.integers(-(2**63), 2**63 - 1, 200)),
        "kanji 漢字": FeatureValue("bytes_list", [rng.bytes(1000), b""]),
    }
    decoded = decode_record(encode_record(features))
    assert list(decoded) == list(features)
    for key, feature in features.items():
        assert decoded[key].kind == feature.kind
        assert list(decoded[key].values) == list(feature.values)


BROKEN = [
    ("0a 10 0a", "byte 0: a field of 16 bytes where 1 are left"),
    ("0a", "byte 1: a number that is cut off"),
    ("0a ff ff", "a number that is cut off"),
    ("0a ff ff ff ff ff ff ff ff ff ff 01", "more than 10 bytes"),
    ("0a 03 0a 01 ff", "not UTF-8"),
    ("00 01", "field number 0"),
    ("0f", "wire type 7"),
    ("0c", "wire type 4"),
    ("7b 08 01", "cut off"),
    ("7b 84 01", "not open here"),
    ("0d 01 02", "a field of 4 bytes where 2 are left"),
]


@pytest.mark.parametrize(("message", "reason"), BROKEN)
def test_broken_messages_are_named(message, reason):
    with pytest.raises(DataError, match=reason):
        decode_record(bytes.fromhex(message))


def test_packed_floats_of_a_wrong_size():
    with pytest.raises(DataError, match="no multiple of 4"):
        decode_record(record("12 05 0a 03 00 00 80"))


def test_every_cut_of_a_message_is_an_error_or_a_shorter_message():
    message = encode_record({"a": FeatureValue("int32_list", [1, 300]), "b": FeatureValue("bytes_list", [b"xyz"])})
    for end in range(len(message)):
        try:
            assert set(decode_record(message[:end])) <= {"a"}
        except DataError:
            continue
