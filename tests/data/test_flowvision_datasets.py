"""Data sets from files made here, as the published sets lay them out; and what is said where files are missing."""

from __future__ import annotations

import gzip
import http.server
import io
import pickle
import struct
import tarfile
import threading
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import oneflow as flow
from flowvision import datasets, transforms
from flowvision.datasets import utils
from flowvision.datasets.matlab import load_arrays
from flowvision.datasets.mnist import read_sn3_pascalvincent_tensor
from libai.data import datasets as of_libai
from oneflow.data import FeatureValue, RecordWriter
from oneflow.engine.core.errors import DataError
from oneflow.engine.data.at_once import NotAtOnce, at_once


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("ONEFLOW_OFFLINE", "1")
    monkeypatch.delenv("ONEFLOW_MNIST_DIR", raising=False)


def rng():
    return np.random.default_rng(0)


def idx(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


PICTURES = rng().integers(0, 256, (6, 28, 28), np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], np.uint8)


def write_idx_set(folder, names=("train", "t10k"), packed=False, prefix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in zip(names, (6, 2)):
        for name, array in (
            (f"{prefix}{part}-images-idx3-ubyte", PICTURES[:count]),
            (f"{prefix}{part}-labels-idx1-ubyte", LABELS[:count]),
        ):
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array))) if packed else (folder / name).write_bytes(
                idx(array)
            )


# ------------------------------------------------------------------------------------------------------------------------
# MNIST


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cls", [datasets.MNIST, datasets.FashionMNIST, datasets.KMNIST])
def test_files_that_are_there_are_read(tmp_path, cls, packed):
    write_idx_set(tmp_path / cls.__name__ / "raw", packed=packed)
    train, test = cls(tmp_path), cls(str(tmp_path), train=False, download=True, source_url="http://nowhere.invalid/")
    assert (len(train), len(test), len(train.classes)) == (6, 2, 10)
    picture, label = train[2]
    assert (
        picture.mode == "L" and np.array_equal(np.asarray(picture), PICTURES[2]) and label == 4 and type(label) is int
    )
    assert (
        train.data.dtype == torch.uint8
        and train.targets.tolist() == LABELS.tolist()
        and train.class_to_idx[train.classes[3]] == 3
    )
    assert "Split: Train" in repr(train) and "Number of datapoints: 6" in repr(train)


def test_transforms_of_pictures_and_targets(tmp_path):
    write_idx_set(tmp_path / "MNIST" / "raw")
    plain = datasets.MNIST(tmp_path)
    row = [transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))]
    for transform in (
        transforms.ToTensor(),
        transforms.Compose(row),
        transforms.Compose([transforms.Resize(14), *row]),
        np.asarray,
    ):
        made = datasets.MNIST(tmp_path, transform=transform, target_transform=lambda label: label * 10)
        for index in range(6):
            assert (
                np.array_equal(np.asarray(made[index][0]), np.asarray(transform(plain[index][0])))
                and made[index][1] == plain[index][1] * 10
            )


def test_without_a_network_mnist_is_the_shipped_subset(tmp_path, capsys):
    found = datasets.MNIST(tmp_path, download=True)
    assert len(found) == 5000 and len(datasets.MNIST(tmp_path, train=False, download=True)) == 1000
    told = capsys.readouterr().err
    assert (
        "using the shipped subset of MNIST" in told
        and "ONEFLOW_OFFLINE is set" in told
        and str(tmp_path / "MNIST" / "raw") in told
    )


def test_a_named_folder_serves_where_root_has_no_files(tmp_path, monkeypatch):
    write_idx_set(tmp_path / "mine", packed=True)
    monkeypatch.setenv("ONEFLOW_MNIST_DIR", str(tmp_path / "mine"))
    assert len(datasets.MNIST(tmp_path)) == 6
    (tmp_path / "mine" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="ONEFLOW_MNIST_DIR is .*, which lacks some of"):
        datasets.MNIST(tmp_path)


def test_missing_files_are_named_with_their_place(tmp_path):
    with pytest.raises(
        RuntimeError,
        match="Dataset not found. You can use download=True to download it, or put train-images-idx3-ubyte.gz, .* into .*MNIST/raw",
    ):
        datasets.MNIST(tmp_path)
    with pytest.raises(
        RuntimeError,
        match="FashionMNIST cannot be downloaded .ONEFLOW_OFFLINE is set.; put .* into .*FashionMNIST/raw, from http",
    ):
        datasets.FashionMNIST(tmp_path, download=True)
    write_idx_set(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(idx(LABELS[:5]))
    with pytest.raises(DataError, match="has 6 pictures, train-labels-idx1-ubyte 5 labels; they are not of one set"):
        datasets.MNIST(tmp_path)


@pytest.fixture
def server(tmp_path):
    """A folder over HTTP."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(folder), **kwargs)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{made.server_port}/"
        made.shutdown()
        thread.join()


def test_what_is_missing_is_downloaded_checked_and_unpacked(tmp_path, server, monkeypatch):
    folder, url = server
    write_idx_set(folder, packed=True)
    monkeypatch.delenv("ONEFLOW_OFFLINE")
    sums = {path.name: utils.calculate_md5(path) for path in folder.iterdir()}
    monkeypatch.setattr(datasets.KMNIST, "resources", sums)
    assert len(datasets.KMNIST(tmp_path, download=True, source_url=url)) == 6
    assert (tmp_path / "KMNIST" / "raw" / "train-images-idx3-ubyte").read_bytes() == idx(PICTURES)
    monkeypatch.setattr(datasets.KMNIST, "resources", dict.fromkeys(sums, "0" * 32))
    with pytest.raises(
        RuntimeError, match="KMNIST cannot be downloaded .*MD5 .*, expected 0000.*the file was not kept"
    ):
        datasets.KMNIST(tmp_path / "other", download=True, source_url=url)
    assert not list((tmp_path / "other").rglob("*.gz*"))


def test_emnist_pictures_are_turned_upright(tmp_path):
    raw = tmp_path / "EMNIST" / "raw"
    write_idx_set(raw / "gzip", ("train", "test"), packed=True, prefix="emnist-letters-")
    with zipfile.ZipFile(raw / "gzip.zip", "w") as archive:
        for path in sorted((raw / "gzip").iterdir()):
            archive.write(path, f"gzip/{path.name}")
            path.unlink()
    found = datasets.EMNIST(tmp_path, split="letters", train=True)
    assert np.array_equal(np.asarray(found[1][0]), PICTURES[1].T) and len(found.classes) == 27
    assert (len(datasets.EMNIST(tmp_path, "letters", train=False)), len(found)) == (2, 6)
    with pytest.raises(ValueError, match="split is one of .* got 'letter'. Did you mean 'letters'"):
        datasets.EMNIST(tmp_path, "letter")


def test_idx_files_of_any_dims(tmp_path):
    (tmp_path / "a").write_bytes(idx(PICTURES))
    (tmp_path / "b.gz").write_bytes(gzip.compress(idx(LABELS)))
    assert read_sn3_pascalvincent_tensor(tmp_path / "a").shape == (6, 28, 28)
    assert read_sn3_pascalvincent_tensor(tmp_path / "b.gz").tolist() == LABELS.tolist()


# ------------------------------------------------------------------------------------------------------------------------
# CIFAR


def write_cifar(root, hundred=False):
    data = rng().integers(0, 256, (4, 3072), np.uint8)
    files = (
        {"cifar-100-python/train": "fine_labels", "cifar-100-python/test": "fine_labels"}
        if hundred
        else {
            **{f"cifar-10-batches-py/data_batch_{i}": "labels" for i in range(1, 6)},
            "cifar-10-batches-py/test_batch": "labels",
        }
    )
    with tarfile.open(root / ("cifar-100-python.tar.gz" if hundred else "cifar-10-python.tar.gz"), "w:gz") as tar:
        meta = {"fine_label_names": ["apple", "bear"]} if hundred else {"label_names": ["airplane", "cat"]}
        name = "cifar-100-python/meta" if hundred else "cifar-10-batches-py/batches.meta"
        for path, content in [(path, {"data": data, key: [0, 1, 1, 0]}) for path, key in files.items()] + [
            (name, meta)
        ]:
            packed = pickle.dumps(content, protocol=2)
            info = tarfile.TarInfo(path)
            info.size = len(packed)
            tar.addfile(info, io.BytesIO(packed))
    return data


@pytest.mark.parametrize(("cls", "hundred"), [(datasets.CIFAR10, False), (datasets.CIFAR100, True)])
def test_cifar_archives_are_unpacked_and_read(tmp_path, cls, hundred):
    data = write_cifar(tmp_path, hundred)
    train, test = cls(tmp_path), cls(tmp_path, train=False)
    assert (len(train), len(test)) == ((4, 4) if hundred else (20, 4))
    picture, label = train[1]
    assert picture.mode == "RGB" and label == 1 and train.classes[1] in ("bear", "cat")
    assert np.array_equal(np.asarray(picture), data[1].reshape(3, 32, 32).transpose(1, 2, 0))
    assert torch.equal(cls(tmp_path, transform=transforms.ToTensor())[1][0], transforms.ToTensor()(picture))


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_a_batch_that_would_call_something_is_refused(tmp_path, capsys):
    write_cifar(tmp_path)
    datasets.CIFAR10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(
        DataError, match="test_batch is damaged, or no file of CIFAR: it names builtins.print, .* nothing was executed"
    ):
        datasets.CIFAR10(tmp_path, train=False)
    assert capsys.readouterr().out == ""
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": np.zeros((2, 5))}))
    with pytest.raises(DataError, match="is no batch of CIFAR: 'data' is uint8 .n, 3072."):
        datasets.CIFAR10(tmp_path, train=False)
    with pytest.raises(RuntimeError, match="put cifar-100-python.tar.gz into"):
        datasets.CIFAR100(tmp_path)


# ------------------------------------------------------------------------------------------------------------- SVHN and
# STL-10


def mat_element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def mat_array(name, array, mat_class, kind):
    flags = mat_element(6, struct.pack("<II", mat_class, 0))
    dims = mat_element(5, np.array(array.shape, "<i4").tobytes())
    small = struct.pack("<HH", 1, len(name)) + name.encode().ljust(
        4, b"\0"
    )  # a name of up to four letters lies within its tag
    return mat_element(14, flags + dims + small + mat_element(kind, array.tobytes(order="F")))


def write_mat(path, packed=True, **arrays):
    parts = [
        mat_array(
            name, array, {"uint8": 9, "float64": 6}[array.dtype.name], {"uint8": 2, "float64": 9}[array.dtype.name]
        )
        for name, array in arrays.items()
    ]
    if packed:
        parts = [struct.pack("<II", 15, len(zlib.compress(part))) + zlib.compress(part) for part in parts]
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + b"".join(parts))


@pytest.mark.parametrize("packed", [False, True])
def test_svhn_is_read_from_its_matlab_file(tmp_path, packed):
    pictures = rng().integers(0, 256, (32, 32, 3, 5), np.uint8)
    write_mat(tmp_path / "train_32x32.mat", packed, X=pictures, y=np.array([[1], [10], [9], [2], [3]], np.uint8))
    found = datasets.SVHN(tmp_path)
    assert found.labels.tolist() == [1, 0, 9, 2, 3] and found.data.shape == (5, 3, 32, 32)
    assert np.array_equal(np.asarray(found[3][0]), pictures[:, :, :, 3]) and found[1][1] == 0
    write_mat(tmp_path / "test_32x32.mat", packed, X=pictures[:, :, :, :2], y=np.array([[1.0], [2.0]]))
    assert datasets.SVHN(tmp_path, "test").labels.tolist() == [1, 2]


def test_damaged_matlab_files_are_refused(tmp_path):
    path = tmp_path / "train_32x32.mat"
    write_mat(path, False, X=np.zeros((2, 2), np.uint8))
    assert load_arrays(path)["X"].shape == (2, 2)
    with pytest.raises(DataError, match="is no file of SVHN: X is .32, 32, 3, n."):
        datasets.SVHN(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="is damaged or cut short"):
        datasets.SVHN(tmp_path)
    path.write_bytes(b"no")
    with pytest.raises(DataError, match="is no MATLAB file of version 5"):
        datasets.SVHN(tmp_path)
    with pytest.raises(RuntimeError, match="put extra_32x32.mat into"):
        datasets.SVHN(tmp_path, "extra")


def test_stl10_pictures_stand_upright_and_have_folds(tmp_path):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    upright = rng().integers(0, 256, (3, 96, 96, 3), np.uint8)
    for name in ("train", "unlabeled"):
        (folder / f"{name}_X.bin").write_bytes(upright.transpose(0, 3, 2, 1).tobytes())
    (folder / "train_y.bin").write_bytes(bytes([1, 10, 3]))
    (folder / "fold_indices.txt").write_text("2 0\n1\n")
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    found = datasets.STL10(tmp_path)
    assert (
        np.array_equal(np.asarray(found[1][0]), upright[1])
        and found.labels.tolist() == [0, 9, 2]
        and found.classes == ["airplane", "bird"]
    )
    assert datasets.STL10(tmp_path, folds=0).labels.tolist() == [2, 0]
    assert datasets.STL10(tmp_path, "train+unlabeled").labels.tolist() == [0, 9, 2, -1, -1, -1]
    with pytest.raises(ValueError, match="folds is from 0 to 9, for the training pictures"):
        datasets.STL10(tmp_path, "unlabeled", folds=1)
    with pytest.raises(RuntimeError, match="put stl10_binary.tar.gz into"):
        datasets.STL10(tmp_path, "test")
    (folder / "train_X.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="3 bytes are no multiple of a picture's 27648"):
        datasets.STL10(tmp_path)


# ----------------------------------------------------------------------------------------------------------------------
# folders


def write_pictures(root, classes=("cat", "dog"), count=2):
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("L", (4, 5), number * 100 + i).save(root / name / f"{i}.PNG")


def test_folders_of_pictures(tmp_path):
    write_pictures(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    (tmp_path / "cat" / "deep").mkdir()
    Image.new("RGB", (4, 5)).save(tmp_path / "cat" / "deep" / "z.png")
    found = datasets.ImageFolder(tmp_path)
    assert (
        found.classes == ["cat", "dog"]
        and found.class_to_idx == {"cat": 0, "dog": 1}
        and found.targets == [0, 0, 0, 1, 1]
    )
    assert (
        found.imgs == found.samples
        and found[3][0].mode == "RGB"
        and found[3][0].getpixel((0, 0)) == (100, 100, 100)
        and found[3][1] == 1
    )
    texts = datasets.DatasetFolder(
        tmp_path,
        loader=lambda path: open(path).read(),
        is_valid_file=lambda path: path.endswith(("txt", "1.PNG")) and "dog" not in path or "0.PNG" in path,
    )
    assert len(texts) == 4


def test_folders_without_samples_say_so(tmp_path):
    with pytest.raises(RuntimeError, match="cannot be read: No such file"):
        datasets.ImageFolder(tmp_path / "none")
    with pytest.raises(RuntimeError, match="Couldn't find any class folder in"):
        datasets.ImageFolder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(
        RuntimeError, match="Found no valid file for the classes cat in .* Supported extensions are: .jpg, "
    ):
        datasets.ImageFolder(tmp_path)
    with pytest.raises(ValueError, match="give extensions or is_valid_file"):
        datasets.DatasetFolder(tmp_path, str)


def test_imagenet_archives_are_unpacked(tmp_path):
    made = tmp_path / "made"
    write_pictures(made, ("n01", "n02"))
    with tarfile.open(tmp_path / "ILSVRC2012_img_train.tar", "w") as outer:
        for name in ("n01", "n02"):
            with tarfile.open(made / f"{name}.tar", "w") as inner:
                for path in sorted((made / name).iterdir()):
                    inner.add(path, path.name)
            outer.add(made / f"{name}.tar", f"{name}.tar")
    with tarfile.open(tmp_path / "ILSVRC2012_img_val.tar", "w") as val:
        for i in range(2):
            val.add(made / "n01" / f"{i}.PNG", f"val_{i}.PNG")
    with pytest.raises(RuntimeError, match="meta.bin is not there"):
        datasets.ImageNet(tmp_path, "val")
    torch.save(({"n01": ("tench", "Tinca"), "n02": ("goldfish",)}, ["n02", "n01"]), tmp_path / "meta.bin")
    train, val = datasets.ImageNet(tmp_path), datasets.ImageNet(tmp_path, "val")
    assert (
        train.wnids == ["n01", "n02"]
        and train.classes == [("tench", "Tinca"), ("goldfish",)]
        and train.class_to_idx["goldfish"] == 1
        and len(train) == 4
    )
    assert (
        val.targets == [0, 1] and val[1][0].getpixel((0, 0)) == (0, 0, 0) and val.split_folder == str(tmp_path / "val")
    )
    with pytest.raises(
        RuntimeError,
        match="ImageNet cannot be downloaded, it has to be asked for at image-net.org; put the pictures into .*train/<wnid>",
    ):
        datasets.ImageNet(tmp_path / "none", download=True)


def test_archives_do_not_leave_their_folder(tmp_path):
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(DataError, match="bad.tar cannot be unpacked"):
        utils.extract_archive(tmp_path / "bad.tar", tmp_path / "in")
    with pytest.raises(ValueError, match="an archive is .tar"):
        utils.extract_archive(tmp_path / "x.rar")


def test_fake_pictures_are_the_same_whenever_they_are_asked_for():
    found, other = datasets.FakeData(5, (3, 8, 9), 4), datasets.FakeData(5, (3, 8, 9), 4, random_offset=100)
    assert found[2][0].size == (9, 8) and found[2][0].tobytes() == found[2][0].tobytes() != other[2][0].tobytes()
    assert (
        all(0 <= label < 4 for _, label in (found[i] for i in range(5)))
        and datasets.FakeData(1, (1, 4, 4))[0][0].mode == "L"
    )
    with pytest.raises(IndexError, match="FakeData has 5 pictures, got index 5"):
        found[5]


# ----------------------------------------------------------------------------------------------------------------------
# records


def png(value):
    packed = io.BytesIO()
    Image.new("RGB", (6, 4), (value, 0, 0)).save(packed, "PNG")
    return packed.getvalue()


@pytest.mark.parametrize("cls", [datasets.OFRecordFolder, datasets.TFRecordFolder])
def test_record_folders(tmp_path, cls):
    for part in range(2):
        with RecordWriter(tmp_path / f"part-{part}", format=cls.format) as writer:
            for i in range(3):
                number = part * 3 + i
                writer.write(
                    {
                        "encoded": FeatureValue("bytes_list", [png(number)]),
                        "class/label": FeatureValue("int64_list", np.array([number * 10])),
                    }
                )
    found = pickle.loads(pickle.dumps(cls(tmp_path, transform=transforms.ToTensor())))
    assert len(found) == 6 and found[4][1] == 40 and torch.equal(found[4][0][0], torch.full((4, 6), 4 / 255))
    with found.loader(3, flow.data.RawDecoder("class/label", (1,), torch.int32), epochs=1, threads=1) as loader:
        assert [batch.flatten().tolist() for batch in loader] == [[0, 10, 20], [30, 40, 50]]
    with pytest.raises(DataError, match="record 1 has no feature 'image', it has .'class/label', 'encoded'."):
        cls(tmp_path, image_key="image")[1]


# ------------------------------------------------------------------------------------------------------------- what is
# not here


def test_other_sets_are_refused_by_name():
    with pytest.raises(AttributeError, match="flowvision.datasets.CocoDetection is not there: .* ImageFolder"):
        _ = datasets.CocoDetection
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = datasets.Nothing
    with pytest.raises(ValueError, match="give transforms, which takes picture and target, or transform"):
        datasets.VisionDataset("", transforms=lambda a, b: (a, b), transform=str)


# ------------------------------------------------------------------------------------------------------------------------
# libai


def test_libai_s_sets_give_instances_one_by_one_and_at_once(tmp_path):
    write_idx_set(tmp_path / "MNIST" / "raw")
    write_cifar(tmp_path)
    write_cifar(tmp_path, hundred=True)
    write_pictures(tmp_path / "imagenet" / "val")
    row = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])
    for cls in (of_libai.MNISTDataset, of_libai.CIFAR10Dataset, of_libai.CIFAR100Dataset):
        for transform in (transforms.ToTensor(), row):
            found = cls(tmp_path, transform=transform)
            images, labels = at_once(
                lambda index, found=found: [found[index].images.tensor, found[index].labels.tensor], [3, 1]
            )
            for place, index in enumerate([3, 1]):
                assert (
                    torch.equal(images[place], found[index].images.tensor)
                    and labels[place] == found[index].labels.tensor
                )
            assert found[0].labels.placement_idx == -1 and labels.dtype == found[0].labels.tensor.dtype == torch.int64
        turned = cls(tmp_path, transform=transforms.Compose([transforms.RandomHorizontalFlip(), *row.transforms]))
        with pytest.raises(NotAtOnce):
            at_once(lambda index, turned=turned: [turned[index].images.tensor], [0])
    assert (
        of_libai.ImageNetDataset(tmp_path / "imagenet", train=False, transform=transforms.ToTensor())[3].labels.tensor
        == 1
    )
    with pytest.raises(TypeError, match="gives a tensor, got Image; end it with ToTensor"):
        of_libai.MNISTDataset(tmp_path)[0]
