"""Calls of the names of global tensors, in a world of one rank."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.utils import global_view


def _here() -> Any:
    return flow.placement("cpu", [0])


def _ones(*sbp: Any) -> Any:
    return flow.ones(2, 3, placement=_here(), sbp=list(sbp) or flow.sbp.split(0))


def _layouts() -> None:
    assert (
        repr(flow.sbp.split(dim=0)) == "oneflow.sbp.split(dim=0)"
        and repr(flow.sbp.broadcast) == "oneflow.sbp.broadcast"
    )
    assert (
        flow.sbp.split(1) == flow.sbp.split(dim=1) != flow.sbp.split(0) and flow.sbp.broadcast() is flow.sbp.broadcast
    )
    assert flow.sbp.partial_sum() is flow.sbp.partial_sum and repr(flow.sbp.partial_sum) == "oneflow.sbp.partial_sum"
    assert isinstance(flow.sbp.split(2), flow.sbp.sbp) and pickle.loads(
        pickle.dumps(flow.sbp.split(2))
    ) == flow.sbp.split(2)
    assert len({flow.sbp.split(0), flow.sbp.split(0), flow.sbp.broadcast}) == 2
    with pytest.raises(RuntimeError, match="Split axis must not be negative, but got -1!"):
        flow.sbp.split(-1)
    with pytest.raises(RuntimeError, match="the axis to split is a whole number, got 'x'"):
        flow.sbp.split("x")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"an SBP comes from flow.sbp.split\(dim\)"):
        flow.sbp.sbp("S(0)")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a value already"):
        flow.sbp.split(0)()


def _placement() -> None:
    square = flow.placement("cpu", [[0, 1], [2, 3]])
    assert repr(square) == str(square) == 'oneflow.placement(type="cpu", ranks=[[0, 1], [2, 3]])'
    assert square.type == square.device_type == "cpu" and square.hierarchy == (2, 2)
    assert isinstance(square.ranks, np.ndarray) and square.ranks.tolist() == [[0, 1], [2, 3]]
    assert square == flow.placement(type="cpu", ranks=np.arange(4).reshape(2, 2)) and hash(square) == hash(
        pickle.loads(pickle.dumps(square))
    )
    assert flow.placement("cpu", [[0]]) != flow.placement("cpu", [0]) != flow.placement("cuda", [0])
    assert flow.placement("cpu", range(3)).ranks.tolist() == [0, 1, 2]
    assert flow.placement.all("cpu") == flow.env.all_device_placement("cpu") == _here()
    for wrong, words in (
        (lambda: flow.placement("tpu", [0]), "type is one of cpu, cuda"),
        (lambda: flow.placement("cpu", {0: [0]}), "the form with a dict is gone"),
        (lambda: flow.placement("cpu", []), "whole numbers in a list"),
        (lambda: flow.placement("cpu", [0, 0]), "names each rank once"),
        (lambda: flow.placement("cpu", ["a"]), "whole numbers in a list"),
    ):
        with pytest.raises(RuntimeError, match=words):
            wrong()
    if not torch.cuda.is_available():
        with pytest.raises(
            RuntimeError, match='Can\'t construct placement with "cuda" type because there is no device!'
        ):
            flow.placement.all("cuda")


def _to_global() -> None:
    local = torch.arange(6.0).reshape(2, 3)
    x = flow.to_global(local, _here(), flow.sbp.split(1))
    assert x.is_global and x.sbp == (flow.sbp.split(1),) and x.placement == _here()
    assert torch.equal(flow.to_local(x), local) and torch.equal(x.to_local(copy=True), local)
    assert flow.global_to_global(x, sbp=flow.sbp.broadcast).sbp == (flow.sbp.broadcast,)
    assert flow.local_to_global(local, _here(), flow.sbp.broadcast).is_global
    with pytest.raises(GlobalTensorError, match="placement and sbp together"):
        flow.to_global(local, _here())
    with pytest.raises(GlobalTensorError, match="grad_sbp is for tensors that are global"):
        local.to_global(_here(), flow.sbp.broadcast, grad_sbp=flow.sbp.broadcast)  # type: ignore[attr-defined]


def _methods() -> None:
    x, local = _ones(), torch.ones(2)
    assert x.is_consistent and not local.is_consistent and isinstance(x.global_id(), int)  # type: ignore[attr-defined]
    x.check_meta_consistency()
    assert x.to_consistent(sbp=flow.sbp.broadcast).sbp == (flow.sbp.broadcast,)
    copied = x.to_global(sbp=flow.sbp.split(0), copy=True, check_meta=True)
    copied.zero_()
    assert x.sum().item() == 6
    with pytest.raises(GlobalTensorError, match="data of a global tensor"):
        x.data = local
    x.data = copied
    assert x.sum().item() == 0


def _factories() -> None:
    where = {"placement": _here(), "sbp": flow.sbp.split(0)}
    assert flow.linspace(0, 1, 5, **where).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert (
        flow.new_ones(flow.zeros(3), **where).tolist() == [1.0] * 3
        and flow.new_full(flow.zeros(3), (2,), 7.0, **where).tolist() == [7.0] * 2
    )
    assert (
        flow.full_like(flow.zeros(2), 4.0, **where).tolist() == [4.0] * 2
        and flow.randint_like(flow.zeros(4), 3, 4, **where).tolist() == [3.0] * 4
    )
    assert flow.randint(2, 3, (2,), **where).tolist() == [2, 2] and flow.normal(1.0, 0.0, (2,), **where).tolist() == [
        1.0,
        1.0,
    ]
    with pytest.raises(GlobalTensorError, match="placement= and sbp= together"):
        flow.ones(2, placement=_here())
    with pytest.raises(GlobalTensorError, match="was given a device and a placement"):
        flow.ones(2, device="cpu", **where)
    with pytest.raises(GlobalTensorError, match="from low to below high"):
        flow.randint(3, 3, (2,), **where)


def _trees() -> None:
    tree = {"a": [torch.ones(2), (torch.zeros(3),)]}
    made = global_view.to_global(tree, _here(), lambda tensor: flow.sbp.split(0))
    assert made["a"][1][0].sbp == (flow.sbp.split(0),) and torch.equal(
        global_view.to_local(made)["a"][0], torch.ones(2)
    )
    with pytest.warns(UserWarning, match="int is no tensor and stays as it is"):
        assert global_view.to_global([1], _here(), flow.sbp.broadcast) == [1]
    assert global_view.to_global([1], _here(), flow.sbp.broadcast, warn_on_non_tensor_leaf=False) == [1]


def _mode() -> None:
    assert not global_view.current_global_mode().is_enabled
    with global_view.global_mode(True, placement=_here(), sbp=flow.sbp.split(0)):
        x = flow.ones(2)
        assert (
            x.is_global
            and x.device == torch.device("cpu")
            and x.to(x.device) is x
            and torch.rand(2).sbp == (flow.sbp.split(0),)
        )  # type: ignore[attr-defined]
        assert (
            global_view.current_global_mode().placement == _here()
            and global_view.current_global_mode().sbp == flow.sbp.split(0)
        )
        with global_view.global_mode(False):
            assert not flow.ones(2).is_global  # type: ignore[attr-defined]
    assert global_view.global_mode(True, _here(), flow.sbp.broadcast)(lambda: torch.zeros(1).is_global)()  # type: ignore[attr-defined]
    assert not flow.ones(2).is_global  # type: ignore[attr-defined]
    with pytest.raises(GlobalTensorError, match="takes a flow.placement and an SBP"):
        global_view.global_mode(True)


_NAMES: dict[Callable[[], None], list[str]] = {
    _layouts: ["sbp.broadcast", "sbp.partial_sum", "sbp.sbp", "sbp.split"],
    _placement: [
        "placement",
        "placement.all",
        "placement.device_type",
        "placement.hierarchy",
        "placement.ranks",
        "placement.type",
        "env.all_device_placement",
    ],
    _to_global: ["to_global", "to_local", "local_to_global", "global_to_global"],
    _methods: [f"Tensor.{name}" for name in ("to_consistent", "is_consistent", "global_id", "check_meta_consistency")],
    _factories: [f"Tensor.{name}" for name in ("to_global", "to_local", "local_to_global", "global_to_global")],
    _trees: ["utils.global_view.to_global", "utils.global_view.to_local"],
    _mode: ["utils.global_view.global_mode", "utils.global_view.current_global_mode"],
}
CALLS = {f"oneflow.{name}": call for call, names in _NAMES.items() for name in names}
