"""``python -m oneflow.data convert``, ``show`` and ``verify``: data sets turned into others, looked at and checked."""

from __future__ import annotations

import os

import numpy as np
import pytest
from picture_records import picture, records, run
from PIL import Image

from oneflow.core.record import record_pb2
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.records import read_records, write_records

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


@pytest.mark.parametrize("body", [b"", b"\x0a\x00"], ids=["no bytes", "no features"])
def test_an_empty_example_goes_to_ofrecord_and_back(tmp_path, body):
    """An OFRecord file has no record of length 0, which is what a message without features would be."""
    source, there, back = (tmp_path / name for name in ("source", "there", "back"))
    write_records(source, [body, {"n": FeatureValue("int64_list", [3])}, body], "tfrecord")
    assert run("convert", source, there, "--to", "ofrecord") == 0
    assert [len(record.features) for record in read_records(there)] == [0, 1, 0]
    assert len(record_pb2.OFRecord.FromString(bytes(next(read_records(there)).body)).feature) == 0
    assert run("convert", there, back, "--to", "tfrecord") == 0
    assert [len(record.features) for record in read_records(back, format="tfrecord")] == [0, 1, 0]


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
        (
            f"a: record 1 at byte {offset}: feature 'd' has the value",
            [tmp_path / "a", tmp_path / "b", "--to", "tfrecord"],
        ),
        (
            "record 0 at byte 0: feature 'l' has the value",
            [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--int32", "l"],
        ),
        ("nowhere: the file cannot be opened", [tmp_path / "nowhere", tmp_path / "b", "--to", "ofrecord"]),
        ("--rename takes OLD=NEW", [tmp_path / "a", tmp_path / "b", "--to", "tfrecord", "--rename", "x"]),
        (
            "--rename: no record has a feature 'x'; the features are b, d, f, i, l",
            [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--rename", "x=y"],
        ),
        (
            "--int32: no record has a feature 'i'; the features are b, d, f, j, l",
            [tmp_path / "a", tmp_path / "b", "--to", "ofrecord", "--int32", "i", "--rename", "i=j"],
        ),
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

    bodies = [
        grey,
        record([good[: len(good) // 2]]),
        record([b"no picture"]),
        record([b""]),
        record([]),
        b"\x0a\x7f",
        grey,
    ]
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
