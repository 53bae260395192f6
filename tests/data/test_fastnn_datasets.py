"""Batches of FastNN's data sets: what is in them, in which order, shared out to workers, and from the middle on."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import urllib.request

import fastnn_records
import numpy as np
import pytest
import torch
from PIL import Image

from fastnn import flags as fastnn_flags
from fastnn.datasets import dataset_factory
from fastnn.datasets.dataset_factory import data_files, get_dataset_iterator
from fastnn.datasets.download_and_convert_data import convert, main
from fastnn.errors import FlagError
from fastnn.flags import TABLE, Flags
from fastnn.preprocessing import preprocessing_factory
from fastnn.utils import dataset_utils
from fastnn.utils.dataset_utils import RecordIterator, Share, require_labels
from oneflow.data import Parts, read_records
from oneflow.engine.core.errors import DataError


def made(tmp_path, *words):
    flags = Flags(TABLE)
    flags.parse([f"--dataset_dir={tmp_path}", *words])
    return flags


def labels_of(iterator):
    try:
        return [labels.tolist() for _, labels in iterator]
    finally:
        iterator.close()


def numbered(paths, flags, share=None, is_training=True):
    return RecordIterator(paths, dataset_factory.get_parse_fn("cifar10"), None, 4, share or Share(), is_training, flags)


class OfTensorFlow:
    """What a tensor of TensorFlow's has in common with an array: it becomes one when asked."""

    ndim = 3

    def __init__(self, value):
        self.value = np.asarray(value)

    def __array__(self, dtype=None, copy=None):
        return self.value.astype(dtype or self.value.dtype)


def test_a_parse_fn_may_give_tensors_of_tensorflow_where_it_is_installed(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 1, 4)
    flags = made(tmp_path, "--batch_size=2", "--model_name=cifarnet")
    preprocess = preprocessing_factory.get_preprocessing("cifarnet", is_training=False)
    found = []
    for given in (np.asarray, OfTensorFlow):
        iterator = RecordIterator(
            paths,
            lambda example, given=given: (given(np.full((40, 40, 3), 7, np.uint8)), given(3)),
            preprocess,
            32,
            Share(),
            False,
            flags,
        )
        found.append(next(iterator))
        iterator.close()
    assert torch.equal(found[0][0], found[1][0]) and found[1][1].tolist() == [3, 3]


def test_a_worker_opens_its_own_files_once(tmp_path, monkeypatch):
    paths = fastnn_records.write_numbered(tmp_path, 2, 5)
    opened = []
    monkeypatch.setattr(
        dataset_utils, "Parts", lambda files: opened.append([str(file) for file in files]) or Parts(files)
    )
    numbered(paths, made(tmp_path, "--batch_size=4"), Share(1, 2)).close()
    assert sorted(opened) == [[str(path)] for path in paths]


def test_records_are_repeated_before_they_are_batched(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 2, 5)
    iterator = numbered(paths, made(tmp_path, "--batch_size=4", "--num_epochs=3", "--shuffle_buffer_size=3"))
    assert iterator.steps == 8
    found = labels_of(iterator)
    assert [len(batch) for batch in found] == [4] * 7 + [2]
    run = sum(found, [])
    for epoch in range(3):
        assert sorted(run[epoch * 10 : epoch * 10 + 10]) == list(range(10))
    assert run[:10] != run[10:20]
    assert all(label - place < 3 for place, label in enumerate(run[:10]))


def test_without_a_buffer_records_come_in_order(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 1, 6)
    assert labels_of(
        numbered(paths, made(tmp_path, "--batch_size=3", "--num_epochs=1", "--shuffle_buffer_size=1"))
    ) == [[0, 1, 2], [3, 4, 5]]
    assert labels_of(numbered(paths, made(tmp_path, "--batch_size=4"), is_training=False)) == [[0, 1, 2, 3], [4, 5]]


def test_labels_are_moved_and_checked(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 1, 4)
    found = labels_of(numbered(paths, made(tmp_path, "--batch_size=4", "--labels_offset=1"), is_training=False))
    assert found == [[-1, 0, 1, 2]]
    with pytest.raises(
        FlagError,
        match="the data has labels from -1 to 2, and the network 10 classes; set --num_classes, or --labels_offset",
    ):
        require_labels(torch.tensor(found[0]), 10)


@pytest.mark.parametrize("caching", ["True", "False"])
def test_a_run_goes_on_from_its_middle(tmp_path, caching):
    paths = fastnn_records.write_numbered(tmp_path, 2, 7)
    flags = made(
        tmp_path, "--batch_size=3", "--num_epochs=4", f"--datasets_use_caching={caching}", "--shuffle_buffer_size=5"
    )
    first = numbered(paths, flags)
    head = [first.get_next()[1].tolist() for _ in range(6)]
    state = first.state()
    rest = labels_of(first)
    second = numbered(paths, flags)
    second.load_state(state)
    assert labels_of(second) == rest and len(head) + len(rest) == 19
    with pytest.raises(DataError, match="is not a position of a data set"):
        second.load_state({"taken": 3})


def test_workers_share_the_records_of_a_step_where_files_are_few(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 1, 10)
    alone = labels_of(numbered(paths, made(tmp_path, "--batch_size=4", "--num_epochs=2")))
    both = [
        labels_of(numbered(paths, made(tmp_path, "--batch_size=2", "--num_epochs=2"), Share(worker, 2)))
        for worker in (0, 1)
    ]
    assert [a + b for a, b in zip(*both)] == alone[:5]
    assert len(both[0]) == len(both[1]) == 5


def test_workers_share_files_where_there_are_enough(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 3, 4)
    flags = made(tmp_path, "--batch_size=4", "--num_epochs=1")
    both = [numbered(paths, flags, Share(worker, 2)) for worker in (0, 1)]
    assert both[0].steps == both[1].steps == 1  # the second worker has one file of four
    found = [sum(labels_of(iterator), []) for iterator in both]
    assert set(found[0]) <= {0, 1, 2, 3, 8, 9, 10, 11} and set(found[1]) == {4, 5, 6, 7}


def test_mock_data_has_no_end():
    flags = Flags(TABLE)
    flags.batch_size = 3
    iterator = get_dataset_iterator("mock", 8, flags=flags)
    images, labels = iterator.get_next()
    assert (
        images.shape == (3, 8, 8, 3)
        and (images == 1).all()
        and labels.tolist() == [1, 1, 1]
        and labels.dtype is torch.int64
    )
    assert iterator.steps is None


def test_mnist_labels_of_shape_one_are_numbers(tmp_path):
    fastnn_records.write_cifar10(tmp_path)
    flags = made(tmp_path, "--train_files=cifar10_train.tfrecord", "--batch_size=5")
    iterator = get_dataset_iterator("mnist", 32, flags=flags)
    assert iterator.get_next()[1].shape == (5,)
    iterator.close()


def test_files_of_data_sets(tmp_path):
    flags = made(tmp_path)
    assert data_files("cifar10", flags=flags) == [f"{tmp_path}/cifar10_train.tfrecord"]
    assert data_files("flowers", False, flags)[4] == f"{tmp_path}/flowers_validation_00004-of-00005.tfrecord"
    assert data_files("mnist", flags=made(tmp_path, "--train_files=b,a")) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert data_files("mock", flags=flags) == []


@pytest.mark.parametrize(
    ("words", "name", "message"),
    [
        ([], "mine", "--train_files names the files of mine, with commas between them; it is not set"),
        ([], "", "--dataset_name needs a name, such as cifar10, flowers, mine, mnist, mock"),
        (["--train_files=absent.tfrecord"], "cifar10", "absent.tfrecord: the file cannot be opened"),
    ],
)
def test_data_that_is_not_there(tmp_path, monkeypatch, words, name, message):
    monkeypatch.setitem(dataset_factory.datasets_map, "mine", lambda example: (0, 0))
    with pytest.raises((FlagError, DataError)) as error:
        get_dataset_iterator(name, 8, flags=made(tmp_path, *words))
    assert message in str(error.value)


def test_a_data_set_needs_its_folder():
    with pytest.raises(FlagError, match="--dataset_dir names the folder with the files of mnist; it is not set"):
        get_dataset_iterator("mnist", 8, flags=Flags(TABLE))
    with pytest.raises(FlagError, match="reader= chose a reader class"):
        get_dataset_iterator("mnist", 8, reader=object(), flags=Flags(TABLE))


def test_a_parse_fn_that_gives_two_labels(tmp_path):
    paths = fastnn_records.write_numbered(tmp_path, 1, 4)
    iterator = RecordIterator(
        paths, lambda example: (np.zeros((2, 2, 3)), [1, 2]), None, 2, Share(), True, made(tmp_path)
    )
    with pytest.raises(
        DataError, match="record 0 at byte 0: parse_fn gave 2 labels for one picture|parse_fn gave 2 labels"
    ):
        iterator.get_next()
    iterator.close()


# ------------------------------------------------------------------ converting


def features(path):
    return [record.features for record in read_records(path)]


def write_cifar_archive(folder, each):
    """cifar-10-python.tar.gz with ``each`` pictures per batch file."""
    rng = np.random.default_rng(1)
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            batch = {
                b"data": rng.integers(0, 256, (each, 3072), dtype=np.uint8),
                b"labels": [int(i % 10) for i in range(each)],
            }
            add(tar, name, pickle.dumps(batch, protocol=2))
        names = "airplane automobile bird cat deer dog frog horse ship truck".split()
        add(tar, "batches.meta", pickle.dumps({"label_names": names}, protocol=2))


def add(tar, name, data):
    entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def test_cifar10_is_converted(tmp_path, capsys):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    write_cifar_archive(source, 3)
    main([f"--dataset_dir={target}", "--dataset_name=cifar10", f"--source_dir={source}"])
    assert sorted(file.name for file in target.iterdir()) == [
        "cifar10_test.tfrecord",
        "cifar10_train.tfrecord",
        "labels.txt",
    ]
    train = features(target / "cifar10_train.tfrecord")
    assert len(train) == 15 and len(features(target / "cifar10_test.tfrecord")) == 3
    first = train[1]
    assert set(first) == {"image/encoded", "image/format", "image/class/label", "image/height", "image/width"}
    assert first["image/class/label"].values.tolist() == [1] and first["image/format"].values == [b"png"]
    assert (target / "labels.txt").read_text().splitlines()[0] == "0:airplane"
    pixels = np.asarray(Image.open(io.BytesIO(first["image/encoded"].values[0])))
    planes = np.random.default_rng(1).integers(0, 256, (3, 3072), dtype=np.uint8)[1].reshape(3, 32, 32)
    np.testing.assert_array_equal(pixels, planes.transpose(1, 2, 0))
    capsys.readouterr()
    main([f"--dataset_dir={target}", "--dataset_name=cifar10"])
    assert capsys.readouterr().out == "Dataset files already exist. Exiting without re-creating them.\n"


def test_mnist_is_converted(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for split, count in (("train", 4), ("t10k", 2)):
        pixels = np.arange(count * 784, dtype=np.uint64).astype(np.uint8).tobytes()
        image_header = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (count, 28, 28))
        label_header = b"\0\0\x08\x01" + count.to_bytes(4, "big")
        (source / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(image_header + pixels))
        (source / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(label_header + bytes(range(count))))
    convert("mnist", str(target), str(source))
    train = features(target / "mnist_train.tfrecord")
    assert [record["image/class/label"].values.tolist() for record in train] == [[0], [1], [2], [3]]
    assert Image.open(io.BytesIO(train[0]["image/encoded"].values[0])).mode == "L"
    assert (target / "labels.txt").read_text().splitlines()[6] == "6:size"


def test_flowers_are_converted(tmp_path):
    for name in ("roses", "daisy"):
        folder = tmp_path / "source" / "flower_photos" / name
        folder.mkdir(parents=True)
        for number in range(30):
            Image.new("RGB", (10 + number, 8), (number, 0, 0)).save(folder / f"{number}.jpg")
    convert("flowers", str(tmp_path / "target"), str(tmp_path / "source"))
    counts = {
        split: [len(features(tmp_path / "target" / f"flowers_{split}_{i:05d}-of-00005.tfrecord")) for i in range(5)]
        for split in ("train", "validation")
    }
    assert counts == {"train": [11, 11, 11, 11, 10], "validation": [2, 1, 1, 1, 1]}
    assert (tmp_path / "target" / "labels.txt").read_text() == "0:daisy\n1:roses\n"
    record = features(tmp_path / "target" / "flowers_train_00000-of-00005.tfrecord")[0]
    assert record["image/format"].values == [b"jpg"] and record["image/height"].values.tolist() == [8]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "You must supply the dataset name with --dataset_name"),
        (["--dataset_name=cifar10"], "You must supply the dataset directory with --dataset_dir"),
        (
            ["--dataset_name=cifar", "--dataset_dir=x"],
            "--dataset_name=cifar is not one of cifar10, flowers, mnist. Did you mean 'cifar10'?",
        ),
        (
            ["--dataset_name=cifar10", "--dataset_dir={tmp}/x", "--source_dir={tmp}/no"],
            "--source_dir={tmp}/no is no folder",
        ),
        (
            ["--dataset_name=cifar10", "--dataset_dir={tmp}/x", "--source_dir={tmp}"],
            "put cifar-10-python.tar.gz into a folder and name it by --source_dir",
        ),
        (
            ["--dataset_name=flowers", "--dataset_dir={tmp}/x/y", "--source_dir={tmp}"],
            "has no folders, one for each kind of flower|cannot be shared out",
        ),
    ],
)
def test_conversions_that_cannot_be_done(tmp_path, words, message):
    with pytest.raises(SystemExit) as error:
        main([word.format(tmp=tmp_path) for word in words])
    assert any(part.format(tmp=tmp_path) in str(error.value) for part in message.split("|"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "archive"), [("cifar10", "cifar-10-python.tar.gz"), ("flowers", "flower_photos.tgz")])
def test_offline_it_asks_no_network_and_says_what_to_put_where(tmp_path, monkeypatch, name, archive):
    monkeypatch.setenv("ONEFLOW_OFFLINE", "1")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: pytest.fail("the network was asked"))
    with pytest.raises(
        DataError,
        match=f"cannot be downloaded .ONEFLOW_OFFLINE is set.; put {archive} into a folder and name it by --source_dir",
    ):
        convert(name, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == []


def test_help_of_the_converter(capsys):
    main(["--help"])
    assert "--source_dir" in capsys.readouterr().out
    assert fastnn_flags.FLAGS.dataset_name == "mock"
