"""Global tensors on one rank, and from one rank: what saving and loading need."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.tree import tree_map
from oneflow.engine.global_tensor.members import converted
from oneflow.engine.global_tensor.spec import Spec, fresh
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout, Mesh, whole_on
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

_CPU = torch.device("cpu")


def _only(rank: int) -> Layout:
    return whole_on(Mesh((rank,), (1,)))


def whole_at(tensor: GlobalTensor, rank: int) -> torch.Tensor | None:
    """The logical tensor in the memory of one rank, None on the others; all ranks of the world call this."""
    return converted(tensor.detach(), _only(rank), _CPU)._part  # type: ignore[arg-type]


def all_succeeded(error: BaseException | None) -> bool:
    """Whether no rank comes here with an error; all ranks of the world call this."""
    world = join()
    if world.size == 1:
        return error is None
    with meet("outcome", world.ranks):
        return bool(collective.all_reduce(torch.tensor(int(error is None)), "min", world.ranks))


def from_rank(read: Callable[[], Any], rank: int) -> Any:
    """What ``read`` gives on one rank, on all of them; its tensors are global and lie there. An error of that rank is
    one of all."""
    mine = None
    if join().rank == rank:
        try:
            mine = ("read", read())
        except Exception as error:  # told to the others, who wait
            mine = ("failed", error)
    parts: list[torch.Tensor] = []
    outcome, value = pickle.loads(_told(_packed(mine, parts) if mine is not None else b"", rank))
    if outcome == "failed":
        raise value
    remaining = iter(parts)

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, _Described):
            return leaf
        tensor = GlobalTensor(next(remaining, None), leaf.spec(rank))
        return (
            torch.nn.Parameter(tensor, leaf.requires_grad)
            if leaf.is_parameter
            else tensor.requires_grad_(leaf.requires_grad)
        )

    return tree_map(made, value)


class _Described:
    """A tensor in what ranks tell each other: what it is like, not what it holds."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype
        self.is_parameter, self.requires_grad = isinstance(tensor, torch.nn.Parameter), tensor.requires_grad

    def spec(self, rank: int) -> Spec:
        return fresh(self.shape, self.dtype, _only(rank), _CPU)


def _packed(outcome: tuple[str, Any], parts: list[torch.Tensor]) -> bytes:
    """An outcome with descriptions in the place of tensors, which are collected in order."""

    def described(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        parts.append(leaf.detach().to(_CPU))
        return _Described(leaf)

    return pickle.dumps(tree_map(described, outcome))


def _told(text: bytes, rank: int) -> bytes:
    """One rank's bytes, on all of them."""
    world = join()
    if world.size == 1:
        return text
    ranks = (rank, *(other for other in world.ranks if other != rank))
    with meet("load", world.ranks):
        length = int(collective.broadcast(torch.tensor([len(text)]), ranks))
        mine = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(length, dtype=torch.uint8)
        return bytes(collective.broadcast(mine, ranks).numpy())
