"""Calls of two ranks: one sends, the other receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oneflow.comm import checks
from oneflow.engine.collective.peers import meeting
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.world import PeerWorld, join

_MOST_DIMS = 16
_DTYPES = (
    *(
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    ),
    *(torch.bool, torch.complex64, torch.complex128),
)


def send(tensor: Tensor, dst: int, send_meta: bool = True) -> None:
    """Sends a tensor to rank ``dst``, which calls ``recv``. Without ``send_meta`` the other side must know its shape
    and dtype."""
    world, value = join(), checks.tensor("comm.send", tensor)
    target = _other("comm.send", "dst", dst, world)
    if value.dtype not in _DTYPES or value.dim() > _MOST_DIMS:
        raise DTypeError(
            f"comm.send of {value.dtype} with {value.dim()} dims; at most {_MOST_DIMS} dims of a common dtype can be "
            f"sent"
        )
    with torch.no_grad(), meeting((world.rank, target)):
        if send_meta:
            dist.send(_meta_of(value), target)
        if value.numel():
            dist.send(value.contiguous().view(-1).view(torch.uint8), target)


def recv(
    src: int,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The tensor that rank ``src`` sends. Shape and dtype are given here if and only if they are not sent along
    (``send_meta=False``); ``out`` is a tensor to write it into."""
    world = join()
    source = _other("comm.recv", "src", src, world)
    if (shape is None) != (dtype is None):
        raise ArgumentError(
            "comm.recv takes shape and dtype together, for a tensor sent with send_meta=False, or neither"
        )
    with torch.no_grad(), meeting((world.rank, source)):
        if shape is None or dtype is None:
            shape, dtype = _received_meta(source)
        value = torch.empty(tuple(shape), dtype=dtype, device=_device(device, out))
        if value.numel():
            dist.recv(value.view(-1).view(torch.uint8), source)
        return value if out is None else _written(checks.tensor("comm.recv", out), value, source)


def _other(name: str, argument: str, value: Any, world: PeerWorld) -> int:
    found = checks.rank(name, argument, value, world)
    if found == world.rank:
        raise ArgumentError(f"{name}: {argument}={found} is this rank itself; another one must be at the other end")
    return found


def _device(device: torch.device | str | None, out: Tensor | None) -> torch.device:
    return torch.device(device) if device is not None else out.device if out is not None else torch.device("cpu")


def _meta_of(value: Tensor) -> Tensor:
    """A tensor's dtype and shape as numbers, as many for every tensor."""
    numbers = [_DTYPES.index(value.dtype), value.dim(), *value.shape]
    return torch.tensor(numbers + [0] * (2 + _MOST_DIMS - len(numbers)))


def _received_meta(source: int) -> tuple[list[int], torch.dtype]:
    numbers = torch.empty(2 + _MOST_DIMS, dtype=torch.int64)
    dist.recv(numbers, source)
    kind, dims, *shape = numbers.tolist()
    return shape[:dims], _DTYPES[kind]


def _written(out: Tensor, value: Tensor, source: int) -> Tensor:
    if out.shape != value.shape or out.dtype != value.dtype:
        raise ArgumentError(
            f"comm.recv: rank {source} has sent {value.dtype}{tuple(value.shape)}, which does not fit out, "
            f"{out.dtype}{tuple(out.shape)}"
        )
    return out.copy_(value)
