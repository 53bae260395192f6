"""Calls of all ranks. Each checks its arguments before it meets anybody, then writes into the tensors it was given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.comm import checks
from oneflow.comm.wires import Wire, wire_for
from oneflow.engine.collective.peers import meeting
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.world import PeerWorld, join, order


@contextlib.contextmanager
def _met(world: PeerWorld, name: str, *arguments: Any) -> Iterator[tuple[Wire | None, str]]:
    """The way to the others, and the call as they all must make it."""
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    with torch.no_grad():
        if world.size == 1:
            yield None, name
            return
        with order.meet(name, world.ranks, *arguments), meeting(world.ranks):
            yield wire_for(world, *tensors), f"{name}({order.described(arguments)})"


def all_reduce(tensor: Tensor) -> None:
    """Replaces the tensor of every rank by the sum of all of them."""
    value = checks.summed("comm.all_reduce", tensor)
    with _met(join(), "comm.all_reduce", value) as (wire, what):
        if wire is not None:
            tensor.copy_(wire.add(value.contiguous(), what))


def reduce(tensor: Tensor, dst: int) -> None:
    """Replaces the tensor of rank ``dst`` by the sum of all; those of the others stay as they are."""
    world, value = join(), checks.summed("comm.reduce", tensor)
    target = checks.rank("comm.reduce", "dst", dst, world)
    with _met(world, "comm.reduce", value, target) as (wire, what):
        found = wire.add_at(value.contiguous(), target, what) if wire is not None else None
        if found is not None:
            tensor.copy_(found)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor) -> None:
    """Writes the tensor of rank r into ``tensor_list[r]``, on every rank."""
    world, value = join(), checks.tensor("comm.all_gather", tensor)
    targets = checks.list_of("comm.all_gather", "tensor_list", tensor_list, value, world)
    with _met(world, "comm.all_gather", value) as (wire, what):
        _fill(targets, value[None] if wire is None else wire.gather(value.contiguous(), what))


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor) -> None:
    """Writes the tensors of all ranks, one behind the other along the first dim, or stacked, into the output."""
    name, world = "comm.all_gather_into_tensor", join()
    whole, part = checks.tensor(name, output_tensor), checks.tensor(name, input_tensor)
    checks.times_larger(name, whole, part, world)
    with _met(world, name, part) as (wire, what):
        found = part if wire is None else wire.gather(part.contiguous(), what)
        whole.copy_(found.reshape(whole.shape))


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0) -> None:
    """Writes the tensor of rank r into ``gather_list[r]`` of rank ``dst``; the other ranks give none."""
    world, value = join(), checks.tensor("comm.gather", tensor)
    target = checks.rank("comm.gather", "dst", dst, world)
    targets = _only_at("comm.gather", "gather_list", gather_list, target, value, world)
    with _met(world, "comm.gather", value, target) as (wire, what):
        found = value[None] if wire is None else wire.gather_at(value.contiguous(), target, what)
        if found is not None:
            _fill(targets, found)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0) -> None:
    """Writes ``scatter_list[r]`` of rank ``src`` into the tensor of rank r; the other ranks give no list."""
    world, value = join(), checks.tensor("comm.scatter", tensor)
    source = checks.rank("comm.scatter", "src", src, world)
    parts = _only_at("comm.scatter", "scatter_list", scatter_list, source, value, world)
    with _met(world, "comm.scatter", value, source) as (wire, what):
        given = torch.stack(parts) if parts else None
        like = value.detach().contiguous()
        value.copy_(parts[0] if wire is None else wire.deal(given, like, source, what))


def broadcast(tensor: Tensor, src: int) -> None:
    """Replaces the tensor of every rank by that of rank ``src``."""
    world, value = join(), checks.tensor("comm.broadcast", tensor)
    source = checks.rank("comm.broadcast", "src", src, world)
    with _met(world, "comm.broadcast", value, source) as (wire, what):
        if wire is not None:
            value.copy_(wire.spread(value.contiguous(), source, what))


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor]) -> None:
    """Writes ``input_tensor_list[r]`` of rank s into ``output_tensor_list[s]`` of rank r. All tensors have one
    shape."""
    name, world = "comm.all_to_all", join()
    like = _first(name, "input_tensor_list", input_tensor_list)
    inputs = checks.list_of(name, "input_tensor_list", input_tensor_list, like, world)
    outputs = checks.list_of(name, "output_tensor_list", output_tensor_list, like, world)
    with _met(world, name, like) as (wire, what):
        parts = torch.stack(inputs)
        _fill(outputs, parts if wire is None else wire.swap(parts, what))


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor]) -> None:
    """Writes the sum of every rank's ``input_list[r]`` into the output of rank r."""
    name, world = "comm.reduce_scatter", join()
    target = checks.summed(name, output)
    inputs = checks.list_of(name, "input_list", input_list, target, world)
    with _met(world, name, target) as (wire, what):
        target.copy_(inputs[0] if wire is None else wire.add_parts(torch.stack(inputs), what))


def reduce_scatter_tensor(output_tensor: Tensor, input_tensor: Tensor) -> None:
    """Writes the r-th part, along the first dim, of the sum of all inputs into the output of rank r."""
    name, world = "comm.reduce_scatter_tensor", join()
    part, whole = checks.summed(name, output_tensor), checks.tensor(name, input_tensor)
    checks.times_larger(name, whole, part, world)
    with _met(world, name, part) as (wire, what):
        parts = whole.contiguous().view((world.size, *part.shape))
        part.copy_(parts[0] if wire is None else wire.add_parts(parts, what))


def barrier() -> None:
    """Returns when every rank has come here."""
    with _met(join(), "comm.barrier") as (wire, _):
        if wire is not None:
            wire.meet()


def _fill(targets: Sequence[Tensor], stacked: Tensor) -> None:
    for target, value in zip(targets, stacked):
        target.copy_(value)


def _first(name: str, argument: str, values: Any) -> Tensor:
    return checks.tensor(name, values[0] if isinstance(values, Sequence) and values else values)


def _only_at(name: str, argument: str, values: Any, place: int, like: Tensor, world: PeerWorld) -> list[Tensor]:
    """The list of the one rank that has one."""
    if world.rank == place:
        return checks.list_of(name, argument, values, like, world)
    if values is not None:
        raise ArgumentError(
            f"{name}: {argument} is given on rank {place} alone, and this is rank {world.rank}; leave it out here"
        )
    return []
