"""What layouts cost: bytes moved between ranks, and work done more than once.

Costs are in bytes sent by each rank. Work counts too, so that a batch is not gathered only to spare a reduction: sixteen floating-point
operations weigh as much as a byte, or eight bytes read or written. That is little against what processors do in the time they send a byte, on purpose:
devices were asked for to share the work. Still, the gradient of a large matrix over a small batch costs less to compute everywhere than to add up.
Memory only decides between layouts that cost the same.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from oneflow.compiler.rules.rule import Signature, tensor_arguments
from oneflow.core.sbp import Sbp

_PER_OPERATION = 1 / 16
_PER_BYTE_TOUCHED = 1 / 8
_PER_BYTE_HELD = 1e-6
_START = 32768.0  # of a collective: what could have been sent in the time it takes to begin
_START_OF_SUM = 16.0  # sums of gradients are put together in buckets and begin once for many


def nbytes(value: Any) -> int:
    """The size of a tensor."""
    return prod(value.shape) * value.dtype.itemsize


def boxing(source: Sbp, target: Sbp, size: float, parts: int, is_last: bool = False) -> float:
    """The cost of changing the layout of a tensor of ``size`` bytes along one axis. ``is_last`` of what a step ends with: its gradients."""
    if source is target or source.kind == "B" or target.kind == "P" or parts == 1:
        return 0.0
    if source.kind == "P":
        start = _START_OF_SUM if is_last and target.kind == "B" else _START
        return start + size * (parts - 1) / parts * (2 if target.kind == "B" else 1)
    if is_last and target.kind == "B":  # it can neither begin before the backward pass ends nor go with others, as a sum can
        return _START + size * (parts - 1) / parts * 2
    return _START + size * (parts - 1) / parts / (1 if target.kind == "B" else parts)


def transfer(source: Sbp, target: Sbp, size: float, parts: int) -> float:
    """The cost of bringing a tensor from one mesh to another, in ``target`` layout over ``parts`` ranks."""
    reduced = size if source.kind == "P" else 0.0
    return _START + reduced + (size / parts if target.kind == "S" else size)


def operations(node: fx.Node) -> int:
    """The floating-point operations of a node on its whole tensors, of those ops that have many an element."""
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return int(count(*args, **kwargs, out_val=node.meta["val"]))


def touched(node: fx.Node) -> int:
    """The bytes that a node reads and writes."""
    value = node.meta["val"]
    outputs = value if isinstance(value, (tuple, list)) else [value]
    tensors = [*outputs, *(n.meta["val"] for n in tensor_arguments(node))]
    return sum(nbytes(t) for t in tensors if isinstance(t, torch.Tensor))


def work(node: fx.Node, signature: Signature, parts: int, share: float) -> float:
    """The cost of running a node as ``signature`` says; ``share`` is what earlier axes left of it to each rank."""
    is_split = any(sbp.kind == "S" for sbp in (*signature.inputs, *signature.outputs))
    here = share / parts if is_split else share
    moved = _START + 2.0 * signature.moved if signature.moved else 0.0
    value = node.meta["val"]
    held = sum(nbytes(v) for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, torch.Tensor))
    return here * (operations(node) * _PER_OPERATION + touched(node) * _PER_BYTE_TOUCHED + held * _PER_BYTE_HELD) + moved
