"""``python -m oneflow.data imagenet``, ``mnist`` and ``cifar10``: record data sets of what is downloaded elsewhere."""

from __future__ import annotations

import gzip
import os
import struct

import numpy as np
import pytest
from picture_records import picture, records, run

from oneflow.engine.data.image import decode


@pytest.fixture
def imagenet(tmp_path):
    for synset in ("n02", "n01", "n03"):
        (tmp_path / "in" / "train" / synset).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "in" / "train" / synset / f"{synset}_{number}.JPEG").write_bytes(picture(number))
    (tmp_path / "in" / "val").mkdir()
    for number in range(1, 5):
        (tmp_path / "in" / "val" / f"ILSVRC2012_val_0000000{number}.JPEG").write_bytes(picture(number))
    (tmp_path / "labels").write_text("n03\nn01\nn02\nn01\n")
    return tmp_path / "in"


def classes(features):
    return [
        (int(r["class/label"].values[0]), r["class/synset"].values[0].decode(), r["class/text"].values[0].decode())
        for r in features
    ]


def test_imagenet(imagenet, tmp_path):
    out = tmp_path / "out"
    assert run("imagenet", imagenet, out, "--parts", 2, "--labels", tmp_path / "labels") == 0
    assert sorted(os.listdir(out)) == ["train", "validation"]
    assert sorted(os.listdir(out / "train")) == ["labels.txt", "part-00000", "part-00001"]
    assert (out / "train" / "labels.txt").read_text() == "0:n01\n1:n02\n2:n03\n"
    train = classes(records(out / "train"))
    assert sorted(train) == [(0, "n01", "")] * 3 + [(1, "n02", "")] * 3 + [(2, "n03", "")] * 3
    assert train != sorted(train), "training pictures are mixed"
    validation = records(out / "validation")
    assert [label for label, _, _ in classes(validation)] == [2, 0, 1, 0]
    assert validation[0]["filename"].values == [b"ILSVRC2012_val_00000001.JPEG"]


def test_imagenet_with_an_order_of_synsets_and_named_labels(imagenet, tmp_path):
    (tmp_path / "synsets").write_text("n03 tench, Tinca tinca\nn01\nn02 goldfish\n")
    names = [f"ILSVRC2012_val_0000000{n}.JPEG" for n in (4, 3, 2, 1)]
    (tmp_path / "labels").write_text(
        "".join(f"{name} {synset}\n" for name, synset in zip(names, ["n01", "n02", "n01", "n03"]))
    )
    options = [
        "--synsets",
        tmp_path / "synsets",
        "--labels",
        tmp_path / "labels",
        "--parts",
        1,
        "--split",
        "validation",
    ]
    assert run("imagenet", imagenet, tmp_path / "out", *options) == 0
    found = classes(records(tmp_path / "out" / "validation"))
    assert found == [(0, "n03", "tench, Tinca tinca"), (1, "n01", ""), (2, "n02", "goldfish"), (1, "n01", "")]
    assert os.listdir(tmp_path / "out") == ["validation"]


def test_what_imagenet_refuses(imagenet, tmp_path, capsys):
    def refused(reason, *arguments):
        assert run("imagenet", imagenet, tmp_path / "out", "--parts", 1, "--split", "validation", *arguments) == 1
        assert reason in capsys.readouterr().err

    refused("is flat: give --labels")
    (tmp_path / "labels").write_text("n03\nn01\n")
    refused("2 lines for 4 pictures", "--labels", tmp_path / "labels")
    (tmp_path / "labels").write_text("n03\nn01\nn09\nn01\n")
    refused("is of 'n09', which is none of the 3 synsets", "--labels", tmp_path / "labels")
    (tmp_path / "labels").write_text("490\n361\n171\n822\n")
    refused("has numbers", "--labels", tmp_path / "labels")
    (tmp_path / "synsets").write_text("n01\nn02\nn03\nn04\n")
    assert run("imagenet", imagenet, tmp_path / "out", "--split", "train", "--synsets", tmp_path / "synsets") == 1
    assert "no folder for 1 of 4 synsets: n04" in capsys.readouterr().err
    assert run("imagenet", tmp_path / "labels", tmp_path / "out") == 1


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def test_mnist(tmp_path):
    rng = np.random.default_rng(0)
    sets = {"train": (rng.integers(0, 255, (20, 28, 28), np.uint8), rng.integers(0, 10, 20).astype(np.uint8))}
    sets["t10k"] = (sets["train"][0][:7], sets["train"][1][:7])
    (tmp_path / "in").mkdir()
    for name, (images, labels) in sets.items():
        (tmp_path / "in" / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / "in" / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels))
    for format, prefix in (("ofrecord", ""), ("tfrecord", "image/")):
        out = tmp_path / format
        assert run("mnist", tmp_path / "in", out, "--format", format, "--parts", 3) == 0
        assert (out / "test" / "labels.txt").read_text().splitlines()[6] == "6:six"
        for split, (images, labels) in zip(("train", "test"), sets.values()):
            found = records(out / split, format)
            assert [int(r[f"{prefix}class/label"].values[0]) for r in found] == labels.tolist()
            assert all(
                (decode(r[f"{prefix}encoded"].values[0], "GRAY")[..., 0] == image).all()
                for r, image in zip(found, images)
            )


def test_cifar10(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    rows = rng.integers(0, 255, (6, 4, 3073), np.uint8)
    rows[:, :, 0] %= 10
    for number, batch in enumerate(rows):
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        (tmp_path / "in" / name).write_bytes(batch.tobytes())
    assert run("cifar10", tmp_path / "in", tmp_path / "out") == 0
    train, test = records(tmp_path / "out" / "train"), records(tmp_path / "out" / "test")
    assert (len(train), len(test)) == (20, 4)
    pixels = decode(train[5]["encoded"].values[0], "RGB")
    np.testing.assert_array_equal(pixels, rows[1, 1, 1:].reshape(3, 32, 32).transpose(1, 2, 0))
    assert int(train[5]["class/label"].values[0]) == rows[1, 1, 0]
    assert train[5]["class/text"].values[0].decode() in (tmp_path / "out" / "train" / "labels.txt").read_text()

    (tmp_path / "in" / "data_batch_3.bin").write_bytes(rows[2].tobytes()[:-1])
    assert run("cifar10", tmp_path / "in", tmp_path / "out2") == 1
    assert "no multiple of 3073" in capsys.readouterr().err
    rows[2, 3, 0] = 10
    (tmp_path / "in" / "data_batch_3.bin").write_bytes(rows[2].tobytes())
    assert run("cifar10", tmp_path / "in", tmp_path / "out2") == 1
    assert "data_batch_3.bin: record 3 at byte 9219: label 10" in capsys.readouterr().err
    os.unlink(tmp_path / "in" / "data_batch_3.bin")
    (tmp_path / "in" / "data_batch_3").touch()
    assert run("cifar10", tmp_path / "in", tmp_path / "out2") == 1
    assert "take the binary one" in capsys.readouterr().err
    assert not (tmp_path / "out2").exists()
