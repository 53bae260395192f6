"""``flow.save`` and ``flow.load`` of tensors: what is saved comes back, bit by bit, from here and from elsewhere."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import pickle
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_jobs import files, two_variables
from pickle_codes import (
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
from warm_python import WARM

import oneflow as flow
from oneflow.engine.checkpoint import writing

TENSORS = {
    "float": torch.tensor([1.5, -0.0, float("inf"), float("nan")]),
    "double": torch.tensor([[1e300], [-3]], dtype=torch.float64),
    "half": torch.tensor([0.1, 65504], dtype=torch.float16),
    "bfloat16": torch.tensor([[0.1, -3e38]], dtype=torch.bfloat16),
    "long": torch.tensor([2**62, -1]),
    "int": torch.tensor([7], dtype=torch.int32),
    "short": torch.tensor([-7], dtype=torch.int16),
    "char": torch.tensor([-128], dtype=torch.int8),
    "byte": torch.tensor([255], dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "complex": torch.tensor([1 + 2j]),
    "complex128": torch.tensor([1 - 2j], dtype=torch.complex128),
    "number": torch.tensor(3.25),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "strided": torch.arange(10)[::3],
    "expanded": torch.tensor([5.0]).expand(2, 3),
    "conjugate": torch.tensor([1 + 2j]).conj(),
}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether every bit is the same."""
    if a.shape != b.shape or a.dtype != b.dtype or not a.numel():
        return a.shape == b.shape and a.dtype == b.dtype
    return torch.equal(*[x.detach().resolve_conj().contiguous().flatten().view(torch.uint8) for x in (a, b)])


def there_and_back(obj: Any, folder: Path) -> Any:
    flow.save(obj, folder / "there_and_back")
    return flow.load(folder / "there_and_back")


# ------------------------------------------------------------------------------------------------------------ the
# format


@pytest.mark.parametrize("name", TENSORS)
def test_a_loaded_tensor_equals_the_saved_one(name, tmp_path):
    loaded = there_and_back(TENSORS[name], tmp_path)
    assert type(loaded) is torch.Tensor and same(loaded, TENSORS[name])


def test_the_files_of_a_saved_object(tmp_path):
    x = torch.arange(6.0).reshape(2, 3)
    flow.save({"x": x.t(), "step": 3, "flag": torch.tensor(True)}, tmp_path / "saved")
    found = files(tmp_path / "saved")
    pickled = found.pop("pickled_data")
    assert found == {
        "tensor_0/out": struct.pack("<6f", 0, 3, 1, 4, 2, 5),
        "tensor_0/meta": b"shape {\n  dim: 3\n  dim: 2\n}\ndata_type: kFloat\n",
        "tensor_1/out": b"\1",
        "tensor_1/meta": b"shape {\n}\ndata_type: kBool\n",
    }
    content = pickle.loads(pickled)  # an ordinary unpickler finds the references
    assert content["protocol_version"] == 1 and content["data"]["step"] == 3
    assert [content["data"][name].folder for name in ("x", "flag")] == ["tensor_0", "tensor_1"]


PATH_STATE = mapping(path=text("tensor_0"))
REDUCED_BY_ONEFLOW = {
    "a dictionary": built("oneflow._oneflow_internal", "Tensor", PATH_STATE),
    "a string": built("oneflow", "Tensor", text("tensor_0")),
    "a path": built(
        "oneflow.framework.tensor", "Tensor", mapping(path=called("pathlib", "PosixPath", text("tensor_0")))
    ),
    "a tuple": built("oneflow._oneflow_internal", "Tensor", tuple_of(text("cpu"), text("tensor_0"), b"N")),
    "more than a path": built(
        "oneflow._oneflow_internal",
        "Tensor",
        mapping(
            path=text("tensor_0"), device=text("cpu"), dtype=of_global("oneflow", "float32"), requires_grad=b"\x89"
        ),
    ),
    "a call": called("oneflow.framework.check_point_v2", "_rebuild_tensor", text("tensor_0")),
    "protocol 1": called(
        "copy_reg", "_reconstructor", of_global("oneflow", "Tensor"), of_global("__builtin__", "object"), b"N"
    )
    + PATH_STATE
    + b"b",
    "a persistent id": text("tensor_0") + b"Q",
}


@pytest.mark.parametrize("way", REDUCED_BY_ONEFLOW)
def test_a_directory_that_oneflow_wrote(way, tmp_path):
    """Written byte by byte: OneFlow's own tensor class is named, and its state tells the folder."""
    data = mapping(weight=REDUCED_BY_ONEFLOW[way], step=b"K\x07")
    loaded = flow.load(write_directory(tmp_path / "theirs", saved(data), tensor_0=TWO_BY_THREE))
    assert loaded["step"] == 7 and type(loaded["weight"]) is torch.Tensor
    assert same(loaded["weight"], torch.tensor([[0.0, 1, 2], [3, 4, -5.5]]))


def test_parameters_and_global_tensors_that_oneflow_wrote(tmp_path):
    """A global tensor is told by the name of its folder, and its state may say where it was; it comes as a local
    one."""
    placement = called("oneflow._oneflow_internal", "placement", text("cpu"))
    sbp = called("oneflow._oneflow_internal.sbp", "sbp", text("B"))
    whole = built(
        "oneflow._oneflow_internal",
        "Tensor",
        mapping(path=text("global_tensor_17"), placement=placement, sbp=tuple_of(sbp)),
    )
    data = mapping(weight=built("oneflow.nn.modules.module", "Parameter", mapping(path=text("tensor_0"))), other=whole)
    folder = write_directory(
        tmp_path / "theirs",
        saved(data),
        tensor_0=TWO_BY_THREE,
        global_tensor_17=("shape { dim: 1 } data_type: kInt64", b"\2" + bytes(7)),
    )
    loaded = flow.load(str(folder))
    assert isinstance(loaded["weight"], torch.nn.Parameter) and loaded["weight"].requires_grad
    assert loaded["other"].tolist() == [2] and not loaded["other"].requires_grad


# ---------------------------------------------------------------------------------------------------------- the
# structure


PLAIN = {
    "nothing": None,
    "numbers": [1, -(2**80), 1.5, True, 1j],
    "text": ["ä", b"\0\xff", bytearray(b"x")],
    "nested": {"a": ({"b": [(), [], {}]},), 3: {4: 5}, (1, 2): 6},
    "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
    "counter": collections.Counter("aab"),
    "default": collections.defaultdict(list, {1: [2]}),
    "sets": [{1, 2}, frozenset([3])],
    "ranges": [range(1, 9, 2), slice(1, None)],
    "namespace": argparse.Namespace(lr=0.1, name="x"),
    "path": pathlib.Path("a/b"),
    "of torch": [torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.device("cpu"), torch.device("cuda:1")],
    "numbers of numpy": [np.float32(1.5), np.int64(3), np.bool_(True), np.dtype("int16")],
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_come_back(name, tmp_path):
    loaded = there_and_back([PLAIN[name], torch.ones(1)], tmp_path)[0]
    assert loaded == PLAIN[name] and type(loaded) is type(PLAIN[name])


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3).T, np.arange(3, dtype=">i4"), np.array(["ab", "c"]), np.zeros((0, 2), np.int8)],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_among_other_values_come_back(array, protocol, tmp_path, monkeypatch):
    monkeypatch.setattr("oneflow.engine.checkpoint.objects._PROTOCOL", protocol)
    loaded = there_and_back({"array": array, "step": 1}, tmp_path)["array"]
    assert loaded.dtype == array.dtype and loaded.flags.writeable
    np.testing.assert_array_equal(loaded, array)


def test_tensors_anywhere_in_a_structure(tmp_path):
    x, y = torch.tensor([1.0]), torch.tensor([2])
    obj = {
        "list": [x, (y, {"deep": x})],
        "set": {1},
        "namespace": argparse.Namespace(x=x),
        "default": collections.defaultdict(list, a=[y]),
        x: "key",
    }
    loaded = there_and_back(obj, tmp_path)
    first, (second, deep) = loaded["list"]
    assert first.tolist() == [1] and second.tolist() == [2]
    assert (
        deep["deep"] is first
        and loaded["namespace"].x is first
        and loaded["default"]["a"][0] is second
        and loaded[first] == "key"
    )


def test_the_same_tensor_twice_is_stored_once_and_loads_as_one(tmp_path):
    x = torch.rand(3)
    loaded = there_and_back([x, {"again": x}], tmp_path)
    assert loaded[0] is loaded[1]["again"]
    assert sorted(os.listdir(tmp_path / "there_and_back")) == ["pickled_data", "tensor_0"]


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path):
    """A state_dict has a tensor of its own for each name, also where two names are one parameter."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    loaded = there_and_back(model.state_dict(), tmp_path)
    loaded["a.weight"].fill_(9)
    assert (loaded["b.weight"] == 9).all()
    assert len(os.listdir(tmp_path / "there_and_back")) == 2


def test_other_views_of_the_same_memory_are_stored_by_themselves(tmp_path):
    x = torch.arange(6.0)
    loaded = there_and_back([x, x[:3], x.reshape(2, 3), torch.empty(0), torch.empty(0, 2)], tmp_path)
    assert all(same(*pair) for pair in zip(loaded, [x, x[:3], x.reshape(2, 3), torch.empty(0), torch.empty(0, 2)]))


def test_a_list_that_contains_itself(tmp_path):
    held: list[Any] = [torch.ones(1)]
    held.append(held)
    loaded = there_and_back(held, tmp_path)
    assert loaded[1] is loaded and loaded[0].tolist() == [1]


@pytest.mark.parametrize("requires_grad", [True, False])
def test_parameters_and_gradients_come_back_as_they_were(requires_grad, tmp_path):
    parameter = torch.nn.Parameter(torch.rand(2), requires_grad)
    tensor = torch.rand(2, requires_grad=requires_grad)
    loaded = there_and_back([parameter, tensor, tensor * 2], tmp_path)
    assert isinstance(loaded[0], torch.nn.Parameter) and not isinstance(loaded[1], torch.nn.Parameter)
    assert [x.requires_grad for x in loaded] == [requires_grad] * 3
    assert all(x.is_leaf for x in loaded) and same(loaded[0], parameter)


def test_the_state_of_a_module_and_its_optimizer(tmp_path):
    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()

    def made():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        return model, torch.optim.Adam(model.parameters(), 0.1)

    model, optimizer = made()
    step(model, optimizer)
    flow.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, tmp_path / "saved")
    step(model, optimizer)
    again, its_optimizer = made()
    loaded = flow.load(tmp_path / "saved")
    assert (
        isinstance(loaded["model"], collections.OrderedDict)
        and loaded["model"]._metadata == model.state_dict()._metadata
    )
    again.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    step(again, its_optimizer)
    assert all(same(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))


def test_the_state_of_a_graph_has_nested_dictionaries(tmp_path):
    """The model inside, states and counters beside it."""
    state = {"model": {"w": torch.rand(2)}, "model.w-m": torch.rand(2), "System-Train-TrainStep": torch.tensor([7])}
    loaded = there_and_back(state, tmp_path)
    assert same(loaded["model"]["w"], state["model"]["w"]) and loaded["System-Train-TrainStep"].tolist() == [7]
    empty = there_and_back({}, tmp_path)
    assert empty == {}


def test_what_one_process_saves_another_loads(tmp_path):
    program = "import sys, torch, oneflow as flow\ntorch.manual_seed(3)\nflow.save({'x': torch.randn(5), 'n': [1, 'a']}, sys.argv[1])"
    subprocess.run([*WARM.command(), "-c", program, str(tmp_path / "saved")], check=True, timeout=120)
    loaded = flow.load(tmp_path / "saved")
    assert loaded["n"] == [1, "a"] and same(loaded["x"], torch.randn(5, generator=torch.Generator().manual_seed(3)))


# ------------------------------------------------------------------------------------------------------ what else is
# read


def test_files_of_torch(tmp_path):
    state = {"x": torch.rand(2, 3), "more": [1, "a", {"y": torch.tensor([True])}]}
    torch.save(state, tmp_path / "file.pt")
    loaded = flow.load(str(tmp_path / "file.pt"))
    assert same(loaded["x"], state["x"]) and loaded["more"][2]["y"].tolist() == [True]
    with pytest.raises(
        NotImplementedError, match="No valid load method found for .*file.pt.*support_pytorch_format=True"
    ):
        flow.load(tmp_path / "file.pt", support_pytorch_format=False)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights"])
def test_files_of_safetensors(name, tmp_path):
    x = torch.rand(2, 3, dtype=torch.bfloat16)
    save_file({"x": x}, tmp_path / name)
    loaded = flow.load(tmp_path / name, support_pytorch_format=False)
    assert list(loaded) == ["x"] and same(loaded["x"], x)


def test_checkpoints_of_jobs_load_as_tensors(tmp_path):
    two_variables()
    flow.checkpoint.save(tmp_path / "job")
    values = {name: variable.numpy() for name, variable in flow.get_all_variables().items()}
    loaded = flow.load(tmp_path / "job")
    assert loaded.keys() == values.keys() and all(type(value) is torch.Tensor for value in loaded.values())
    np.testing.assert_array_equal(loaded["a"], values["a"])
    flow.load_variables({"b": loaded["b"] + 1})
    np.testing.assert_array_equal(flow.get_all_variables()["b"].numpy(), values["b"] + 1)
    np.testing.assert_array_equal(flow.load(tmp_path / "job" / "a"), values["a"])


def test_variables_without_meta_are_read_when_their_shape_is_known(tmp_path):
    two_variables()
    flow.checkpoint.save(tmp_path / "job")
    (tmp_path / "job/b/meta").unlink()
    flow.load_variables({"b": np.full(4, 9, np.float32)})
    flow.load_variables(flow.load(tmp_path / "job"))
    assert (flow.get_all_variables()["b"].numpy() == 1).all()


def test_variables_and_arrays_by_name_are_saved_as_a_checkpoint_of_jobs(tmp_path):
    two_variables()
    flow.save(flow.get_all_variables(), tmp_path / "job")
    assert sorted(os.listdir(tmp_path / "job")) == ["a", "b", "snapshot_done"]
    flow.train.CheckPoint().load(str(tmp_path / "job"))
    flow.save(flow.checkpoint.get(tmp_path / "job"), tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "job")


# -------------------------------------------------------------------------------------------------------- where tensors
# go


@pytest.mark.parametrize("kind", ["directory", "torch", "safetensors", "job"])
@pytest.mark.parametrize(
    "where",
    [
        "cpu",
        torch.device("cpu"),
        "meta",
        {"cpu": "meta"},
        {"cuda:0": "cpu"},
        lambda storage, location: storage,
        lambda storage, location: None,
    ],
    ids=["name", "device", "meta", "to meta", "from cuda", "the storage itself", "nowhere"],
)
def test_map_location_says_where_tensors_go(kind, where, tmp_path):
    value, path = {"x": torch.arange(6.0).reshape(2, 3)}, tmp_path / "saved"
    if kind == "directory":
        flow.save(value, path)
    elif kind == "torch":
        torch.save(value, path)
    elif kind == "safetensors":
        save_file(value, path)
    else:
        flow.checkpoint.save(path, value)
    x = flow.load(path, map_location=where)["x"]
    assert x.shape == (2, 3) and x.device.type == ("meta" if "meta" in str(where) else "cpu")
    assert x.is_meta or torch.equal(x, value["x"])


def test_a_function_of_map_location_is_called_with_each_storage(tmp_path):
    flow.save([torch.ones(2), torch.zeros(3, dtype=torch.int64)], tmp_path / "saved")
    seen = []

    def where(storage, location):
        seen.append((storage.nbytes(), location))
        return storage.clone()

    loaded = flow.load(tmp_path / "saved", map_location=where)
    assert seen == [(8, "cpu"), (24, "cpu")] and [x.tolist() for x in loaded] == [[1, 1], [0, 0, 0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_go_to_a_gpu_and_come_from_it(tmp_path):
    loaded = there_and_back(torch.ones(2, device="cuda:0"), tmp_path)
    assert loaded.device.type == "cpu"
    assert flow.load(tmp_path / "there_and_back", map_location="cuda:0").device.type == "cuda"


# ---------------------------------------------------------------------------------------------------------------
# replacing


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_saved_directory_is_replaced(can_exchange, tmp_path, monkeypatch):
    if not can_exchange:
        monkeypatch.setattr(writing, "exchange", lambda one, other: False)
        monkeypatch.setattr(writing, "sync_file_system", lambda folder: False)
    flow.save([torch.ones(2), torch.ones(3)], tmp_path / "saved")
    flow.save(torch.zeros(1), tmp_path / "saved")
    assert flow.load(tmp_path / "saved").tolist() == [0]
    assert os.listdir(tmp_path) == ["saved"] and sorted(os.listdir(tmp_path / "saved")) == ["pickled_data", "tensor_0"]


def test_folders_on_the_way_are_made_and_links_stay(tmp_path):
    flow.save(1, tmp_path / "a/b")
    (tmp_path / "link").symlink_to("a/b")
    flow.save(2, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and flow.load(tmp_path / "a/b") == 2
    (tmp_path / "empty").mkdir()
    flow.save(3, str(tmp_path / "empty"))
    assert flow.load(str(tmp_path / "empty")) == 3


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_save_that_fails_leaves_the_old_one(can_exchange, tmp_path, monkeypatch):
    flow.save(torch.ones(2), tmp_path / "saved")
    real, failed = os.rename, []

    def rename(source, target):
        if (
            str(target).endswith("saved")
            and not failed
            and os.path.isfile(os.path.join(source, "pickled_data"))
            and not str(source).endswith(".old")
        ):
            if can_exchange or not os.path.exists(target):
                failed.append(source)
                raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(writing, "exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ValueError, match="cannot save to .*saved.*No space left on device; choose another path"):
        flow.save(torch.zeros(2), tmp_path / "saved")
    assert failed and flow.load(tmp_path / "saved").tolist() == [1, 1] and os.listdir(tmp_path) == ["saved"]


def test_a_disk_that_is_full_leaves_the_old_one(tmp_path, monkeypatch):
    flow.save(torch.ones(2), tmp_path / "saved")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match="cannot save to .*saved.*No space left on device; choose another path"):
        flow.save(torch.zeros(2), tmp_path / "saved")
    assert flow.load(tmp_path / "saved").tolist() == [1, 1] and os.listdir(tmp_path) == ["saved"]
