"""Auto parallel of graphs: plain modules become global ones, and what the search may choose is told to the compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from oneflow.engine.assignment.auto import AutoParallel, meshes_of
from oneflow.engine.core.sbp import BROADCAST
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.graph.config import USUAL_RATIO, USUAL_WAIT
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.in_place import make_global, without_weak_references
from oneflow.engine.graph.variables import variables_of
from oneflow.engine.sharding.cost import Prices
from oneflow.engine.sharding.mesh import Layout, Mesh
from oneflow.engine.world import join


def spread_modules(graph: Definition) -> None:
    """Has the parameters and buffers of a graph that asks for auto parallel be global tensors, whole on all ranks of
    the world, if they are local; rank 0's values count. The same objects: whoever holds them, such as optimizers, holds
    global tensors from now on. Alone there is nothing to do, and stages have brought theirs to their placements."""
    if (
        not graph.config.auto_parallel
        or join().size == 1
        or any(settings.is_stage for settings in graph.settings.values())
    ):
        return
    local = [tensor for tensor in variables_of(graph.modules).values() if not isinstance(tensor, GlobalTensor)]
    graph.is_spread = graph.is_spread or bool(local)
    with without_weak_references(each for module in graph.modules.values() for each in module.modules()):
        for tensor in local:
            make_global(tensor, placement.all(tensor.device.type))


def auto_parallel(
    graph: Definition, layouts: Mapping[str, Layout], tensors: Mapping[str, Tensor], inputs: Sequence[Tensor]
) -> AutoParallel | None:
    """What the search may choose for a step whose variables lie so; None where it is not asked. Layouts that the graph
    has chosen once stay."""
    config = graph.config
    if not config.auto_parallel:
        return None
    parameters = [name for name, tensor in tensors.items() if isinstance(tensor, nn.Parameter)]
    may_choose = not graph.has_laid and (graph.is_spread or bool(graph.added))
    free = frozenset(
        name for name in parameters if config.ignores_user_sbp or all(sbp is BROADCAST for sbp in layouts[name].sbp)
    )
    meshes = {layout.mesh for layout in layouts.values()}
    all_open = may_choose and graph.is_spread and len(meshes) == 1 and free.issuperset(parameters)
    is_open = all_open and not any(isinstance(tensor, GlobalTensor) for tensor in inputs)
    return searched(graph, free if may_choose else frozenset(), meshes_of(next(iter(meshes)).ranks) if is_open else ())


def searched(graph: Definition, free: frozenset[str], meshes: tuple[Mesh, ...]) -> AutoParallel:
    """A search for the layouts of these variables, on one of these meshes, as the settings of a graph say."""
    config = graph.config
    prices = Prices(config.computation_cost_ratio / USUAL_RATIO, config.wait_time / USUAL_WAIT)
    return AutoParallel(free, meshes, config.auto_parallel_memory_limit, prices, config.ignores_user_sbp)


def told_inputs(inputs: Sequence[Tensor]) -> Iterator[str]:
    """Local inputs of a graph on ranks, of which each rank gives all: ranks compare them before the first step."""
    for number, tensor in enumerate(inputs):
        if not isinstance(tensor, GlobalTensor):
            values = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]
            yield f"input {number}, a local tensor that is the same on every rank (else make it global with to_global): digest {digest}"
