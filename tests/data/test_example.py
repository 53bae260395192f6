"""tf.train.Example messages, and both messages against Google's protobuf library."""

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import (
    FeatureValue,
    decode_example,
    decode_record,
    encode_example,
    encode_record,
    pick_from_example,
    pick_from_record,
)

_FIELD = descriptor_pb2.FieldDescriptorProto
_LISTS = {
    "BytesList": _FIELD.TYPE_BYTES,
    "FloatList": _FIELD.TYPE_FLOAT,
    "DoubleList": _FIELD.TYPE_DOUBLE,
    "Int32List": _FIELD.TYPE_INT32,
    "Int64List": _FIELD.TYPE_INT64,
}


def protobuf_class(name: str, packed: bool = True):
    """``OFRecord`` or ``Example`` as Google's library has it; the descriptors are made here, not by the code under
    test."""
    kinds = list(_LISTS) if name == "OFRecord" else ["BytesList", "FloatList", "Int64List"]
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="t", syntax="proto2")
    for kind in kinds:
        field = file.message_type.add(name=kind).field.add(
            name="value", number=1, type=_LISTS[kind], label=_FIELD.LABEL_REPEATED
        )
        if kind != "BytesList":
            field.options.packed = packed
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(kinds, 1):
        field_name = kind.replace("List", "_list").lower()
        feature.field.add(
            name=field_name,
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            type_name=f".t.{kind}",
            label=_FIELD.LABEL_OPTIONAL,
            oneof_index=0,
        )
    outer = file.message_type.add(name="OFRecord" if name == "OFRecord" else "Features")
    entry = outer.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=_FIELD.TYPE_MESSAGE, type_name=".t.Feature", label=_FIELD.LABEL_OPTIONAL
    )
    outer.field.add(
        name="feature",
        number=1,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".t.{outer.name}.FeatureEntry",
        label=_FIELD.LABEL_REPEATED,
    )
    if name == "Example":
        example = file.message_type.add(name="Example")
        example.field.add(
            name="features", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".t.Features", label=_FIELD.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))


# messages that TensorFlow wrote
VECTORS = [
    ({"image/class/label": ("int64_list", [7])}, "0a1c0a1a0a11696d6167652f636c6173732f6c6162656c12051a030a0107"),
    (
        {"f": ("float_list", [1.0, -2.5]), "i": ("int64_list", [-1, 300])},
        "0a2a0a110a0166120c120a0a080000803f000020c00a150a016912101a0e0a0cffffffffffffffffff01ac02",
    ),
    (
        {
            "image/class/label": ("int64_list", [7]),
            "image/encoded": ("bytes_list", [bytes.fromhex("89504e47")]),
            "image/format": ("bytes_list", [b"png"]),
            "image/height": ("int64_list", [32]),
            "image/width": ("int64_list", [300]),
        },
        "0a7e0a1a0a11696d6167652f636c6173732f6c6162656c12051a030a01070a190a0d696d6167652f656e636f64656412080a060a0489504e47"
        "0a170a0c696d6167652f666f726d617412070a050a03706e670a150a0c696d6167652f68656967687412051a030a01200a150a0b696d6167652f"
        "776964746812061a040a02ac02",
    ),
]


@pytest.mark.parametrize(("features", "message"), VECTORS)
def test_bytes_of_tensorflow(features, message):
    data = bytes.fromhex(message)
    assert encode_example({key: FeatureValue(*value) for key, value in features.items()}) == data
    for decode in (decode_example, lambda data: pick_from_example(data, tuple(features))):
        assert {key: (value.kind, list(value.values)) for key, value in decode(data).items()} == features


def test_kinds_an_example_does_not_have():
    with pytest.raises(DataError, match="feature 'd': the message has no double_list"):
        encode_example({"d": FeatureValue("double_list", [1.0])})
    with pytest.raises(DataError, match="feature 'i': the message has no int32_list"):
        encode_example({"i": FeatureValue("int32_list", [1])})


def random_features(rng, kinds):
    values = {
        "bytes_list": lambda: [rng.bytes(int(n)) for n in rng.choice([0, 3, 127, 128, 20_000], rng.integers(0, 3))],
        "float_list": lambda: rng.standard_normal(rng.integers(0, 40)).astype(np.float32),
        "double_list": lambda: rng.standard_normal(rng.integers(0, 40)),
        "int32_list": lambda: (
            rng.integers(-(2**31), 2**31, rng.integers(0, 40)).astype(np.int32) >> rng.integers(0, 31)
        ),
        "int64_list": lambda: rng.integers(-(2**63), 2**63 - 1, rng.integers(0, 40)) >> rng.integers(0, 63),
    }
    names = ["a", "encoded", "class/label", "漢字", "x" * 130]
    return {name: FeatureValue(kind, values[kind]()) for name, kind in zip(names, rng.choice(kinds, len(names)))}


RECORD_KINDS = ["bytes_list", "float_list", "double_list", "int32_list", "int64_list"]
CASES = [
    ("OFRecord", RECORD_KINDS, encode_record, decode_record, pick_from_record),
    ("Example", ["bytes_list", "float_list", "int64_list"], encode_example, decode_example, pick_from_example),
]


def same(left, right):
    assert set(left) == set(right)
    for key in left:
        assert left[key].kind == right[key].kind
        assert list(left[key].values) == list(right[key].values)


def as_plain(feature):
    kind = feature.WhichOneof("kind")
    return kind, list(getattr(feature, kind).value)


@pytest.mark.parametrize(("name", "kinds", "encode", "decode", "pick"), CASES)
def test_protobuf_reads_what_we_write(name, kinds, encode, decode, pick):
    rng = np.random.default_rng(1)
    for _ in range(30):
        features = random_features(rng, kinds)
        parsed = protobuf_class(name).FromString(encode(features))
        table = parsed.feature if name == "OFRecord" else parsed.features.feature
        assert {key: as_plain(table[key]) for key in table} == {
            key: (v.kind, list(v.values)) for key, v in features.items()
        }


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("name", "kinds", "encode", "decode", "pick"), CASES)
def test_we_read_what_protobuf_writes(name, kinds, encode, decode, pick, packed):
    rng = np.random.default_rng(2)
    cls = protobuf_class(name, packed)
    for _ in range(30):
        features = random_features(rng, kinds)
        message = cls()
        table = message.feature if name == "OFRecord" else message.features.feature
        for key, value in features.items():
            values = getattr(table[key], value.kind).value
            values.extend(list(value.values) if value.kind == "bytes_list" else value.values.tolist())
            getattr(table[key], value.kind).SetInParent()
        data = message.SerializeToString()
        same(decode(data), features)
        same(pick(data, tuple(features)), features)
        some = {key: features[key] for key in ("a", "class/label")}
        same(pick(data, ("class/label", "a", "not there")), some)


# ------------------------------------------------------------------ picking


def entry(key: bytes, feature: bytes) -> bytes:
    body = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(body)]) + body


SEVEN, EIGHT, TEXT = bytes.fromhex("2203 0a01 07"), bytes.fromhex("2203 0a01 08"), bytes.fromhex("0a03 0a01 78")
ODD_BUT_RIGHT = {
    "another key later in the entry": bytes.fromhex("0a 0d 0a01 79 1205 22030a0107 0a01 6b"),
    "value before key": bytes.fromhex("0a 0a 1205 22030a0107 0a01 6b"),
    "value in two pieces": bytes.fromhex("0a 11 0a01 6b 1205 22030a0107 1205 22030a0108"),
    "unknown field in the entry": bytes.fromhex("0a 0c 0a01 6b 1205 22030a0107 18 01"),
    "unknown field in the message": bytes.fromhex("7a01 00") + entry(b"k", SEVEN),
    "unknown field behind": entry(b"k", SEVEN) + bytes.fromhex("7801"),
    "two lists of one kind": entry(b"k", SEVEN + EIGHT),
    "two kinds": entry(b"k", SEVEN + TEXT),
    "the key twice": entry(b"k", SEVEN) + entry(b"k", TEXT),
    "no list": entry(b"k", b""),
    "an empty list": entry(b"k", b"\x22\x00"),
    "a list of two texts": entry(b"k", bytes.fromhex("0a06 0a0178 0a0179")),
    "an unknown kind": entry(b"k", bytes.fromhex("7a03 0a0107")),
    "numbers not packed": entry(b"k", bytes.fromhex("2204 0801 0802")),
    "a length written with more bytes than needed": bytes.fromhex("0a8a00 0a01 6b 1205 22030a0107"),
    "nothing": b"",
}


@pytest.mark.parametrize("what", ODD_BUT_RIGHT)
def test_picking_equals_decoding_everything(what):
    message = ODD_BUT_RIGHT[what]
    everything = decode_record(message)
    same(pick_from_record(message, ("k",)), {key: value for key, value in everything.items() if key == "k"})
    wrapped = bytes([0x0A, len(message)]) + message
    same(
        pick_from_example(wrapped, ("k",)), {key: value for key, value in decode_example(wrapped).items() if key == "k"}
    )


def test_every_cut_and_every_changed_byte_picks_the_same_or_fails():
    message = encode_record({"a": FeatureValue("int32_list", [1, 300]), "b": FeatureValue("bytes_list", [b"xyz" * 50])})
    damaged = [message[:end] for end in range(len(message))]
    damaged += [message[:at] + bytes([byte]) + message[at + 1 :] for at in range(24) for byte in range(0, 256, 5)]
    for data in damaged:
        try:
            everything = decode_record(data)
        except DataError:
            continue  # picking may not look at the part that is broken
        same(pick_from_record(data, ("a", "b")), {key: value for key, value in everything.items() if key in ("a", "b")})


def test_picked_bytes_are_views_of_the_message():
    message = bytearray(encode_record({"encoded": FeatureValue("bytes_list", [b"\x01\x02\x03\x04"])}))
    (view,) = pick_from_record(message, ("encoded",))["encoded"].values
    assert isinstance(view, memoryview)
    message[-1] = 9
    assert bytes(view) == b"\x01\x02\x03\x09"


def test_broken_message_is_named_when_picking():
    with pytest.raises(DataError, match="byte 0: a field of 127 bytes"):
        pick_from_record(b"\x0a\x7f", ("k",))
    with pytest.raises(DataError, match="no multiple of 4"):
        pick_from_record(entry(b"k", bytes.fromhex("1205 0a03 000080")), ("k",))
