"""Graphs of global tensors: where they run, how what they are given lies, and how local parts go into a rank's program
and come out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from oneflow.engine.assignment.auto import AutoParallel
from oneflow.engine.assignment.distribute import Assigned, Spread
from oneflow.engine.capture.joint import Like
from oneflow.engine.core.errors import GraphError
from oneflow.engine.core.placement import Placement
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import public
from oneflow.engine.global_tensor.spec import Spec, contiguous, fresh, in_order_of
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.graph.proxy import GraphModule
from oneflow.engine.graph.sources import Sources
from oneflow.engine.program.notes import layout_of, val
from oneflow.engine.program.program import Program
from oneflow.engine.sharding.mesh import Layout, Mesh, whole_on
from oneflow.engine.world import current_world


@dataclass(frozen=True)
class OnRanks:
    """Where a graph of global tensors runs: on ``places``, several of which are stages of a pipeline. ``stages`` says
    on which of them modules run, by their ids."""

    places: tuple[placement, ...]
    device: torch.device
    stages: Mapping[int, placement]

    @property
    def mesh(self) -> Mesh:
        """The first of the meshes."""
        return self.places[0]._mesh

    def spread(self, layouts: Mapping[str, Layout], auto: AutoParallel | None = None) -> Spread:
        """What a step is spread over whose variables have these layouts, those apart that a search may choose."""
        return Spread(
            {(0, rank): rank for place in self.places for rank in place._mesh.ranks}, layouts, self.device, auto=auto
        )


def devices_of(place: placement) -> Placement:
    """A placement as the compiler knows it: a device per rank, all of one machine."""
    return Placement(
        "cpu" if place.type == "cpu" else "gpu", tuple((0, rank) for rank in place._mesh.ranks), place._mesh.axes
    )


def stages_of(modules: Mapping[str, nn.Module], settings: Mapping[int, GraphModule]) -> dict[int, placement]:
    """Where modules run, by their ids. A stage, with all that it holds, runs where it was set, or where its first
    parameter lies; outside of stages a module that has parameters of its own runs where these lie. Empty without
    stages."""
    found: dict[int, placement] = {}
    if any(one.is_stage for one in settings.values()):
        for module in modules.values():
            _place_modules(module, settings, None, found)
    return found


def _place_modules(
    module: nn.Module, settings: Mapping[int, GraphModule], within: placement | None, found: dict[int, placement]
) -> None:
    own = settings.get(id(module))
    if own is not None and own.is_stage:
        within = own.stage_placement or _first_place(module.parameters())
    place = within or _first_place(module.parameters(recurse=False))
    if place is not None:
        found.setdefault(id(module), place)
    for child in module.children():
        _place_modules(child, settings, within, found)


def _first_place(parameters: Iterator[nn.Parameter]) -> placement | None:
    tensor: Any = next(parameters, None)
    return place_of(tensor) if isinstance(tensor, GlobalTensor) else None


def place_of(tensor: Any) -> placement:
    """Where a global tensor lies."""
    return placement.of(tensor._spec.device.type, tensor._spec.layout.mesh)


def ranks_of(
    name: str,
    variables: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    stages: Mapping[int, placement],
    takes_local: bool = False,
) -> OnRanks | None:
    """Where a graph of these tensors runs; None if they are local. Refuses some of each kind, unless it ``takes_local``
    inputs, and several placements without stages."""
    given = [tensor for tensor in inputs if isinstance(tensor, GlobalTensor) or not takes_local]
    every = {**variables, **{f"input {number}": tensor for number, tensor in enumerate(given)}}
    found = {key: tensor for key, tensor in every.items() if isinstance(tensor, GlobalTensor)}
    if not found:
        return None
    local = next((key for key in every if key not in found), None)
    if local is not None:
        raise GraphError(
            f"{name}: the parameters, buffers and inputs of a graph are all global tensors or all local ones; "
            f"{next(iter(found))!r} is global and {local!r} "
            "is local: bring the module or the input there with to_global(placement, sbp)"
        )
    places = {key: place_of(tensor) for key, tensor in found.items()}
    first = next(iter(found))
    other = next((key for key, place in places.items() if place != places[first]), None)
    if other is not None and not stages:
        raise GraphError(
            f"{name}: the parameters, buffers and inputs of a graph lie on one placement; {first!r} lies on "
            f"{places[first]}, {other!r} on {places[other]}: "
            "bring them there with to_global(placement, sbp), or make stages of modules with "
            "module.to(GraphModule).set_stage(id, placement)"
        )
    return OnRanks(tuple(dict.fromkeys((*places.values(), *stages.values()))), found[first]._spec.device, stages)


def layout_given(tensor: Tensor) -> Layout | None:
    """How a tensor lies, if it is global."""
    return tensor._spec.layout if isinstance(tensor, GlobalTensor) else None


def like(tensor: Tensor, count: int = 1) -> Tensor | Like:
    """What is traced in place of a tensor: itself, or of a global one its logical shape; of ``count`` micro-batches
    one."""
    if not isinstance(tensor, GlobalTensor):
        found = tensor if count == 1 or not tensor.dim() else tensor.chunk(count)[0]
        return (
            Like(tuple(found.shape), found.dtype, torch.device("cpu"), strides=found.stride())
            if found.is_meta
            else found
        )
    spec = tensor._spec
    device = traced_on(spec.device)
    if count == 1:
        return Like(spec.shape, spec.dtype, device, strides=spec.stride)
    shape = (spec.shape[0] // count, *spec.shape[1:]) if spec.shape else spec.shape
    return Like(shape, spec.dtype, device, strides=contiguous(shape))


def traced_on(device: torch.device) -> torch.device:
    """Where what stands for tensors of a device is traced: shapes are the same on any, and in a planned world there may
    be none."""
    return torch.device("cpu") if current_world().is_planned else device


def parts_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What this rank holds of some tensors, by name; local ones it has whole."""
    found = {name: _own(tensor) if isinstance(tensor, GlobalTensor) else tensor for name, tensor in tensors.items()}
    return {name: part for name, part in found.items() if part is not None}


def lay_out(tensors: Mapping[str, Tensor], layouts: Mapping[str, Layout]) -> None:
    """Brings parameters into the layouts that their graph keeps them in, in place. All ranks do so together."""
    for name, tensor in tensors.items():
        if (
            isinstance(tensor, GlobalTensor)
            and tensor._spec.layout != layouts[name]
            and set(layouts[name].mesh.ranks) == set(tensor._spec.layout.mesh.ranks)
        ):
            place = placement.of(tensor._spec.device.type, layouts[name].mesh)
            with torch.no_grad():
                tensor.data = tensor.detach().to_global(place, list(map(public, layouts[name].sbp)))  # type: ignore[attr-defined]


class Parts:
    """The local side of a compiled step: what its program is fed with, and what its results are parts of."""

    def __init__(self, on: OnRanks, assigned: Assigned, program: Program, count: int) -> None:
        self._count = count
        self._here = [key is not None for key in program.results]
        self._specs = [self._spec(on, assigned, node) for node in assigned.outputs.results]
        nodes = [assigned.arguments[key] for key in assigned.arguments if key[0] == "feed"]
        self._blocks = [
            (slice(None),) * val(node).dim()
            if assigned.is_alone
            else layout_of(node).block(tuple(val(node).shape), program.rank)
            for node in nodes
        ]

    @staticmethod
    def _spec(on: OnRanks, assigned: Assigned, node: fx.Node) -> Spec:
        layout = whole_on(on.mesh) if assigned.is_alone else layout_of(node)
        made = val(node)
        return fresh(made.shape, made.dtype, layout, on.device)

    def fed(self, tensors: Sequence[Tensor]) -> list[list[Any]]:
        """This rank's parts of the inputs of each micro-batch. The batch is cut as one process cuts it, so that parts
        may have to be exchanged."""
        if self._count == 1:
            return [list(map(self._part, tensors, self._blocks))]
        with torch.no_grad():
            cut = [list(_cut(tensor, self._count)) for tensor in tensors]
        return [
            [self._part(one[number], block) for one, block in zip(cut, self._blocks)] for number in range(self._count)
        ]

    @staticmethod
    def _part(tensor: Tensor, block: tuple[slice, ...] | None) -> Tensor | None:
        """What this rank has of an input; of a local one, which it has whole, what the program wants of it."""
        if isinstance(tensor, GlobalTensor):
            return _part(tensor)
        return None if block is None else tensor.detach()[block].contiguous()

    def results(self, results: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """The results as global tensors; those of micro-batches put together, numbers as a vector, others along dim
        0."""
        each: list[list[Tensor]] = [list(self._global(own)) for own in results]
        if self._count == 1:
            return each[0]
        with torch.no_grad():
            return [torch.cat(parts) if parts[0].dim() else torch.stack(parts) for parts in map(list, zip(*each))]

    def _global(self, own: Sequence[Tensor]) -> Iterator[GlobalTensor]:
        parts = iter(own)
        for spec, is_here in zip(self._specs, self._here):
            yield GlobalTensor(next(parts).contiguous() if is_here else None, spec)


class ReadParts:
    """What of the batches that data modules read goes to this rank: of the first, which all ranks read whole, its
    parts; from then on it reads no more than its rows, if these are one of several equal shares of all feeds."""

    def __init__(self, assigned: Assigned, rank: int, given: int, sources: Sources) -> None:
        self._sources = sources
        nodes = [assigned.arguments["feed", given + number] for number in range(len(sources.metas))]
        self._shapes = [meta.shape for meta in sources.metas]
        layouts = [None if assigned.is_alone else layout_of(node) for node in nodes]
        blocks = [None if layout is None else layout.block(shape, rank) for layout, shape in zip(layouts, self._shapes)]
        self._blocks = [() if layout is None else block for layout, block in zip(layouts, blocks)]
        sources.share_out(*_share(self._shapes, blocks))

    def next(self) -> list[Any]:
        """This rank's parts of the next batch; None where it has none."""
        return [
            None if block is None else tensor if tuple(tensor.shape) != shape else tensor[block].contiguous()
            for tensor, shape, block in zip(self._sources.next(), self._shapes, self._blocks)
        ]


def _share(shapes: Sequence[tuple[int, ...]], blocks: Sequence[tuple[slice, ...] | None]) -> tuple[int, int]:
    """Which of how many equal shares of the rows these blocks are; the whole, if they are not the same rows or not only
    rows."""
    held = [(block, shape) for block, shape in zip(blocks, shapes) if block is not None]
    if not held or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        return 0, 1
    rows, count = held[0][0][0], shapes[0][0]
    size = rows.stop - rows.start
    is_rows = all(
        block[0] == rows and all(part == slice(0, extent) for part, extent in zip(block[1:], shape[1:]))
        for block, shape in held
    )
    return (
        (rows.start // size, count // size)
        if is_rows and size and count % size == 0 and rows.start % size == 0
        else (0, 1)
    )


def _own(tensor: GlobalTensor) -> Tensor | None:
    if tensor._source is None:
        return tensor._part
    from oneflow.engine.global_tensor.members import (
        fresh_part,  # with it come the rules of every op, which graphs of local tensors do not need
    )

    return fresh_part(tensor)._part


def _part(tensor: Any) -> Tensor | None:
    part = _own(tensor)
    return None if part is None else in_order_of(part, part.detach())


def _cut(tensor: Any, count: int) -> Iterator[Tensor]:
    if not tensor.dim():
        yield from [tensor] * count
        return
    if layout_given(tensor) is None:
        yield from tensor.chunk(count)
        return
    size = tensor.shape[0] // count
    for number in range(count):
        yield tensor[number * size : (number + 1) * size].to_global(sbp=tensor.sbp)
