"""From a traced job to what all its ranks share: a joint graph in which every node has a mesh and a layout (sharding propagation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import torch
from torch import fx

from oneflow.compiler.append_update import UpdateGroup, groups_of
from oneflow.compiler.cleanup import clean, drop_layouts, without_writes
from oneflow.compiler.joint import Joint, Like, Outputs, build_joint
from oneflow.compiler.joint_options import custom_rates, joint_options
from oneflow.compiler.notes import change_joint_note, joint_note, layout_of, val
from oneflow.compiler.place import place, stages_of, whole_on_one_rank
from oneflow.compiler.program import After, Key, nothing_after
from oneflow.compiler.rewrite import rewritten
from oneflow.compiler.storage import RankOfDevice, splits_of, update_layout
from oneflow.compiler.strides import free_strides
from oneflow.core.errors import UnsupportedError
from oneflow.core.sbp import BROADCAST, split
from oneflow.ir.graph import Graph
from oneflow.ir.notes import op_note
from oneflow.sharding.mesh import Layout, Mesh, mesh_of

if TYPE_CHECKING:
    from oneflow.compiler.infer import Given, Wanted


@dataclass(frozen=True)
class CompileTarget:
    """What a job is compiled for: the rank of every device, the layouts of the variables, the shapes of one micro-batch, device type and
    precision."""

    ranks: RankOfDevice
    layouts: Mapping[str, Layout]
    feeds: list[Like]
    device: torch.device
    mixed_precision: bool = False


@dataclass(frozen=True)
class Assigned:
    """What all ranks of a job share. ``layouts`` are those of the variables, with the compiler's own choices in place of AUTO. A job
    ``is_alone`` in a world of one rank."""

    logical: Graph
    graph: fx.Graph
    arguments: dict[Key, fx.Node]
    outputs: Outputs
    layouts: dict[str, Layout]
    groups: list[UpdateGroup]
    custom_rates: dict[int, fx.Node]
    stages: list[Mesh] | None
    device: torch.device
    is_alone: bool

    @cached_property
    def meshes(self) -> list[Mesh]:
        """Every mesh that a node runs on, in the order of the graph."""
        return list(dict.fromkeys(joint_note(node).placed for node in self.graph.nodes))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that has a part in the job."""
        return tuple(sorted({rank for mesh in self.meshes for rank in mesh.ranks}))

    def rates(self) -> list[Callable[[int], float]]:
        """The learning rates that a step is told, each a function of its number."""
        return [group.rate for group in self.groups if id(group.optimizer) not in self.custom_rates]


def distribute_job(graph: Graph, target: CompileTarget, after: After = nothing_after) -> Assigned:
    """Places every node, chooses every layout; of a mirrored job every device gets a copy.

    Relies on a graph as a trace leaves it, which is not changed. Leaves a clean joint graph in which every node has a mesh and a layout.
    """
    graph = rewritten(graph)
    joint = build_joint(joint_options(graph, _tensors(graph, target), target.device, target.mixed_precision))
    after("joint", joint.graph)
    is_alone = len(target.ranks) == 1
    if graph.is_mirrored or is_alone:
        drop_layouts(joint.graph)
    clean(joint.graph)
    after("clean", joint.graph)
    if is_alone:
        free_strides(joint.graph)
        after("free strides", joint.graph)
    else:
        without_writes(joint.graph)
        after("without writes", joint.graph)
    outputs = joint.outputs()
    joint.graph.erase_node(joint.output_node())
    arguments = _arguments(graph, joint)
    if is_alone:
        whole_on_one_rank(joint.graph, Mesh(tuple(target.ranks.values()), (1,)))
    elif graph.is_mirrored:
        outputs = _mirror(graph, joint, arguments, outputs, target)
    else:
        _place(graph, joint, arguments, target)
        _infer(graph, joint, arguments, outputs, target)
    layouts = {**target.layouts, **{name: layout_of(arguments["variable", name]) for name in graph.variables}}
    groups = groups_of(graph, graph.training.optimizer, list(joint.trained)) if graph.training is not None else []
    rates = dict(zip(custom_rates(graph), outputs.rates))
    assigned = Assigned(graph, joint.graph, arguments, outputs, layouts, groups, rates, stages_of(joint.graph), target.device, is_alone)
    after("assigned", assigned)
    return assigned


def feeds_like(graph: Graph, inputs: Sequence[torch.Tensor], device: torch.device, shares: int = 1) -> list[Like]:
    """What one micro-batch of these inputs looks like, together with what readers give: one of so many ``shares`` of their batch."""
    feeds = [Like(tuple(tensor.shape), tensor.dtype, device) for tensor in inputs]
    for node in graph.feeds()[len(feeds) :]:
        spec = op_note(node).spec
        feeds.append(Like(spec.shape if shares == 1 else (spec.shape[0] // shares, *spec.shape[1:]), spec.dtype.torch, device))
    return feeds


def declared_feeds(graph: Graph, device: torch.device) -> list[Like]:
    """What one micro-batch looks like, as declared."""
    specs = [op_note(node).spec for node in graph.feeds()]
    return [Like(spec.shape, spec.dtype.torch, device) for spec in specs]


def _tensors(graph: Graph, target: CompileTarget) -> dict[fx.Node, torch.Tensor | Like]:
    tensors: dict[fx.Node, torch.Tensor | Like] = {}
    for name, node in graph.variables.items():
        decl = graph.decls[name]
        tensors[node] = Like(decl.spec.shape, decl.spec.dtype.torch, target.device, decl.channels_last)
    tensors.update(zip(graph.feeds(), target.feeds))
    if graph.step is not None:
        tensors[graph.step] = Like((1,), torch.int64, target.device)
    return tensors


def _arguments(graph: Graph, joint: Joint) -> dict[Key, fx.Node]:
    found: dict[Key, fx.Node] = {("variable", name): joint.inputs[node] for name, node in graph.variables.items()}
    for node in found.values():
        change_joint_note(node, is_stored=True)
    for number, node in enumerate(graph.feeds()):
        found["feed", number] = joint.inputs[node]
    everywhere = {("step",): joint.inputs[graph.step] if graph.step is not None else None, ("scale",): joint.loss_seed}
    for key, argument in everywhere.items():
        if argument is not None:
            change_joint_note(argument, everywhere=True)
            found[key] = argument
    return found


def _place(graph: Graph, joint: Joint, arguments: dict[Key, fx.Node], target: CompileTarget) -> None:
    fixed = {arguments["variable", name]: target.layouts[name] for name in graph.variables}
    assert graph.placement is not None
    meshes = cache(lambda placement: mesh_of(placement, target.ranks))
    place(joint.graph, lambda origin: meshes(op_note(origin).placement), fixed, meshes(graph.placement))


# What only several ranks need is loaded where it is used: with it come the rules of every op, which take a while to look up.


def _mirror(graph: Graph, joint: Joint, arguments: dict[Key, fx.Node], outputs: Outputs, target: CompileTarget) -> Outputs:
    from oneflow.compiler.mirror import mirror, mirrored_mesh, require_whole

    mesh = mirrored_mesh(graph, target.ranks)
    require_whole(graph, target.layouts, mesh)
    return mirror(joint.graph, arguments.get(("step",)), outputs, mesh)


def _infer(graph: Graph, joint: Joint, arguments: dict[Key, fx.Node], outputs: Outputs, target: CompileTarget) -> None:
    from oneflow.compiler.infer import infer

    count = graph.training.micro_batches if graph.training is not None else 1
    infer(joint.graph, _given(graph, arguments, target), _wanted(graph, arguments, outputs, target), count)


def _given(graph: Graph, arguments: dict[Key, fx.Node], target: CompileTarget) -> dict[fx.Node, Given]:
    """The layouts of arguments: variables as they are kept, batches split, the rest whole."""
    from oneflow.compiler.infer import Given

    given: dict[fx.Node, Given] = {}
    for key, node in arguments.items():
        mesh = joint_note(node).placed
        axes = mesh.axes
        given[node] = Given((BROADCAST,) * len(axes))
        if key[0] == "variable":
            given[node] = Given(target.layouts[key[1]].sbp, splits_of(graph, key[1]))
        elif key[0] == "feed":
            batch = op_note(graph.feeds()[key[1]]).batch_axis
            if batch is not None and val(node).shape[batch] >= mesh.size:
                given[node] = Given((split(batch),) * len(axes))
    return given


def _wanted(graph: Graph, arguments: dict[Key, fx.Node], outputs: Outputs, target: CompileTarget) -> list[Wanted]:
    """What values must be in the end: gradients as their variables are updated. One whose variable's layout is still open follows it."""
    from oneflow.compiler.infer import Wanted

    wanted = []
    for name, node in outputs.gradients.items():
        layout = update_layout(graph.require_training(), graph.decls[name].spec, target.layouts[name])
        if name in graph.require_training().row_wise and any(sbp.kind == "S" and sbp.dim != 0 for sbp in layout.sbp):
            raise UnsupportedError(f"variable {name!r} is updated by rows and cannot lie as {layout}; split it along dim 0")
        wanted.append(Wanted(node, layout, arguments["variable", name]))
    return wanted
