"""TensorFlow's checkpoints: files that TensorFlow wrote are read to the bit, ours are read by TensorFlow, and damage is
told."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flowvision.models import slim
from flowvision.models.slim.checkpoint.messages import slice_key
from flowvision.models.slim.checkpoint.snappy import unpacked
from flowvision.models.slim.checkpoint.table import read_table, write_table
from oneflow.engine.core.errors import ArgumentError, DataError, DTypeError
from oneflow.engine.data.formats.tfrecord import masked_crc

HERE = Path(__file__).parent / "tf_checkpoints"
EXPECTED = {
    "LeNet/conv1/weights": (np.arange(72) % 7 - 3).astype(np.float32).reshape(3, 3, 2, 4) / 4,
    "LeNet/conv1/biases": np.zeros(4, np.float32),
    "LeNet/fc/weights": np.repeat(np.arange(64, dtype=np.float32), 16).reshape(16, 64),
    "double": np.array([[1.0 / 3]]),
    "flags": np.array([True, False, True]),
    "small": np.array([-128, 127], np.int8),
    "count32": np.array([-5, 70000], np.int32),
    "global_step": np.array(123456789012, np.int64),
    "table": np.arange(600, dtype=np.float32).reshape(200, 3),  # written in three parts
}
ONLY_NEW = {"half": np.array([1.5, -2.25], np.float16), "brain": np.array([1.5, -3.0], np.float32)}
# "oneflow oneflow oneflow! " four times, the bytes 0 to 99, "a" 300 times: packed by the reference implementation.
PACKED = (
    "f4031c6f6e65666c6f77203a080000213e11001110ce1900f069000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
    "28292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60616263616161616161"
    "fe0400fe0400fe0400fe0400960400"
)
PLAIN = b"oneflow oneflow oneflow! " * 4 + bytes(range(100)) + b"a" * 300


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return set(found) == set(expected) and all(
        found[k].dtype == v.dtype and np.array_equal(found[k], v) and found[k].shape == v.shape
        for k, v in expected.items()
    )


@pytest.fixture
def folder(tmp_path):
    for file in HERE.glob("*.ckpt*"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_both_formats_that_tensorflow_wrote(folder):
    assert same(slim.load_slim_checkpoint(folder / "old.ckpt"), EXPECTED)
    for name in ("new.ckpt", "new.ckpt.index", "new.ckpt.data-00000-of-00001", "new.ckpt.meta"):
        assert same(slim.load_slim_checkpoint(folder / name), EXPECTED | ONLY_NEW)


def test_an_older_checkpoint_in_several_files(tmp_path):
    shutil.copy(HERE / "old.ckpt", tmp_path / "model.ckpt-00000-of-00001")
    assert same(slim.load_slim_checkpoint(tmp_path / "model.ckpt"), EXPECTED)


def test_what_is_written_is_read(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"scope_{number}/weights": rng.normal(size=(number % 3, 2)).astype(np.float32) for number in range(3000)}
    arrays |= {
        "scalar": np.array(5, np.int64),
        "big": np.arange(3, dtype=">f8"),
        "täg": np.array([1 + 2j], np.complex64),
        "empty": np.empty((0, 3), np.float32),
    }
    prefix = slim.save_slim_checkpoint(arrays, tmp_path / "new" / "model.ckpt-7", global_step=7)
    assert sorted(file.name for file in prefix.parent.iterdir()) == [
        "checkpoint",
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
    ]
    expected = arrays | {"global_step": np.array(7), "big": np.arange(3.0)}
    assert same(slim.load_slim_checkpoint(prefix), expected) and same(
        slim.load_slim_checkpoint(prefix.parent), expected
    )


def test_a_folder_that_was_moved_is_found_by_its_names(tmp_path):
    slim.save_slim_checkpoint({"a": np.ones(2, np.float32)}, tmp_path / "model.ckpt-1")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-1"\n')
    assert set(slim.load_slim_checkpoint(tmp_path)) == {"a"}


def test_a_network_through_a_checkpoint(tmp_path):
    net, other = slim.create_model("mobilenet_v2_035", 5), slim.create_model("mobilenet_v2_035", 5)
    other.load_slim_variables(
        slim.load_slim_checkpoint(slim.save_slim_checkpoint(net, tmp_path / "model.ckpt", global_step=3))
    )
    assert same(other.slim_variables(), net.slim_variables())


def test_snappy_as_others_pack_it():
    assert unpacked(memoryview(bytes.fromhex(PACKED))) == PLAIN
    assert unpacked(memoryview(b"\x00")) == b""
    for stream, message in (
        (b"\x05\x10abc", "a snappy literal of 5 bytes at byte 2 is cut off"),
        (b"\x04\x01\x09", "a snappy copy reaches 9 bytes back, and there are 0"),
        (b"\x05\x00a", "snappy says 5 bytes and has 1"),
        (b"\x04\x02\x09", "a snappy element at byte 2 is cut off"),
        (b"\xff\xff\xff\x7f\x00a", "snappy says 268435455 bytes come out of 6"),
    ):
        with pytest.raises(DataError, match=message):
            unpacked(memoryview(stream))


def test_a_table_with_packed_blocks(tmp_path):
    """The data block of a table, packed by hand as one literal: what older builds of TensorFlow write."""
    plain = tmp_path / "plain"
    with plain.open("wb") as file:
        write_table(file, [(b"key", b"value" * 10)])
    data = plain.read_bytes()
    block = data[
        : next(
            at
            for at in range(len(data))
            if data[at] == 0 and masked_crc(data[: at + 1]) == struct.unpack("<I", data[at + 1 : at + 5])[0]
        )
    ]
    packed = bytes([len(block), 60 << 2, len(block) - 1]) + block
    assert len(block) < 128
    rebuilt = _table_of(packed, 1)
    (tmp_path / "packed").write_bytes(rebuilt)
    assert [(entry.key, bytes(entry.value)) for entry in read_table(tmp_path / "packed")] == [(b"key", b"value" * 10)]
    (tmp_path / "packed").write_bytes(_table_of(packed, 7))
    with pytest.raises(
        DataError, match=r"packed, block at byte 0: packed in way 7; 0 \(not at all\) and 1 \(snappy\) are known"
    ):
        list(read_table(tmp_path / "packed"))


def _table_of(block: bytes, packing: int) -> bytes:
    """A table of one block, put together by hand."""

    def framed(data: bytes, way: int) -> bytes:
        return data + bytes([way]) + struct.pack("<I", masked_crc(data + bytes([way])))

    first = framed(block, packing)
    meta = framed(struct.pack("<II", 0, 1), 0)
    entry = bytes([0, 3, 2]) + b"key" + bytes([0, len(block)])
    index = entry + struct.pack("<II", 0, 1)
    footer = bytes([len(first), 8, len(first) + len(meta), len(index)]).ljust(40, b"\0") + struct.pack(
        "<Q", 0xDB4775248B80FB57
    )
    return first + meta + framed(index, 0) + footer


def test_keys_of_parts():
    """Numbers by hand: a zero, the name and its end, one dimension, start 64 and length 70."""
    assert slice_key("a", [(64, 70)]) == b"\x00a\x00\x01\x01\x01\xc0\x40\xc0\x46"
    assert slice_key("", [(0, None)]) == b"\x00\x00\x01\x01\x01\x80\x7f"


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_damage_names_file_block_and_variable(folder):
    flipped(folder / "new.ckpt.data-00000-of-00001", 20)
    with pytest.raises(
        DataError,
        match=r"new.ckpt.data-00000-of-00001, block at byte \d+, variable LeNet/conv1/weights: its CRC is 0x\w+ in the index and 0x\w+ by its bytes",
    ):
        slim.load_slim_checkpoint(folder / "new.ckpt")
    data = (HERE / "new.ckpt.data-00000-of-00001").read_bytes()
    (folder / "new.ckpt.data-00000-of-00001").write_bytes(data[:-200])
    with pytest.raises(DataError, match=r"variable table: it ends at byte \d+, the file at 6647; it was cut off"):
        slim.load_slim_checkpoint(folder / "new.ckpt")
    (folder / "new.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(
        DataError,
        match="new.ckpt.data-00000-of-00001 is missing: it has variable LeNet/conv1/biases; the index and all data files",
    ):
        slim.load_slim_checkpoint(folder / "new.ckpt")
    flipped(folder / "new.ckpt.index", 40)
    with pytest.raises(DataError, match="new.ckpt.index, block at byte 0: its CRC is"):
        slim.load_slim_checkpoint(folder / "new.ckpt")
    flipped(folder / "old.ckpt", 400)
    with pytest.raises(DataError, match="old.ckpt, block at byte 0: its CRC is"):
        slim.load_slim_checkpoint(folder / "old.ckpt")


@pytest.mark.parametrize("name", ["old.ckpt", "new.ckpt.index"])
def test_no_single_wrong_byte_is_read_as_numbers(folder, name):
    whole = (HERE / name).read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.choice(len(whole), 60, replace=False):
        (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.integers(8))]) + whole[at + 1 :])
        try:
            found = slim.load_slim_checkpoint(folder / name)
        except DataError as error:
            assert name in str(error) or "new.ckpt" in str(error)
        else:  # the meta index and the zeros of the footer are not read
            assert same(found, EXPECTED if name == "old.ckpt" else EXPECTED | ONLY_NEW)


def test_files_that_are_none_and_places_without_any(folder):
    (folder / "text").write_text("x" * 100)
    (folder / "short.index").write_text("x")
    for name, message in (
        ("text", "text is no checkpoint of TensorFlow's: it does not end as one does"),
        ("short", "short.index has 1 bytes; no TensorFlow checkpoint, or it was cut off"),
        (
            "nwe.ckpt",
            "there is no checkpoint .*nwe.ckpt: neither nwe.ckpt.index nor a file of that name. Did you mean "
            "'new.ckpt'",
        ),
        ("no/where", "there is no folder .*no for the checkpoint where"),
        ("", "has no file 'checkpoint' that names its latest one; give the prefix"),
    ):
        with pytest.raises(DataError, match=message):
            slim.load_slim_checkpoint(folder / name)
    with (folder / "other.index").open("wb") as file:
        write_table(file, [(b"a", b"")])
    with pytest.raises(DataError, match="other.index has no header; it is a table, but not the index of a checkpoint"):
        slim.load_slim_checkpoint(folder / "other")


def test_values_that_cannot_be_written(tmp_path):
    with pytest.raises(DTypeError, match="a has dtype object; a checkpoint takes bool, complex128"):
        slim.save_slim_checkpoint({"a": np.array([{}])}, tmp_path / "model.ckpt")
    with pytest.raises(ArgumentError, match="a variable needs a name"):
        slim.save_slim_checkpoint({"": np.ones(1)}, tmp_path / "model.ckpt")
    assert not list(tmp_path.iterdir())


def tensorflow_python() -> str | None:
    """An interpreter that has TensorFlow: this one, or the one that TENSORFLOW_PYTHON names."""
    return sys.executable if importlib.util.find_spec("tensorflow") else os.environ.get("TENSORFLOW_PYTHON")


@pytest.mark.slow
@pytest.mark.skipif(
    tensorflow_python() is None,
    reason="TensorFlow is not installed, and TENSORFLOW_PYTHON names no interpreter that has it",
)
def test_tensorflow_reads_ours_and_writes_theirs(tmp_path):
    program = [str(tensorflow_python()), str(HERE / "with_tensorflow.py")]
    subprocess.run([*program, "write", str(tmp_path)], check=True, capture_output=True, timeout=200)
    assert same(slim.load_slim_checkpoint(tmp_path / "old.ckpt"), EXPECTED)
    assert same(slim.load_slim_checkpoint(tmp_path / "new.ckpt"), EXPECTED | ONLY_NEW)
    net = slim.create_model("mobilenet_v1_025", 3)
    variables = net.slim_variables() | EXPECTED
    slim.save_slim_checkpoint(variables, tmp_path / "ours")
    done = subprocess.run(
        [*program, "read", str(tmp_path / "ours")], check=True, capture_output=True, text=True, timeout=200
    )
    found = json.loads(done.stdout)
    assert same({name: np.array(value, dtype) for name, (dtype, value) in found.items()}, variables)
