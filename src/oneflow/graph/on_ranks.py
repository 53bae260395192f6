"""Graphs of global tensors: where they run, how what they are given lies, and how local parts go into a rank's program and come out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oneflow.compiler.distribute import Assigned, Spread
from oneflow.compiler.joint import Like
from oneflow.compiler.notes import layout_of, val
from oneflow.compiler.program import Program
from oneflow.core.errors import GraphError
from oneflow.core.placement import Placement
from oneflow.global_tensor.placement import placement
from oneflow.global_tensor.sbp import public
from oneflow.global_tensor.spec import Spec, contiguous, fresh
from oneflow.global_tensor.tensor import GlobalTensor
from oneflow.sharding.mesh import Layout, Mesh, whole_on


@dataclass(frozen=True)
class OnRanks:
    """Where a graph of global tensors runs."""

    mesh: Mesh
    device: torch.device

    @property
    def place(self) -> placement:
        """As users write it."""
        return placement.of(self.device.type, self.mesh)

    @property
    def devices(self) -> Placement:
        """As the compiler knows it: a device per rank, all of one machine."""
        return Placement("cpu" if self.device.type == "cpu" else "gpu", tuple((0, rank) for rank in self.mesh.ranks), self.mesh.axes)

    def spread(self, layouts: Mapping[str, Layout]) -> Spread:
        """What a step is spread over whose variables have these layouts."""
        return Spread({(0, rank): rank for rank in self.mesh.ranks}, layouts, self.device)


def ranks_of(name: str, variables: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> OnRanks | None:
    """Where a graph of these tensors runs; None if they are local. Refuses some of each kind, and several placements."""
    every = {**variables, **{f"input {number}": tensor for number, tensor in enumerate(inputs)}}
    found = {key: tensor for key, tensor in every.items() if isinstance(tensor, GlobalTensor)}
    if not found:
        return None
    local = next((key for key in every if key not in found), None)
    if local is not None:
        raise GraphError(
            f"{name}: the parameters, buffers and inputs of a graph are all global tensors or all local ones; {next(iter(found))!r} is global and {local!r} "
            "is local: bring the module or the input there with to_global(placement, sbp)"
        )
    first_key, first = next(iter(found.items()))
    for key, tensor in found.items():
        if tensor.placement != first.placement:  # type: ignore[attr-defined]
            raise GraphError(
                f"{name}: the parameters, buffers and inputs of a graph lie on one placement; {first_key!r} lies on {first.placement}, "  # type: ignore[attr-defined]
                f"{key!r} on {tensor.placement}: bring them there with to_global(placement, sbp)"  # type: ignore[attr-defined]
            )
    return OnRanks(first._spec.layout.mesh, first._spec.device)


def layout_given(tensor: Tensor) -> Layout | None:
    """How a tensor lies, if it is global."""
    return tensor._spec.layout if isinstance(tensor, GlobalTensor) else None


def like(tensor: Tensor, count: int = 1) -> Tensor | Like:
    """What is traced in place of a tensor: itself, or of a global one its logical shape; of ``count`` micro-batches one."""
    if not isinstance(tensor, GlobalTensor):
        return tensor
    spec = tensor._spec
    if count == 1:
        return Like(spec.shape, spec.dtype, spec.device, strides=spec.stride)
    shape = (spec.shape[0] // count, *spec.shape[1:]) if spec.shape else spec.shape
    return Like(shape, spec.dtype, spec.device, strides=contiguous(shape))


def parts_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What this rank holds of some tensors, by name; local ones it has whole."""
    found = {name: _own(tensor) if isinstance(tensor, GlobalTensor) else tensor for name, tensor in tensors.items()}
    return {name: part for name, part in found.items() if part is not None}


def lay_out(tensors: Mapping[str, Tensor], layouts: Mapping[str, Layout]) -> None:
    """Brings parameters into the layouts that their graph keeps them in, in place. All ranks do so together."""
    for name, tensor in tensors.items():
        if isinstance(tensor, GlobalTensor) and tensor._spec.layout != layouts[name] and layouts[name].mesh == tensor._spec.layout.mesh:
            with torch.no_grad():
                tensor.data = tensor.detach().to_global(sbp=list(map(public, layouts[name].sbp)))  # type: ignore[attr-defined]


class Parts:
    """The local side of a compiled step: what its program is fed with, and what its results are parts of."""

    def __init__(self, on: OnRanks, assigned: Assigned, program: Program, count: int) -> None:
        self._count = count
        self._here = [key is not None for key in program.results]
        self._specs = [self._spec(on, assigned, node) for node in assigned.outputs.results]

    @staticmethod
    def _spec(on: OnRanks, assigned: Assigned, node: object) -> Spec:
        layout = whole_on(on.mesh) if assigned.is_alone else layout_of(node)  # type: ignore[arg-type]
        made = val(node)  # type: ignore[arg-type]
        return fresh(made.shape, made.dtype, layout, on.device)

    def fed(self, tensors: Sequence[Tensor]) -> list[list[Any]]:
        """This rank's parts of the inputs of each micro-batch. The batch is cut as one process cuts it, so that parts may have to be exchanged."""
        if self._count == 1:
            return [[_part(tensor) for tensor in tensors]]
        with torch.no_grad():
            cut = [list(_cut(tensor, self._count)) for tensor in tensors]
        return [[_part(one[number]) for one in cut] for number in range(self._count)]

    def results(self, results: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """The results as global tensors; those of micro-batches put together, numbers as a vector, others along dim 0."""
        each = [list(self._global(own)) for own in results]
        if self._count == 1:
            return each[0]  # type: ignore[return-value]
        with torch.no_grad():
            return [torch.cat(parts) if parts[0].dim() else torch.stack(parts) for parts in map(list, zip(*each))]

    def _global(self, own: Sequence[Tensor]) -> Iterator[GlobalTensor]:
        parts = iter(own)
        for spec, is_here in zip(self._specs, self._here):
            yield GlobalTensor(next(parts).contiguous() if is_here else None, spec)


def _own(tensor: GlobalTensor) -> Tensor | None:
    if tensor._source is None:
        return tensor._part
    from oneflow.global_tensor.members import fresh_part  # with it come the rules of every op, which graphs of local tensors do not need

    return fresh_part(tensor)._part


def _part(tensor: Any) -> Tensor | None:
    part = _own(tensor)
    return None if part is None else part.detach().contiguous()


def _cut(tensor: Tensor, count: int) -> Iterator[Tensor]:
    if not tensor.dim():
        yield from [tensor] * count
        return
    size = tensor.shape[0] // count
    for number in range(count):
        yield tensor[number * size : (number + 1) * size].to_global(sbp=tensor.sbp)  # type: ignore[attr-defined]
