"""The words of TensorFlow in data set files, without TensorFlow."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from fastnn import tf
from fastnn.datasets import dataset_factory
from fastnn.errors import FlagError
from oneflow.engine.core.errors import AbsentNameError, ArgumentError, DataError, DTypeError
from oneflow.engine.core.record.messages import FeatureValue, encode_example


def example(**features):
    kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
    return encode_example({name: FeatureValue(kinds[type(values[0])], values) for name, values in features.items()})


def packed(pixels, kind):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def test_features_of_fixed_length():
    found = tf.parse_single_example(
        example(a=[3], b=[1.5, 2.5], c=[b"x"], d=[b"p", b"q"]),
        {
            "a": tf.FixedLenFeature([], tf.int64),
            "b": tf.FixedLenFeature((2, 1), tf.float32),
            "c": tf.FixedLenFeature((), tf.string),
            "d": tf.FixedLenFeature([2], tf.string),
            "e": tf.FixedLenFeature([], tf.int64, default_value=tf.zeros([], dtype=tf.int64)),
            "f": tf.FixedLenFeature([3], tf.float32, default_value=2.0),
            "g": tf.FixedLenFeature((), tf.string, default_value="png"),
        },
    )
    assert found["a"].dtype is torch.int64 and found["a"].shape == () and found["a"] == 3
    assert found["b"].tolist() == [[1.5], [2.5]] and found["c"] == b"x" and found["d"] == [b"p", b"q"]
    assert found["e"] == 0 and found["f"].tolist() == [2.0, 2.0, 2.0] and found["g"] == b"png"


def test_features_of_any_length():
    found = tf.io.parse_single_example(
        example(a=[3, 4]), {"a": tf.io.VarLenFeature(tf.int64), "b": tf.VarLenFeature(tf.float32)}
    )
    assert tf.sparse_tensor_to_dense(found["a"]).tolist() == [3, 4] and found["a"].dense_shape.tolist() == [2]
    assert found["a"].indices.tolist() == [[0], [1]] and found["b"].values.tolist() == []


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (
            {"b": tf.FixedLenFeature([], tf.int64)},
            DataError,
            "the record has no feature 'b', and its FixedLenFeature has no default_value",
        ),
        (
            {"a": tf.FixedLenFeature([], tf.float32)},
            DataError,
            "feature 'a' is a int64_list in this record and is asked for as a float_list",
        ),
        (
            {"a": tf.FixedLenFeature([], tf.int64)},
            DataError,
            "feature 'a' has 2 values in this record, the shape [] has 1",
        ),
        (
            {"a": tf.FixedLenFeature([2], tf.int32)},
            ArgumentError,
            "feature 'a' has the dtype tf.string, tf.int64 or tf.float32, got torch.int32",
        ),
        ({"a": "x"}, ArgumentError, "feature 'a' is asked for by tf.FixedLenFeature or tf.VarLenFeature, got 'x'"),
    ],
)
def test_features_that_cannot_be_had(features, error, message):
    with pytest.raises(error) as found:
        tf.parse_single_example(example(a=[3, 4]), features)
    assert message in str(found.value)


def test_pictures():
    colour = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    grey = colour[..., 0]
    np.testing.assert_array_equal(tf.image.decode_png(packed(colour, "png")), colour)
    np.testing.assert_array_equal(tf.image.decode_jpeg(packed(colour, "png"), channels=3), colour)
    np.testing.assert_array_equal(
        tf.image.decode_image(packed(grey, "png"), channels=3), np.repeat(grey[..., None], 3, 2)
    )
    np.testing.assert_array_equal(tf.image.decode_image(packed(grey, "png")), grey[..., None])
    np.testing.assert_array_equal(tf.io.decode_png(packed(colour, "png"), channels=3), colour)
    jpeg = tf.image.decode_jpeg(packed(np.full((8, 8, 3), 90, np.uint8), "jpeg"), channels=1)
    assert jpeg.shape == (8, 8, 1) and abs(int(jpeg.float().mean()) - 90) <= 1
    floats = tf.image.convert_image_dtype(torch.tensor([0, 255], dtype=torch.uint8), tf.float32)
    assert floats.tolist() == [0.0, 1.0] and tf.image.convert_image_dtype(floats, tf.uint8).tolist() == [0, 255]
    with pytest.raises(ArgumentError, match="channels is 0, 1 or 3, got 4"):
        tf.image.decode_png(b"", channels=4)
    with pytest.raises(ArgumentError, match="ratio is 1, got 2"):
        tf.image.decode_jpeg(b"", ratio=2)


def test_other_words():
    assert (
        tf.cast(torch.tensor([1.9]), tf.int32).tolist() == [1]
        and tf.to_int64(True) == 1
        and tf.to_float(3).dtype is torch.float32
    )
    assert (
        tf.to_int32(2.5) == 2
        and tf.reshape(torch.arange(6), [2, -1]).shape == (2, 3)
        and tf.squeeze(torch.zeros(1, 2)).shape == (2,)
    )
    assert tf.transpose(torch.zeros(2, 3)).shape == (3, 2) and tf.transpose(torch.zeros(2, 3, 4), [2, 0, 1]).shape == (
        4,
        2,
        3,
    )
    assert tf.shape(torch.zeros(2, 3)).tolist() == [2, 3] and tf.ones([2], tf.int64).tolist() == [1, 1]
    assert tf.constant(3, tf.float32, [2]).tolist() == [3.0, 3.0] and tf.zeros((), tf.string) == b""
    assert tf.decode_raw(b"\x01\x00\x02\x00", tf.int16).tolist() == [1, 2]
    assert tf.decode_raw(b"\x00\x01", tf.int16, little_endian=False).tolist() == [1]
    with tf.device("/cpu:0"):
        pass
    with pytest.raises(DataError, match="3 bytes are no multiple of 2"):
        tf.decode_raw(b"abc", tf.int16)
    with pytest.raises(DTypeError, match="a dtype of numbers is tf.float32, tf.int64 and so on; got 'complex'"):
        tf.cast(1, "complex")


def test_the_loss_of_the_manual():
    logits, labels = torch.randn(4, 3), torch.tensor([[0], [2], [1], [1]])
    expected = -torch.log_softmax(logits, 1)[torch.arange(4), labels[:, 0]].mean() * 0.4
    torch.testing.assert_close(
        tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits, weights=0.4), expected
    )


@pytest.mark.parametrize(
    ("where", "name"),
    [(tf, "tf.matmul"), (tf.image, "tf.image.resize_images"), (tf.io, "tf.io.gfile"), (tf.losses, "tf.losses.mean")],
)
def test_any_other_word_is_an_error_that_names_it(where, name):
    with pytest.raises(AbsentNameError, match=f"{name} is not among the words of TensorFlow that fastnn.tf has"):
        getattr(where, name.rsplit(".", 1)[-1])


WORDS = """
import sys
sys.path.insert(0, {folder!r})
from fastnn.tf import stand_in
stand_in.install()
from datasets import mine
assert mine.parse_fn(None).tolist() == 0
stand_in.withdraw()
assert "tensorflow" not in sys.modules
try:
    import tensorflow
except ImportError:
    print("only for data sets")
"""


@pytest.mark.skipif("tensorflow" in sys.modules, reason="TensorFlow itself is there")
def test_a_data_set_file_imports_tensorflow_and_nobody_else_does(tmp_path):
    folder = tmp_path / "datasets"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "mine.py").write_text(
        "import tensorflow as tf\ndef parse_fn(example):\n    return tf.zeros([], dtype=tf.int64)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", WORDS.format(folder=str(tmp_path))], capture_output=True, text=True, check=True
    )
    assert done.stdout == "only for data sets\n"
    assert done.stderr == "fastnn: TensorFlow is not installed; fastnn.tf stands in for it in data set files\n"


def test_a_data_set_by_its_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import tensorflow as tf\ndef parse_fn(example):\n    return tf.zeros([2, 2, 3]), tf.zeros([], "
        "dtype=tf.int64)\n"
    )
    monkeypatch.setitem(dataset_factory.datasets_map, "mine", file)
    image, label = dataset_factory.get_parse_fn("mine")(b"")
    assert image.shape == (2, 2, 3) and label == 0
    assert "tensorflow" not in sys.modules


def test_a_data_set_in_the_folder_beside_the_program(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "near.py").write_text("def parse_fn(example):\n    return 1, 2\n")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train.py")])
    assert dataset_factory.get_parse_fn("near")(b"") == (1, 2)


def test_a_function_is_a_data_set(monkeypatch):
    monkeypatch.setitem(dataset_factory.datasets_map, "mine", lambda example: (3, 4))
    assert dataset_factory.get_parse_fn("mine")(b"") == (3, 4)


def test_unknown_data_sets(tmp_path, monkeypatch):
    with pytest.raises(FlagError, match="--dataset_name=cifar: there is no such data set. Did you mean 'cifar10'"):
        dataset_factory.get_parse_fn("cifar")
    monkeypatch.setitem(dataset_factory.datasets_map, "mine", tmp_path / "absent.py")
    with pytest.raises(FlagError, match="the data set file .*absent.py does not exist"):
        dataset_factory.get_parse_fn("mine")
    (tmp_path / "absent.py").write_text("x = 1\n")
    with pytest.raises(FlagError, match=r"--dataset_name=mine: its file has no function parse_fn\(example\)"):
        dataset_factory.get_parse_fn("mine")
