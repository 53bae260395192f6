"""``python -m oneflow.data``."""

from __future__ import annotations

import gzip
import io
import os
import signal
import struct
import subprocess
import sys
import time

import fsspec
import numpy as np
import pytest
from PIL import Image

from oneflow.core.record.messages import FeatureValue
from oneflow.data.cli import main
from oneflow.data.cli.output import bounds
from oneflow.data.dataset import Parts, expand
from oneflow.data.image import decode
from oneflow.data.records import read_records, write_records

CLASSES = {"cat": 5, "dog": 4, "eel": 3}


def picture(seed: int, kind: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (4, 5, 3), np.uint8)
    packed = io.BytesIO()
    Image.fromarray(pixels).resize(size).convert(mode).save(packed, kind)
    return packed.getvalue()


@pytest.fixture
def folder(tmp_path):
    seed = 0
    for name, count in CLASSES.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(count):
            ending, kind, mode = [("jpg", "JPEG", "RGB"), ("png", "PNG", "L"), ("JPEG", "JPEG", "CMYK")][number % 3]
            (tmp_path / "images" / name / f"{number}.{ending}").write_bytes(picture(seed, kind, mode, (40 + seed, 30)))
            seed += 1
        (tmp_path / "images" / name / "readme.txt").write_text("not a picture")
    return tmp_path / "images"


def records(path, format=None):
    with Parts(expand(path), format) as parts:
        return [record.features for record in parts]


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


# ------------------------------------------------------------------ make


def test_make_an_ofrecord_data_set(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("make", folder, out, "--parts", 3, "--threads", 2) == 0
    assert "12 images of 3 classes in 3 parts" in capsys.readouterr().out
    assert sorted(os.listdir(out)) == ["labels.txt", "part-0", "part-1", "part-2"]
    assert (out / "labels.txt").read_text() == "0:cat\n1:dog\n2:eel\n"
    assert sorted(os.listdir(tmp_path)) == ["images", "out"]
    found = records(out, "ofrecord")
    assert [int(r["class/label"].values[0]) for r in found] == [0] * 5 + [1] * 4 + [2] * 3
    first, grey, cmyk = found[:3]
    assert first["encoded"].values == [(folder / "cat" / "0.jpg").read_bytes()]
    plain = {key: (value.kind, list(value.values)) for key, value in grey.items() if key != "encoded"}
    assert plain == {
        "class/label": ("int32_list", [0]),
        "class/text": ("bytes_list", [b"cat"]),
        "height": ("int32_list", [30]),
        "width": ("int32_list", [41]),
        "channels": ("int32_list", [1]),
        "colorspace": ("bytes_list", [b"Gray"]),
        "format": ("bytes_list", [b"PNG"]),
        "filename": ("bytes_list", [b"1.png"]),
        "data_id": ("bytes_list", [b"1"]),
    }
    assert cmyk["colorspace"].values == [b"CMYK"] and cmyk["channels"].values.tolist() == [4]


def test_make_a_tfrecord_data_set(folder, tmp_path):
    out = tmp_path / "out"
    assert run("make", folder, out, "--format", "tfrecord", "--gzip", "--parts", 2, "--suffix-length", 5, "--prefix", "train-") == 0
    assert sorted(os.listdir(out)) == ["labels.txt", "train-00000", "train-00001"]
    gzip.decompress((out / "train-00000").read_bytes())
    with Parts(expand(out, "train-")) as parts:
        assert parts.format == "tfrecord" and len(parts) == 12
        assert parts[0].features["image/class/label"].kind == "int64_list"
        assert parts[0].features["image/encoded"].values == [(folder / "cat" / "0.jpg").read_bytes()]


def test_threads_do_not_change_the_files_and_the_seed_does(folder, tmp_path):
    for name, more in {
        "a": ["--threads", 1],
        "b": ["--threads", 4],
        "c": ["--shuffle-seed", 1],
        "d": ["--shuffle-seed", 1],
        "e": ["--shuffle-seed", 2],
    }.items():
        assert run("make", folder, tmp_path / name, "--parts", 4, *more) == 0
    contents = {name: [(tmp_path / name / f"part-{n}").read_bytes() for n in range(4)] for name in "abcde"}
    assert contents["a"] == contents["b"]
    assert contents["c"] == contents["d"]
    assert contents["c"] != contents["a"] and contents["c"] != contents["e"]
    bodies = {name: sorted(bytes(r.body) for n in range(4) for r in read_records(tmp_path / name / f"part-{n}")) for name in "ace"}
    assert bodies["a"] == bodies["c"] == bodies["e"]


def test_parts_are_even():
    assert [bounds(10, 4, part) for part in range(4)] == [(0, 3), (3, 6), (6, 8), (8, 10)]


def test_what_make_refuses(folder, tmp_path, capsys):
    def refused(reason, *arguments):
        assert run("make", *arguments) == 1
        assert reason in capsys.readouterr().err
        assert sorted(os.listdir(tmp_path)) == before

    before = sorted(os.listdir(tmp_path))
    refused("13 parts cannot be made of 12 records", folder, tmp_path / "out", "--parts", 13)
    refused("cannot be read: No such file", tmp_path / "nowhere", tmp_path / "out")
    refused("has no sub-folders", folder / "cat", tmp_path / "out")
    refused("--gzip is for --format tfrecord", folder, tmp_path / "out", "--gzip")
    (folder / "fox").mkdir()
    refused("fox has no pictures", folder, tmp_path / "out")
    (folder / "fox" / "bad.jpg").write_bytes(b"nothing")
    refused("bad.jpg is not a picture", folder, tmp_path / "out", "--parts", 4)
    for wrong in (["--parts", "0"], ["--format", "mxnet"], ["--threads", "x"], []):
        with pytest.raises(SystemExit) as error:
            run("make", *wrong)
        assert error.value.code == 2


def test_make_does_not_overwrite_unless_told(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("make", folder, out, "--parts", 3) == 0
    (out / "notes").write_text("mine")
    old = (out / "part-0").read_bytes()
    assert run("make", folder, out) == 1
    assert "give --overwrite" in capsys.readouterr().err
    assert (out / "part-0").read_bytes() == old
    assert run("make", folder, out, "--overwrite") == 0
    assert sorted(os.listdir(out)) == ["labels.txt", "notes", "part-0"], "parts of the old set do not stay among the new"
    assert len(records(out)) == 12


def test_make_in_a_remote_folder(folder, capsys):
    try:
        assert run("make", folder, "memory://made", "--parts", 2) == 0
        assert [len(r["encoded"].values) for r in records("memory://made")] == [1] * 12
        assert run("make", folder, "memory://made", "--overwrite") == 1
        assert "not overwritten" in capsys.readouterr().err
    finally:
        fsspec.filesystem("memory").store.clear()


def test_a_failed_overwrite_leaves_the_old_set(folder, tmp_path):
    out = tmp_path / "out"
    assert run("make", folder, out, "--parts", 3) == 0
    old = {name: (out / name).read_bytes() for name in os.listdir(out)}
    (folder / "eel" / "9.jpg").write_bytes(b"broken")
    assert run("make", folder, out, "--parts", 3, "--overwrite") == 1
    assert {name: (out / name).read_bytes() for name in os.listdir(out)} == old
    assert sorted(os.listdir(tmp_path)) == ["images", "out"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_make_leaves_no_part(folder, tmp_path, number):
    os.mkfifo(folder / "eel" / "z.jpg")  # the last picture never comes: the program waits in the middle of a part
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "oneflow.data", "make", str(folder), str(out), "--threads", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not any(name.startswith("out.") for name in os.listdir(tmp_path)):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(number)
        writer = os.open(folder / "eel" / "z.jpg", os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b"end")
        os.close(writer)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    left = os.listdir(tmp_path)
    assert "out" not in left
    if number != signal.SIGKILL:
        assert left == ["images"]


def test_as_a_command_without_a_terminal(folder, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "oneflow.data", "make", str(folder), str(tmp_path / "out")], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, ""), "no progress bar where there is no terminal"
    assert run.stdout == f"12 images of 3 classes in 1 parts: {tmp_path / 'out'}\n"


# ------------------------------------------------------------------ imagenet, mnist, cifar10


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
    return [(int(r["class/label"].values[0]), r["class/synset"].values[0].decode(), r["class/text"].values[0].decode()) for r in features]


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
    (tmp_path / "labels").write_text("".join(f"{name} {synset}\n" for name, synset in zip(names, ["n01", "n02", "n01", "n03"])))
    options = ["--synsets", tmp_path / "synsets", "--labels", tmp_path / "labels", "--parts", 1, "--split", "validation"]
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
            assert all((decode(r[f"{prefix}encoded"].values[0], "GRAY")[..., 0] == image).all() for r, image in zip(found, images))


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


# ------------------------------------------------------------------ convert


def mixed(number):
    return {
        "i": FeatureValue("int32_list", [number, -number]),
        "l": FeatureValue("int64_list", [2**40 + number]),
        "f": FeatureValue("float_list", [number / 3]),
        "d": FeatureValue("double_list", [number / 4]),
        "b": FeatureValue("bytes_list", [b"x" * number, b""]),
    }


def plain(features):
    return {key: list(value.values) for key, value in features.items()}


def test_convert_there_and_back_keeps_every_value(tmp_path):
    (tmp_path / "a").mkdir()
    for part in range(3):
        write_records(tmp_path / "a" / f"part-{part}", (mixed(10 * part + n) for n in range(1, 6)))
    (tmp_path / "a" / "labels.txt").write_text("0:x\n")
    assert run("convert", tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--gzip") == 0
    assert run("convert", tmp_path / "b", tmp_path / "c", "--to", "ofrecord", "--int32", "i") == 0
    assert sorted(os.listdir(tmp_path / "c")) == ["labels.txt", "part-0", "part-1", "part-2"]
    a, b, c = (records(tmp_path / name) for name in "abc")
    assert [plain(r) for r in a] == [plain(r) for r in b] == [plain(r) for r in c]
    assert {key: value.kind for key, value in b[0].items()} == {
        "i": "int64_list", "l": "int64_list", "f": "float_list", "d": "float_list", "b": "bytes_list",
    }  # fmt: skip
    assert {key: value.kind for key, value in c[0].items()} == {
        "i": "int32_list", "l": "int64_list", "f": "float_list", "d": "float_list", "b": "bytes_list",
    }  # fmt: skip


def test_convert_one_file_and_rename(tmp_path, capsys):
    write_records(tmp_path / "a", [mixed(1)])
    assert run("convert", tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--rename", "b=image/encoded") == 0
    assert "1 records in 1 tfrecord files" in capsys.readouterr().out
    assert set(records(tmp_path / "b")[0]) == {"i", "l", "f", "d", "image/encoded"}
    assert run("convert", tmp_path / "a", tmp_path / "b", "--to", "tfrecord") == 1
    assert "give --overwrite" in capsys.readouterr().err
    assert run("convert", tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--overwrite") == 0
    assert run("convert", tmp_path / "a", tmp_path / "c", "--to", "tfrecord", "--rename", "b=i") == 1
    assert "a: record 0 at byte 0: --rename gives two" in capsys.readouterr().err


def test_convert_of_a_folder_wants_the_named_features_in_some_part(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    write_records(tmp_path / "a" / "part-0", [mixed(1)])
    write_records(tmp_path / "a" / "part-1", [{"only": FeatureValue("int64_list", [1])}])
    assert run("convert", tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--int32", "only", "--rename", "b=c") == 0
    assert run("convert", tmp_path / "a", tmp_path / "d", "--to", "ofrecord", "--int32", "onyl") == 1
    assert "a: --int32: no record has a feature 'onyl'; the features are b, d, f, i, l, only" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_convert_refuses(tmp_path, capsys):
    write_records(tmp_path / "a", [mixed(1), {"d": FeatureValue("double_list", [0.1])}])
    offset = next(read_records(tmp_path / "a")).end
    for reason, arguments in [
        (f"a: record 1 at byte {offset}: feature 'd' has the value", [tmp_path / "a", tmp_path / "b", "--to", "tfrecord"]),
        ("record 0 at byte 0: feature 'l' has the value", [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--int32", "l"]),
        ("nowhere: the file cannot be opened", [tmp_path / "nowhere", tmp_path / "b", "--to", "ofrecord"]),
        ("--rename takes OLD=NEW", [tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--rename", "x"]),
        ("--rename: no record has a feature 'x'; the features are b, d, f, i, l", [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--rename", "x=y"]),
        ("--int32: no record has a feature 'i'; the features are b, d, f, j, l",
         [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--int32", "i", "--rename", "i=j"]),
        ("--int32 is for", [tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--int32", "x"]),
    ]:
        assert run("convert", *arguments) == 1
        assert reason in capsys.readouterr().err
        assert sorted(name for name in os.listdir(tmp_path) if not name.endswith(".idx")) == ["a"]


# ------------------------------------------------------------------ show


def test_show(folder, tmp_path, capsys):
    run("make", folder, tmp_path / "out", "--parts", 2)
    capsys.readouterr()
    assert run("show", tmp_path / "out", "--records", 1, "--sheet", tmp_path / "sheet.png", "--columns", 5) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 records in 2 files of format ofrecord, ")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "part-0  6 records, " in out
    assert "class/label int32_list (1,) 0 to 2" in lines
    assert "width int32_list (1,) 40 to 51" in lines
    assert "encoded: JPEG 40x30 RGB, " in out and "class/text: ['cat']" in out
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (5 * 128, 3 * 142)
        pixels = np.asarray(sheet)
    assert (pixels[20:100, 20:100] < 250).any() and (pixels[:128, :] < 250).any(), "there are pictures on the sheet"
    assert (pixels[-142:, 2 * 128 :] == 255).all(), "behind the last picture there is none"


def test_show_says_where_fields_differ(tmp_path, capsys):
    write_records(tmp_path / "a", [mixed(1), {"i": FeatureValue("int64_list", [1])}], "ofrecord")
    assert run("show", tmp_path / "a") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "i int32_list or int64_list (1..2,) -1 to 1" in lines
    assert "b bytes_list (2,) 0..1 bytes in 1 of 2 records" in lines
    assert run("show", tmp_path / "a", "--sheet", tmp_path / "s.png") == 1
    assert "no feature looks like a picture" in capsys.readouterr().err
    assert not (tmp_path / "s.png").exists()


# ------------------------------------------------------------------ verify


def image_record(data: bytes):
    return {"encoded": FeatureValue("bytes_list", [data]), "class/label": FeatureValue("int32_list", [1])}


def test_verify_a_good_set(folder, tmp_path, capsys):
    run("make", folder, tmp_path / "a", "--parts", 3)
    run("make", folder, tmp_path / "b", "--parts", 2, "--format", "tfrecord", "--gzip")
    capsys.readouterr()
    assert run("verify", tmp_path / "a", tmp_path / "b", "--threads", 2) == 0
    assert capsys.readouterr().out == "5 files, 24 records, 24 pictures, 0 problems\n"


@pytest.mark.parametrize("format", ["ofrecord", "tfrecord"])
def test_verify_names_file_record_and_byte_of_every_problem(tmp_path, capsys, format):
    good = picture(0, size=(200, 150))
    grey = {**image_record(good), "class/label": FeatureValue("int64_list", [1])}

    def record(data):
        return {**grey, "encoded": FeatureValue("bytes_list", data)}

    bodies = [grey, record([good[: len(good) // 2]]), record([b"no picture"]), record([b""]), record([]), b"\x0a\x7f", grey]
    write_records(tmp_path / "part-0", bodies, format)
    offsets = [r.offset for r in read_records(tmp_path / "part-0", format=format)]
    assert run("verify", tmp_path, "--format", format, "--require", "class/label") == 1
    *problems, summary = capsys.readouterr().out.splitlines()
    assert summary == "1 files, 7 records, 5 pictures, 5 problems"
    assert [problem.split(": ")[:2] for problem in problems] == [
        [str(tmp_path / "part-0"), f"record {n} at byte {offsets[n]}"] for n in (1, 2, 3, 4, 5)
    ]
    assert "broken message" in problems[-1] and "should be one picture" in problems[-2]
    assert run("verify", tmp_path, "--format", format, "--no-images", "--require", "box") == 1
    assert "feature 'box' is missing; the record has ['class/label', 'encoded']" in capsys.readouterr().out


def test_verify_goes_on_behind_a_wrong_checksum_and_reports_a_cut(tmp_path, capsys):
    write_records(tmp_path / "part-0", [image_record(picture(n)) for n in range(3)])
    assert run("convert", tmp_path / "part-0", tmp_path / "t", "--to", "tfrecord") == 0
    second, third = (record.offset for record in list(read_records(tmp_path / "t", format="tfrecord"))[1:])
    data = bytearray((tmp_path / "t").read_bytes())
    data[second + 100] ^= 1
    (tmp_path / "t").write_bytes(data[:-1])
    capsys.readouterr()
    assert run("verify", tmp_path / "t") == 1
    first, cut, summary = capsys.readouterr().out.splitlines()
    assert f"t: record 1 at byte {second}: the CRC of the record" in first
    assert f"t: record 2 at byte {third}: the record has" in cut
    assert summary == "1 files, 2 records, 1 pictures, 2 problems"


def test_verify_finds_empty_missing_and_lost_parts(tmp_path, capsys):
    (tmp_path / "part-0").touch()
    assert run("verify", tmp_path, tmp_path / "nowhere") == 1
    out = capsys.readouterr().out
    assert "part-0: record 0 at byte 0: the file is empty" in out and "nowhere: the file cannot be opened" in out
    (tmp_path / "part-2").touch()
    assert run("verify", tmp_path) == 1
    assert "none with number 1" in capsys.readouterr().out


def test_no_verb_and_help(capsys):
    with pytest.raises(SystemExit) as error:
        main([])
    assert error.value.code == 2
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in ["make", "imagenet", "mnist", "cifar10", "convert", "show", "verify"])
