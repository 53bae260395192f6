"""What cannot be saved, and files that are missing, cut off, damaged or hostile: one clear error, nothing executed,
nothing left."""

from __future__ import annotations

import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_jobs import files
from pickle_codes import (
    BUILD,
    EMPTY_DICT,
    TWO_BY_THREE,
    built,
    called,
    mapping,
    of_global,
    saved,
    text,
    tuple_of,
    write_directory,
)
from safetensors.torch import save_file

import oneflow as flow
from oneflow.engine.checkpoint import restricted_pickle
from oneflow.engine.core.errors import OneFlowError

ARRAY = (
    called("numpy.core.multiarray", "_reconstruct", of_global("numpy", "ndarray"), b"K\0\x85", b"C\1b")
    + tuple_of(b"K\1", b"K\1\x85", called("numpy", "dtype", text("u1")), b"\x89", b"C\1a")
    + BUILD
)
TENSOR = built("oneflow._oneflow_internal", "Tensor", mapping(path=text("tensor_0")))


def refused(path: Path) -> str:
    """The one error of loading, which names the user's line, without it."""
    with pytest.raises(OneFlowError) as caught:
        flow.load(path)
    assert str(caught.value).startswith(f"{__file__}:") and caught.value.__cause__ is None
    return caught.value.reason


# ------------------------------------------------------------------------------------------------------- nothing to
# load


def test_a_path_with_nothing_at_it(tmp_path):
    with pytest.raises(
        NotImplementedError, match="No valid load method found for '.*nothing': there is nothing at that path"
    ):
        flow.load(tmp_path / "nothing")


def test_a_folder_that_holds_something_else(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        NotImplementedError, match="No valid load method found for .*neither 'pickled_data' nor variables"
    ):
        flow.load(tmp_path)


def test_a_checkpoint_of_jobs_without_variables(tmp_path):
    (tmp_path / "snapshot_done").touch()
    assert "holds no variables" in refused(tmp_path)


@pytest.mark.parametrize("path", ["", None, 3])
def test_paths_that_are_none(path):
    for call in (flow.load, lambda path: flow.save(1, path)):
        with pytest.raises(ValueError, match="a path is a string or a pathlib.Path"):
            call(path)


@pytest.mark.parametrize(
    "where, message",
    [
        ("nowhere", "map_location='nowhere' is not a device of this machine.*Load with map_location='cpu'"),
        ("cuda:77", "map_location='cuda:77' is not a device of this machine"),
        (3.5, "map_location is a device, its name, a dictionary of them or a function; got float"),
        ({"cpu": "nowhere"}, "map_location='nowhere' is not a device"),
    ],
)
def test_places_that_there_are_not(where, message, tmp_path):
    flow.save(torch.ones(1), tmp_path / "saved")
    with pytest.raises(ValueError, match=message):
        flow.load(tmp_path / "saved", map_location=where)


def test_an_error_of_the_users_function_is_the_users(tmp_path):
    flow.save(torch.ones(1), tmp_path / "saved")
    with pytest.raises(ZeroDivisionError):
        flow.load(tmp_path / "saved", map_location=lambda storage, location: 1 / 0)


# ---------------------------------------------------------------------------------------------------------- global
# tensors


def test_with_a_rank_that_writes_every_tensor_must_be_global(tmp_path):
    with pytest.raises(
        RuntimeError,
        match="with global_dst_rank=0 every tensor must be global, and 1 are local; leave global_dst_rank out",
    ):
        flow.save({"x": torch.ones(1)}, tmp_path / "saved", global_dst_rank=0)
    with pytest.raises(ValueError, match="global_src_rank is the number of a rank, from 0 to 0 in this run"):
        flow.load(tmp_path / "saved", global_src_rank=1)
    spread = flow.ones(2, placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast)
    with pytest.raises(
        ValueError, match="1 tensors are global; name the rank that writes them for all with global_dst_rank="
    ):
        flow.save({"x": spread}, tmp_path / "saved")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("rank", [1, -1, True, "0"])
def test_ranks_that_there_are_not(rank, tmp_path):
    with pytest.raises(ValueError, match="global_dst_rank is the number of a rank, from 0 to 0 in this run"):
        flow.save({"step": 1}, tmp_path / "saved", global_dst_rank=rank)


def test_only_the_rank_that_is_named_writes(tmp_path, as_rank):
    """A schedule's state has no tensors; every process of a run calls save."""
    for rank, expected in ((1, []), (0, ["saved"])):
        as_rank(rank, 2)
        flow.save({"step": 1}, tmp_path / "saved", global_dst_rank=0)
        assert os.listdir(tmp_path) == expected


# ---------------------------------------------------------------------------------------------------------- cannot be
# saved


class Own:
    """A class of a user's."""


@pytest.mark.parametrize(
    "value, message",
    [
        (Own(), "cannot save 'test_save_load_errors.Own': flow.load reads no code. Save tensors"),
        (
            torch.nn.Linear(1, 1),
            "cannot save 'torch.nn.modules.linear.Linear': flow.load reads no code.*such as a state_dict",
        ),
        (os.getcwd, "cannot save 'posix.getcwd'"),
        (lambda: 1, "cannot save this list: .*lambda"),
        (int, "cannot save this list: it holds a class or a function by itself"),
        (threading.Lock(), "cannot save this list: cannot pickle '_thread.lock'"),
        (np.array([{}], object), "cannot save this list: it holds an array of the dtype 'O8'"),
        (np.zeros(2, "i4,f4"), "cannot save this list: it holds an array of the dtype 'V8'"),
        (torch.empty(2, device="meta"), "cannot save a meta tensor; it saves dense tensors with values"),
        (torch.eye(2).to_sparse(), "cannot save a sparse_coo tensor"),
        (torch.nn.UninitializedParameter(), "cannot save a UninitializedParameter; make a plain local tensor of it"),
        (torch.zeros(1, dtype=torch.float8_e4m3fn), "cannot save a tensor of torch.float8_e4m3fn; there are"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_cannot_be_saved(value, message, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "test_save_load_errors", types.SimpleNamespace(Own=Own))
    monkeypatch.setattr(Own, "__module__", "test_save_load_errors")
    with pytest.raises(ValueError, match=message):
        flow.save([torch.ones(1), value], tmp_path / "saved")
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(ValueError, match="cannot save to .*file.*choose another path"):
            flow.save(torch.ones(1), path)
    assert (tmp_path / "file").read_text() == "mine" and os.listdir(tmp_path) == ["file"]


def test_a_folder_with_other_files_is_not_replaced(tmp_path):
    flow.save(torch.ones(1), tmp_path / "saved")
    (tmp_path / "saved/notes.txt").write_text("mine")
    before = files(tmp_path)
    with pytest.raises(ValueError, match="it holds more than flow.save writes \\('notes.txt'\\); choose another path"):
        flow.save(torch.zeros(1), tmp_path / "saved")
    assert files(tmp_path) == before


def test_the_working_directory_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="it is the working directory; choose a folder inside it"):
        flow.save(torch.zeros(1), ".")


# ------------------------------------------------------------------------------------------------------- damaged
# directories


@pytest.fixture
def whole(tmp_path) -> Path:
    folder = tmp_path / "saved"
    flow.save({"x": torch.arange(6.0).reshape(2, 3), "array": np.arange(4), "n": [1, "a"]}, folder)
    return folder


def test_a_pickle_that_is_cut_off_anywhere(whole):
    data = (whole / "pickled_data").read_bytes()
    for length in range(len(data)):
        (whole / "pickled_data").write_bytes(data[:length])
        assert "pickled_data' " in refused(whole)


def test_a_pickle_with_any_byte_changed_is_read_or_refused(whole):
    data = (whole / "pickled_data").read_bytes()
    for place in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            (whole / "pickled_data").write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            try:
                flow.load(whole)
            except OneFlowError:
                continue


@pytest.mark.parametrize("size", [0, 23, 25, 48])
def test_values_of_the_wrong_length(whole, size):
    (whole / "tensor_0/out").write_bytes(bytes(size))
    assert f"tensor_0/out' has {size} bytes, its meta file says 24: one of them is cut off or damaged" in refused(whole)


@pytest.mark.parametrize(
    "meta",
    [
        "",
        "shape {",
        "shape {\n dim: 2 dim: 3\n}",
        "shape {\n dim: -6\n}\ndata_type: kFloat",
        "shape {\n dim: 6\n}\ndata_type: kFloaty",
        "\0" * 2**17,
    ],
)
def test_meta_files_that_are_none(whole, meta):
    (whole / "tensor_0/meta").write_text(meta)
    assert (
        "tensor_0/meta' is not the meta file of a tensor: expected a shape block and a data_type of ['kFloat'"
        in refused(whole)
    )


@pytest.mark.parametrize("dims", [[2**40], [10**18, 10**18], [9 * 10**18] * 20])
def test_a_huge_shape_is_refused_by_the_length_of_the_file(whole, dims):
    """Where the memory of the process is limited, so that taking as much as the file claims would fail."""
    (whole / "tensor_0/meta").write_text("shape {" + "".join(f" dim: {n}" for n in dims) + "}\ndata_type: kFloat")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**36, limits[1]))
    try:
        assert "tensor_0/out' has 24 bytes, its meta file says " in refused(whole)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_an_empty_tensor_of_a_shape_that_none_can_have(whole):
    (whole / "tensor_0/meta").write_text("shape { dim: 0 dim: 9999999999999999999 } data_type: kFloat")
    (whole / "tensor_0/out").write_bytes(b"")
    assert "tensor_0/meta': no tensor has the shape (0, 9999999999999999999)" in refused(whole)


def test_bytes_that_are_no_bools(tmp_path):
    flow.save(torch.tensor([True, False]), tmp_path / "saved")
    (tmp_path / "saved/tensor_0/out").write_bytes(b"\1\7")
    assert "tensor_0/out' holds the byte 7 where a bool, 0 or 1, should be" in refused(tmp_path / "saved")


@pytest.mark.parametrize("file", ["tensor_0/meta", "tensor_0/out", "tensor_0", "pickled_data"])
@pytest.mark.parametrize("how", ["missing", "link", "pipe"])
def test_files_that_are_not_there_or_no_files(whole, file, how):
    """A link could lead anywhere, and reading from a pipe would wait for ever."""
    aside = whole.parent / "aside"
    (whole / file).rename(aside)
    if how == "link":
        (whole / file).symlink_to(aside)
    elif how == "pipe":
        os.mkfifo(whole / file)
    if file == "tensor_0":
        assert "tensor_0' should be a folder with the files 'meta' and 'out' of a tensor" in refused(whole)
    elif (file, how) == ("pickled_data", "missing"):
        assert "No valid load method found for" in refused(whole)
    else:
        assert "cannot read '" in refused(whole) and file in refused(whole)


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "..",
        ".",
        "",
        "/tmp",
        "a/b",
        "tensor_0/../../outside",
        "tensor_0\n",
        "a\0b",
        "..\\outside",
        ".hidden",
    ],
)
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_folders_outside_the_directory_are_not_read(name, whose, tmp_path):
    write_directory(tmp_path, b"", outside=TWO_BY_THREE)
    state = mapping(path=text(name))
    data = (
        built("oneflow", "Tensor", state)
        if whose == "theirs"
        else called("oneflow.engine.checkpoint.stored_tensor", "StoredTensor", text(name))
    )
    folder = write_directory(tmp_path / "saved", saved(data), tensor_0=TWO_BY_THREE)
    assert f"pickled_data' cannot be read: a tensor's folder is called {name!r}; only a plain name" in refused(folder)


@pytest.mark.parametrize(
    "pickled, message",
    [
        (saved(TENSOR, version=2), "has the protocol version 2, this program reads version 1"),
        (
            b"\x80\x03" + mapping(data=TENSOR) + b".",
            "holds no saved object: expected a dictionary of 'protocol_version' and 'data'",
        ),
        (b"\x80\x03K\x07.", "holds no saved object"),
        (saved(built("oneflow", "Tensor", EMPTY_DICT)), "a tensor was pickled without the name of its folder"),
        (
            saved(built("oneflow", "Tensor", mapping(a=text("x"), b=text("y")))),
            "a tensor was pickled without the name of its folder: it holds \\['x', 'y'\\]",
        ),
        (saved(called("oneflow", "placement", text("cpu"))), "it holds a placement or an sbp by itself"),
        (saved(b"]" * 5000 + b"a" * 4999), "is nested too deeply to be read"),
        (
            saved(called("numpy.core.multiarray", "_reconstruct", of_global("numpy", "ndarray"), b"K\0\x85", b"C\1b")),
            "an array without values",
        ),
        (saved(called("numpy", "dtype", text("O8"))), "an array of the dtype 'O8'; only plain numbers and text"),
        (
            saved(called("builtins", "bytearray", b"J\xff\xff\xff\x7f")),
            "a int stands where one of \\['bytes'\\] should be",
        ),
        (
            saved(called("builtins", "list", called("builtins", "range", b"J\xff\xff\xff\x7f"))),
            "list is called with arguments",
        ),
        (saved(of_global("builtins", "list")), "it holds a class or a function by itself"),
        (saved(of_global("collections", "OrderedDict")), "it holds a class or a function by itself"),
        (
            saved(called("collections", "OrderedDict") + mapping(items=b"K\1") + BUILD),
            "it gives a OrderedDict the attribute 'items'",
        ),
        (
            saved(built("argparse", "Namespace", mapping(__class__=of_global("oneflow", "Tensor")))),
            "a class or a function by itself",
        ),
        (saved(built("argparse", "Namespace", mapping(__eq__=b"K\1"))), "it gives a Namespace the attribute '__eq__'"),
        (saved(b"\x8f(" + ARRAY + b"\x90"), "unhashable type: 'numpy.ndarray'"),
        (saved(EMPTY_DICT + ARRAY + b"Ns"), "unhashable type: 'numpy.ndarray'"),
        (
            saved(
                b"\x8f("
                + called("oneflow.engine.checkpoint.stored_tensor", "StoredTensor", text("tensor_0"), b"\x89", b"\x89")
                + b"\x90"
            ),
            None,
        ),
    ],
)
def test_pickles_that_say_nothing_sensible(pickled, message, tmp_path):
    folder = write_directory(tmp_path / "saved", pickled, tensor_0=TWO_BY_THREE)
    if message is None:  # a set of tensors does
        assert [x.shape for x in flow.load(folder)] == [(2, 3)]
        return
    with pytest.raises(OneFlowError, match=f"pickled_data' .*{message}"):
        flow.load(folder)


def test_a_state_that_holds_the_same_parts_again_and_again_is_looked_at_once(tmp_path):
    """Pairs of pairs, 60 deep: written in full they would have 2 ** 60 parts."""
    state = text("tensor_0") + b"".join(b"2\x86" for _ in range(60))
    folder = write_directory(tmp_path / "saved", saved(built("oneflow", "Tensor", state)), tensor_0=TWO_BY_THREE)
    assert flow.load(folder).shape == (2, 3)


def test_arrays_of_the_wrong_length_take_no_memory(tmp_path):
    dtype = called("numpy", "dtype", text("f8"))
    array = called("numpy._core.multiarray", "_reconstruct", of_global("numpy", "ndarray"), b"K\0\x85", b"C\1b")
    state = tuple_of(b"K\1", b"\x8a\6" + struct.pack("<q", 2**40)[:6] + b"\x85", dtype, b"\x89", b"C\4abcd")
    folder = write_directory(tmp_path / "saved", saved(array + state + BUILD))
    assert f"an array ({2**40},) of float64, which needs {2**43} bytes and has 4" in refused(folder)


@pytest.mark.parametrize(
    "code",
    [b"\x8e" + struct.pack("<q", 2**50), b"X" + struct.pack("<I", 2**31), b"N" + b"r" + struct.pack("<I", 2**31)],
)
def test_lengths_and_numbers_in_a_pickle_that_exceed_the_file(code, tmp_path):
    folder = write_directory(tmp_path / "saved", saved(code))
    assert (
        "pickled_data' is cut off or damaged" in (reason := refused(folder))
        or "puts a value at 2147483648 of its memo" in reason
    )


# ------------------------------------------------------------------------------------------------------------------
# hostile


class Hostile:
    """Whoever unpickles it makes a file."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def hostile_things(trace: Path) -> dict[str, Any]:
    return {
        "os.system": Hostile(os.system, f"touch {trace}"),
        "eval": Hostile(eval, f"open({str(trace)!r}, 'w')"),
        "exec": Hostile(exec, f"open({str(trace)!r}, 'w')"),
        "getattr": Hostile(getattr, Path(trace), "touch"),
        "subprocess": Hostile(subprocess.Popen, ["touch", str(trace)]),
        "torch.load": Hostile(torch.load, str(trace)),
        "numpy": Hostile(np.memmap, str(trace), "u1", "w+", 0, (1,)),
    }


KINDS = list(hostile_things(Path("x")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_directory_with_code_is_refused_and_nothing_is_executed(kind, protocol, tmp_path):
    trace = tmp_path / "trace"
    pickled = pickle.dumps({"protocol_version": 1, "data": [1, hostile_things(trace)[kind]]}, protocol)
    reason = refused(write_directory(tmp_path / "saved", pickled))
    assert "pickled_data' names '" in reason and "nothing was executed" in reason
    assert not trace.exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_torch_with_code_is_refused_and_nothing_is_executed(kind, zipped, tmp_path):
    trace = tmp_path / "trace"
    torch.save(
        {"x": torch.ones(2), "bad": hostile_things(trace)[kind]},
        tmp_path / "file.pt",
        _use_new_zipfile_serialization=zipped,
    )
    reason = refused(tmp_path / "file.pt")
    assert "file.pt' is not a file of torch tensors" in reason and "Only tensors are read, never objects" in reason
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        ("oneflow.os", "system"),
        ("oneflow", "load"),
        ("oneflow.engine.checkpoint.objects", "os.system"),
        ("torch", "load"),
        ("collections", "OrderedDict.fromkeys"),
        ("builtins", "getattr"),
        ("numpy", "load"),
        ("argparse", "Action"),
    ],
)
def test_names_beside_those_that_are_read(name, tmp_path):
    folder = write_directory(tmp_path / "saved", saved(called(*name, text("x"))))
    assert f"names {'.'.join(name)!r}" in refused(folder)


@pytest.mark.parametrize(
    "name",
    [
        ("collections", "OrderedDict"),
        ("collections", "Counter"),
        ("argparse", "Namespace"),
        ("oneflow", "Tensor"),
        ("numpy", "ndarray"),
        ("torch", "float32"),
        ("torch", "Size"),
        ("builtins", "object"),
    ],
)
def test_no_pickle_writes_into_what_it_names(name, tmp_path):
    """The code that tells an object its state could otherwise set attributes of classes that the whole program uses."""
    state = tuple_of(b"N", mapping(written=b"K\1"))
    folder = write_directory(tmp_path / "saved", saved(of_global(*name) + state + BUILD))
    assert "pickled_data'" in refused(folder)
    assert not hasattr(restricted_pickle._find(*name), "written")


def test_codes_that_look_names_up_in_other_ways(tmp_path):
    for code in (b"(ios\nsystem\n", b"(" + of_global("os", "system") + text("true") + b"o", b"\x82\x01"):
        assert "which is not read" in refused(write_directory(tmp_path / "saved", saved(code)))


# ---------------------------------------------------------------------------------------------------------- damaged
# files


@pytest.mark.parametrize("name", ["file.pt", "old.pt", "file.safetensors"])
def test_files_that_are_cut_off(name, tmp_path):
    path, state = tmp_path / name, {"x": torch.rand(20)}
    if name.endswith("safetensors"):
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=name != "old.pt")
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        assert f"{name}' is not a " in refused(path)


def test_a_file_of_anything(tmp_path):
    (tmp_path / "file").write_bytes(b"hello, world: these are words")
    assert "file' is not a file of torch tensors" in refused(tmp_path / "file")


def test_a_checkpoint_of_jobs_that_is_damaged(tmp_path):
    flow.checkpoint.save(tmp_path / "job", {"a": np.zeros(4, np.float32)})
    (tmp_path / "job/a/out").write_bytes(bytes(15))
    assert "a/out' has 15 bytes, its meta file says 16" in refused(tmp_path / "job")
