"""Pipelines of local modules: parameters that are local are brought to the stages whose they are at the first call,
local inputs to the first stage at every call. So a module of plain torch becomes a pipeline by ``set_stage`` alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from oneflow.engine.core.errors import GraphError
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import broadcast
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.in_place import brought, make_global, without_weak_references
from oneflow.engine.graph.on_ranks import place_of, stages_of
from oneflow.engine.graph.proxy import GraphModule
from oneflow.engine.graph.structure import Call
from oneflow.engine.world import join


def on_stages(graph: Definition, call: Call) -> Call:
    """The call with its local tensors on the first stage: the first rank's tensors count, as with ``to_global`` of what
    is broadcast. All ranks come here. A world of one has no stages."""
    if join().size == 1:
        return call
    if graph.entry is None:
        _settle(graph)
        graph.entry = _spread(graph, call)
    entry, whole = graph.entry, (broadcast,) * len(graph.entry.hierarchy)
    return replace(call, leaves=[leaf.to_global(entry, whole) if _is_local(leaf) else leaf for leaf in call.leaves])


def _is_local(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, GlobalTensor)


def _settle(graph: Definition) -> None:
    """Gives stages whose placement neither was set nor follows from their parameters an equal part of the ranks each,
    by their numbers."""
    open_stages = [
        one for one in graph.settings.values() if one.is_stage and one.stage_placement is None and _lies_nowhere(one)
    ]
    if not open_stages:
        return
    size = join().size
    count = 1 + max(one.stage_id or 0 for one in graph.settings.values() if one.is_stage)
    if size % count:
        raise GraphError(
            f"{graph.name}: {size} ranks are not shared out evenly among stages 0 to {count - 1}; say where each runs "
            f"with "
            "module.to(GraphModule).set_stage(id, placement)"
        )
    each = size // count
    for one in open_stages:
        first = (one.stage_id or 0) * each
        one.stage_placement = placement(_kind(one.module), range(first, first + each))


def _lies_nowhere(stage: GraphModule) -> bool:
    return not isinstance(next(stage.module.parameters(), None), GlobalTensor)


def _kind(module: nn.Module) -> str:
    return next((tensor.device.type for tensor in module.parameters()), "cpu")


def _spread(graph: Definition, call: Call) -> placement:
    """Makes local parameters and buffers global where their modules run, whole on each rank there; gives the placement
    of the first stage."""
    places = stages_of(graph.modules, graph.settings)
    stages = [one for one in graph.settings.values() if one.is_stage]
    first = min(stages, key=lambda one: (one.stage_id is None, one.stage_id or 0))
    entry = places.get(id(first.module)) or _first_given(graph, call)
    made: set[int] = set()
    with without_weak_references(_every(graph)):
        for module in _every(graph):
            place = places.get(id(module), entry)
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None and _is_local(tensor):
                    make_global(tensor, place)
                    made.add(id(tensor))
    _bring_states(graph, made)
    return entry


def _first_given(graph: Definition, call: Call) -> placement:
    tensors = (*(p for module in graph.modules.values() for p in module.parameters()), *call.tensors)
    found = next((place_of(tensor) for tensor in tensors if isinstance(tensor, GlobalTensor)), None)
    if found is None:
        raise GraphError(
            f"{graph.name}: none of its stages has a placement or parameters; call set_stage(id, placement)"
        )
    return found


def _every(graph: Definition) -> Iterator[nn.Module]:
    for module in graph.modules.values():
        yield from module.modules()


def _bring_states(graph: Definition, made: set[int]) -> None:
    """What optimizers keep of parameters goes where these went."""
    for added in graph.added:
        for p, kept in added.optimizer.state.items():
            if id(p) in made:
                kept.update({name: brought(value, place_of(p)) for name, value in kept.items() if _is_local(value)})
