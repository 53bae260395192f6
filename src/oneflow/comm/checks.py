"""What the functions of ``flow.comm`` ask of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.world import PeerWorld

_SUMMED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)


def tensor(name: str, value: Any) -> Tensor:
    """A local tensor with values in its own memory."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{name} takes a tensor, got {type(value).__name__}")
    if getattr(value, "is_global", False) is True:
        raise ArgumentError(
            f"{name} takes a local tensor, got a global one; use to_global for another layout, or to_local for this "
            f"rank's part"
        )
    if value.layout is not torch.strided or value.device.type == "meta":
        raise ArgumentError(f"{name} takes a dense tensor with values, got layout {value.layout} on {value.device}")
    return value


def summed(name: str, value: Any) -> Tensor:
    """A local tensor whose values can be added up."""
    found = tensor(name, value)
    if found.dtype not in _SUMMED:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _SUMMED)
        raise DTypeError(f"{name} adds up {names}, got {str(found.dtype).removeprefix('torch.')}; convert it first")
    return found


def rank(name: str, argument: str, value: Any, world: PeerWorld) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < world.size:
        raise ArgumentError(
            f"{name}: {argument}={value!r} is no rank of this world; it has {world.size}, counted from 0"
        )
    return value


def list_of(name: str, argument: str, values: Any, like: Tensor, world: PeerWorld) -> list[Tensor]:
    """One tensor per rank, each with the shape and dtype of ``like``."""
    if not isinstance(values, Sequence) or len(values) != world.size:
        got = f"{len(values)} tensors" if isinstance(values, Sequence) else type(values).__name__
        raise ArgumentError(f"{name}: {argument} is a list of {world.size} tensors, one per rank; got {got}")
    found = [tensor(name, value) for value in values]
    for place, value in enumerate(found):
        same_kind(name, f"{argument}[{place}]", value, like)
        if value.shape != like.shape:
            raise ArgumentError(
                f"{name}: {argument}[{place}] has shape {tuple(value.shape)}, expected {tuple(like.shape)}"
            )
    return found


def same_kind(name: str, argument: str, value: Tensor, like: Tensor) -> None:
    if value.dtype != like.dtype:
        raise DTypeError(f"{name}: {argument} is {value.dtype}, the other tensor {like.dtype}; make them the same")
    if value.device != like.device:
        raise ArgumentError(
            f"{name}: {argument} is on {value.device}, the other tensor on {like.device}; put them on one device"
        )


def times_larger(name: str, whole: Tensor, part: Tensor, world: PeerWorld) -> None:
    """The whole is as long as the parts of all ranks, one behind the other or stacked."""
    same_kind(name, "output_tensor", whole, part)
    behind = (world.size * part.shape[0], *part.shape[1:]) if part.dim() else (world.size,)
    if tuple(whole.shape) not in (behind, (world.size, *part.shape)):
        raise ArgumentError(
            f"{name}: a tensor of shape {tuple(part.shape)} per rank and {world.size} ranks make {behind}, got "
            f"{tuple(whole.shape)}"
        )
