"""From a traced job to what all its ranks share: a joint graph in which every node has a mesh and a layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from oneflow.compiler.cleanup import clean, drop_layouts, without_writes
from oneflow.compiler.infer import infer, layout_of
from oneflow.compiler.joint import Joint, Like, Outputs, build_joint
from oneflow.compiler.mesh import Layout, Mesh, mesh_of
from oneflow.compiler.mirror import mirror, mirrored_mesh, require_whole
from oneflow.compiler.pipeline import custom_rates, feed_nodes, joint_request
from oneflow.compiler.place import place, stages_of
from oneflow.compiler.rewrite import rewritten
from oneflow.compiler.storage import Ranks, update_layout
from oneflow.compiler.update import Group, groups_of
from oneflow.core.errors import UnsupportedError
from oneflow.core.sbp import BROADCAST, split
from oneflow.ir.graph import Graph

Key = tuple[Any, ...]
"""What a value of a program is known by: ("variable", name), ("feed", number), ("step",), ("scale",), ("unscale",), ("rate", number), ("value", number)."""


@dataclass(frozen=True)
class Surroundings:
    """What a job is compiled for: the rank of every device, the layouts of the variables, the shapes of one micro-batch, device type and precision."""

    ranks: Ranks
    layouts: Mapping[str, Layout]
    feeds: list[Like]
    device: torch.device
    mixed_precision: bool = False


@dataclass(frozen=True)
class Assigned:
    """What all ranks of a job share. ``layouts`` are those of the variables, with the compiler's own choices in place of AUTO."""

    logical: Graph
    graph: fx.Graph
    arguments: dict[Key, fx.Node]
    outputs: Outputs
    layouts: dict[str, Layout]
    groups: list[Group]
    custom_rates: dict[int, fx.Node]
    stages: list[Mesh] | None
    device: torch.device

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that has a part in the job."""
        meshes = {node.meta["mesh"] for node in self.graph.nodes}
        return tuple(sorted({rank for mesh in meshes for rank in mesh.ranks}))


def distribute_job(graph: Graph, around: Surroundings) -> Assigned:
    """Places every node, chooses every layout; of a mirrored job every device gets a copy."""
    graph = rewritten(graph)
    joint = build_joint(joint_request(graph, _tensors(graph, around), around.device, around.mixed_precision))
    if graph.is_mirrored:
        drop_layouts(joint.graph)
    clean(joint.graph)
    without_writes(joint.graph)
    outputs = joint.outputs()
    joint.graph.erase_node(joint.output_node())
    arguments = _arguments(graph, joint)
    if graph.is_mirrored:
        mesh = mirrored_mesh(graph, around.ranks)
        require_whole(graph, around.layouts, mesh)
        outputs = mirror(joint.graph, arguments.get(("step",)), outputs, mesh)
    else:
        _place(graph, joint, arguments, around)
        count = graph.training.micro_batches if graph.training is not None else 1
        infer(joint.graph, _given(graph, arguments, around), _wanted(graph, outputs, around), count)
    layouts = {**around.layouts, **{name: layout_of(arguments["variable", name]) for name in graph.variables}}
    groups = groups_of(graph, graph.training.optimizer, list(joint.trained)) if graph.training is not None else []
    rates = dict(zip(custom_rates(graph), outputs.rates))
    return Assigned(graph, joint.graph, arguments, outputs, layouts, groups, rates, stages_of(joint.graph), around.device)


def declared_feeds(graph: Graph, device: torch.device) -> list[Like]:
    """What one micro-batch looks like, as declared."""
    specs = [node.meta["spec"] for node in feed_nodes(graph)]
    return [Like(spec.shape, spec.dtype.torch, device) for spec in specs]


def _tensors(graph: Graph, around: Surroundings) -> dict[fx.Node, torch.Tensor | Like]:
    tensors: dict[fx.Node, torch.Tensor | Like] = {}
    for name, node in graph.variables.items():
        decl = graph.decls[name]
        tensors[node] = Like(decl.spec.shape, decl.spec.dtype.torch, around.device, decl.channels_last)
    tensors.update(zip(feed_nodes(graph), around.feeds))
    if graph.step is not None:
        tensors[graph.step] = Like((1,), torch.int64, around.device)
    return tensors


def _arguments(graph: Graph, joint: Joint) -> dict[Key, fx.Node]:
    found: dict[Key, fx.Node] = {("variable", name): joint.inputs[node] for name, node in graph.variables.items()}
    for node in found.values():
        node.meta["stored"] = True
    for number, node in enumerate(feed_nodes(graph)):
        found["feed", number] = joint.inputs[node]
    everywhere = {("step",): joint.inputs[graph.step] if graph.step is not None else None, ("scale",): joint.loss_seed}
    for key, argument in everywhere.items():
        if argument is not None:
            argument.meta["everywhere"] = True
            found[key] = argument
    for node in found.values():
        node.meta["part"] = "forward"
    return found


def _place(graph: Graph, joint: Joint, arguments: dict[Key, fx.Node], around: Surroundings) -> None:
    fixed = {arguments["variable", name]: around.layouts[name] for name in graph.variables}
    assert graph.placement is not None
    meshes = cache(lambda placement: mesh_of(placement, around.ranks))
    place(joint.graph, lambda origin: meshes(origin.meta["placement"]), fixed, meshes(graph.placement))


def _given(graph: Graph, arguments: dict[Key, fx.Node], around: Surroundings) -> dict[fx.Node, tuple[Any, ...]]:
    """The layouts of arguments: variables as they are kept, batches split, the rest whole."""
    given: dict[fx.Node, tuple[Any, ...]] = {}
    for key, node in arguments.items():
        axes = node.meta["mesh"].axes
        given[node] = (BROADCAST,) * len(axes)
        if key[0] == "variable":
            given[node] = around.layouts[key[1]].sbp
        elif key[0] == "feed":
            batch = feed_nodes(graph)[key[1]].meta.get("batch_axis", 0)
            if batch is not None and node.meta["val"].shape[batch] >= node.meta["mesh"].size:
                given[node] = (split(batch),) * len(axes)
    return given


def _wanted(graph: Graph, outputs: Outputs, around: Surroundings) -> list[tuple[fx.Node, Layout]]:
    """What values must be in the end: gradients as their variables are updated. One whose variable's layout is still open follows it."""
    wanted = []
    for name, node in outputs.gradients.items():
        layout = update_layout(graph.require_training(), graph.decls[name].spec, around.layouts[name])
        if any(sbp.kind == "auto" for sbp in layout.sbp):
            continue
        if name in graph.require_training().row_wise and any(sbp.kind == "S" and sbp.dim != 0 for sbp in layout.sbp):
            raise UnsupportedError(f"variable {name!r} is updated by rows and cannot lie as {layout}; split it along dim 0")
        wanted.append((node, layout))
    return wanted
