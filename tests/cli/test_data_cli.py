"""``python -m oneflow.data make``: record data sets of folders of pictures; the command itself."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time

import fsspec
import pytest
from picture_records import records, run

from oneflow.engine.data.cli import main
from oneflow.engine.data.cli.output import bounds
from oneflow.engine.data.dataset import Parts, expand
from oneflow.engine.data.formats.records import read_records


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
    assert (
        run(
            "make",
            folder,
            out,
            "--format",
            "tfrecord",
            "--gzip",
            "--parts",
            2,
            "--suffix-length",
            5,
            "--prefix",
            "train-",
        )
        == 0
    )
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
    bodies = {
        name: sorted(bytes(r.body) for n in range(4) for r in read_records(tmp_path / name / f"part-{n}"))
        for name in "ace"
    }
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
    assert sorted(os.listdir(out)) == ["labels.txt", "notes", "part-0"], (
        "parts of the old set do not stay among the new"
    )
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


def test_no_verb_and_help(capsys):
    with pytest.raises(SystemExit) as error:
        main([])
    assert error.value.code == 2
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    assert error.value.code == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in ["make", "imagenet", "mnist", "cifar10", "convert", "show", "verify"])
