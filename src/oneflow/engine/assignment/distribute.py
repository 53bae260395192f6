"""From a traced job to what all its ranks share: a joint graph in which every node has a mesh and a layout (sharding
propagation)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.assignment.place import place, stages_of, whole_on_one_rank
from oneflow.engine.assignment.storage import RankOfDevice, splits_of, update_layout
from oneflow.engine.assignment.update_groups import UpdateGroup, groups_of
from oneflow.engine.capture.cleanup import clean, drop_layouts
from oneflow.engine.capture.functionalize import without_writes
from oneflow.engine.capture.job_joint import build_joint
from oneflow.engine.capture.joint import Joint, Like, Outputs
from oneflow.engine.capture.joint_options import custom_rates, joint_options, rate_blob
from oneflow.engine.capture.recompute import recompute
from oneflow.engine.capture.rewrite import rewritten
from oneflow.engine.capture.strides import free_strides
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.region import span
from oneflow.engine.core.sbp import AUTO, BROADCAST, Sbp, split
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.program.large_products import is_large_product
from oneflow.engine.program.notes import JointNote, change_joint_note, joint_note, layout_of, set_joint_note, val
from oneflow.engine.program.program import After, Key, nothing_after
from oneflow.engine.program.step_decl import StepDecl, decl_of_job
from oneflow.engine.sharding.call import nbytes
from oneflow.engine.sharding.mesh import Layout, Mesh, mesh_of, whole_on

FORCED_SPLITS = "ONEFLOW_TEST_SHARDING_SEED"
"""For tests: a seed that chooses a legal signature of every node instead of the cheapest. Ranks that compile for
themselves compare the signatures before the first step, so they must have the same seed."""

if TYPE_CHECKING:
    from oneflow.engine.assignment.auto import AutoParallel, Candidate, Chosen, Tried
    from oneflow.engine.assignment.infer import Estimate, Given, Search, Wanted


@dataclass(frozen=True)
class CompileTarget:
    """What a job is compiled for: the rank of every device, the layouts of the variables, the shapes of one
    micro-batch, device type, precision, and its own fusion setting if it has one."""

    ranks: RankOfDevice
    layouts: Mapping[str, Layout]
    feeds: list[Like]
    device: torch.device
    mixed_precision: bool = False
    fusion: str | None = None


@dataclass(frozen=True)
class Assigned:
    """What all ranks of a step share. ``layouts`` are those of the variables, with the compiler's own choices in place
    of AUTO. A step ``is_alone`` in a world of one rank. ``auto`` is what a search for all layouts has chosen, if there
    was one."""

    decl: StepDecl
    graph: fx.Graph
    arguments: dict[Key, fx.Node]
    outputs: Outputs
    layouts: dict[str, Layout]
    groups: list[UpdateGroup]
    custom_rates: dict[str, fx.Node]
    stages: list[Mesh] | None
    device: torch.device
    is_alone: bool
    auto: Chosen | None = None

    @cached_property
    def meshes(self) -> list[Mesh]:
        """Every mesh that a node runs on, in the order of the graph."""
        return list(dict.fromkeys(joint_note(node).placed for node in self.graph.nodes))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that has a part in the job."""
        return tuple(sorted({rank for mesh in self.meshes for rank in mesh.ranks}))

    def rates(self) -> list[Callable[[int], float]]:
        """The learning rates that a step is told, and the numbers of updates, each a function of its number."""
        found: list[Callable[[int], float]] = []
        for group in self.groups:
            found += [group.rate] if rate_blob(group.optimizer) not in self.custom_rates else []
            found += [group.optimizer.count] if group.takes_count else []
        return found


def distribute_job(graph: Graph, target: CompileTarget, after: After = nothing_after) -> Assigned:
    """A traced job as its ranks share it; of a mirrored job every device gets a copy.

    Relies on a graph as a trace leaves it, which is not changed. Leaves what ``distribute`` does.
    """
    graph = rewritten(graph)
    mirrored = _mirrored(graph, target.ranks)
    options = joint_options(graph, _tensors(graph, target), target.device, target.mixed_precision)
    joint = build_joint(replace(options, copies=1 if mirrored is None else mirrored.size))
    over = Spread(target.ranks, target.layouts, target.device, mirrored, holds_once=_may_hold_once(target))
    return distribute(replace(decl_of_job(graph), fusion=target.fusion), joint, over, custom_rates(graph), after)


@dataclass(frozen=True)
class Spread:
    """What a step is spread over: the rank of every device, the layouts of its variables, the type of the devices.
    ``mirrored``: each device of that mesh runs a copy of its own. ``auto``: what of the layouts is to be found;
    ``uses``: what is being tried for it. ``holds_once``: its ranks can hold variables once among them, and each update
    some rows."""

    ranks: RankOfDevice
    layouts: Mapping[str, Layout]
    device: torch.device
    mirrored: Mesh | None = None
    auto: AutoParallel | None = None
    uses: Candidate | None = None
    holds_once: bool = False


def _may_hold_once(target: CompileTarget) -> bool:
    """Whether the ranks of a job are processes of one host, and no more than share its memory."""
    return (
        target.device.type == "cpu"
        and len({machine for machine, _ in target.ranks}) == 1
        and len(target.ranks) <= collective.MOST_RANKS
    )


def distribute(
    decl: StepDecl, joint: Joint, over: Spread, rates: Iterable[str] = (), after: After = nothing_after
) -> Assigned:
    """Places every node and chooses every layout. ``rates`` are the names of blobs that are learning rates.

    Relies on a joint graph as a trace leaves it, which becomes the assignment's. Leaves a clean one in which every node
    has a mesh and a layout.
    """
    after("joint", joint.graph)
    is_alone = len(over.ranks) == 1
    if decl.is_mirrored or is_alone:
        drop_layouts(joint.graph)
    clean(joint.graph)
    after("clean", joint.graph)
    if is_alone:
        free_strides(joint.graph)
        after("free strides", joint.graph)
    else:
        without_writes(joint.graph)
        after("without writes", joint.graph)
    recompute(joint.graph)
    after("recompute", joint.graph)
    outputs = joint.outputs()
    joint.graph.erase_node(joint.output_node())
    _note_arguments(joint.arguments)
    auto: Chosen | None = None
    if is_alone:
        whole_on_one_rank(joint.graph, Mesh(tuple(over.ranks.values()), (1,)))
    elif over.mirrored is not None:
        outputs = _mirror(decl, joint, outputs, over.layouts, over.mirrored)
    elif over.auto is not None:
        auto = _search(decl, joint, outputs, over, over.auto)
    else:
        _place(decl, joint, over)
        _infer(decl, joint, outputs, over)
    layouts = {**over.layouts, **{name: layout_of(joint.arguments["variable", name]) for name in decl.decls}}
    groups = groups_of(decl, decl.training.optimizer, list(joint.trained)) if decl.training is not None else []
    of_blobs = dict(zip(rates, outputs.rates))
    assigned = Assigned(
        decl,
        joint.graph,
        joint.arguments,
        outputs,
        layouts,
        groups,
        of_blobs,
        stages_of(joint.graph),
        over.device,
        is_alone,
        auto,
    )
    after("assigned", assigned)
    return assigned


def feeds_like(
    graph: Graph, inputs: Sequence[torch.Tensor], device: torch.device, share: int = 0, shares: int = 1
) -> list[Like]:
    """What one micro-batch of these inputs looks like, together with what readers give: one of so many ``shares`` of
    their batch."""
    feeds = [Like(tuple(tensor.shape), tensor.dtype, device) for tensor in inputs]
    for node in graph.feeds()[len(feeds) :]:
        spec = op_note(node).spec
        start, stop = span(spec.shape[0], shares, share)
        feeds.append(Like((stop - start, *spec.shape[1:]), spec.dtype.torch, device))
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


def _note_arguments(arguments: Mapping[Key, fx.Node]) -> None:
    for key, node in arguments.items():
        if key[0] == "variable":
            change_joint_note(node, is_stored=True)
        elif key[0] != "feed":
            change_joint_note(node, everywhere=True)


def _place(decl: StepDecl, joint: Joint, over: Spread) -> None:
    fixed = {joint.arguments["variable", name]: over.layouts[name] for name in decl.decls}
    fixed |= {joint.arguments["feed", i]: feed.layout for i, feed in enumerate(decl.feeds) if feed.layout is not None}
    assert decl.placement is not None
    default = mesh_of(decl.placement, over.ranks)
    meshes = cache(lambda placement: default if placement is None else mesh_of(placement, over.ranks))
    several = any(layout.mesh != default for layout in fixed.values())
    place(
        joint.graph,
        lambda origin: None if several and origin.placement is None else meshes(origin.placement),
        fixed,
        default,
    )


# What only several ranks need is loaded where it is used: with it come the rules of every op, which take a while to
# look up.


def _mirrored(graph: Graph, ranks: RankOfDevice) -> Mesh | None:
    """The devices of a mirrored job, where it has several."""
    if not graph.is_mirrored or len(ranks) == 1:
        return None
    from oneflow.engine.assignment.mirror import mirrored_mesh

    return mirrored_mesh(graph, ranks)


def _mirror(decl: StepDecl, joint: Joint, outputs: Outputs, layouts: Mapping[str, Layout], mesh: Mesh) -> Outputs:
    from oneflow.engine.assignment.mirror import mirror, require_whole

    require_whole(decl, layouts, mesh)
    return mirror(joint.graph, joint.arguments.get(("step",)), outputs, mesh)


def _infer(
    decl: StepDecl, joint: Joint, outputs: Outputs, over: Spread, search: Search | None = None
) -> Estimate | None:
    from oneflow.engine.assignment.infer import USUAL, infer

    count = decl.training.micro_batches if decl.training is not None else 1
    forced = os.environ.get(FORCED_SPLITS)
    search = replace(
        search or replace(USUAL, seed=None if forced is None else int(forced)),
        shared=frozenset(_shared_products(decl, outputs)) if over.holds_once else frozenset(),
    )
    return infer(
        joint.graph, _given(decl, joint.arguments, over), _wanted(decl, joint.arguments, outputs, over), count, search
    )


def _shared_products(decl: StepDecl, outputs: Outputs) -> Iterator[fx.Node]:
    """The gradients of which ranks make each some rows: large products that an update takes as they are."""
    training = decl.training
    if (
        training is None
        or training.in_two_parts
        or training.loss_scale.initial != 1.0
        or training.split_states_from is not None
    ):
        return
    for name, gradient in outputs.gradients.items():
        optimizer = training.optimizer.owner(name)
        row = optimizer.row
        is_product = gradient.target is torch.ops.aten.mm.default and not gradient.users
        is_taken = row.may_be_by_rows and optimizer.grad_clipping is None and name not in training.row_wise
        if is_product and is_taken and is_large_product(nbytes(val(gradient)), row.linear is not None):
            yield gradient


def _search(decl: StepDecl, joint: Joint, outputs: Outputs, over: Spread, auto: AutoParallel) -> Chosen:
    """Leaves the graph as the best of all candidates has it."""
    from oneflow.engine.assignment.auto import Tried, search
    from oneflow.engine.assignment.infer import Search
    from oneflow.engine.assignment.memory import copies_of, peak_memory

    copies = {node: float(copies_of(decl, key[1])) for key, node in joint.arguments.items() if key[0] == "variable"}

    notes: dict[Candidate, dict[fx.Node, JointNote]] = {}

    def attempt(candidate: Candidate, limit: float) -> Tried | None:
        own_decl, own = _as_tried(decl, over, auto, candidate)
        _place(own_decl, joint, own)
        free = frozenset(axis for axis, use in enumerate(candidate.uses) if use == "free")
        prices = replace(auto.prices, held=candidate.held)
        estimate = _infer(own_decl, joint, outputs, own, Search(prices, free, auto.ignores_hints, copies, limit))
        if estimate is None:
            return None
        notes[candidate] = {node: joint_note(node) for node in joint.graph.nodes}
        return Tried(candidate, estimate, peak_memory(decl, joint.graph, joint.arguments, outputs))

    found = search(decl.job, auto, attempt)
    for node, note in notes[found.best.candidate].items():
        set_joint_note(node, note)
    return found


def _as_tried(decl: StepDecl, over: Spread, auto: AutoParallel, candidate: Candidate) -> tuple[StepDecl, Spread]:
    """A step as a candidate would have it: on its mesh, with its variables open, split or whole as the uses of the axes
    say."""
    layouts = dict(over.layouts)
    if candidate.mesh is not None:
        assert decl.placement is not None
        devices = {rank: device for device, rank in over.ranks.items()}
        decl = replace(
            decl,
            placement=Placement(
                decl.placement.device_type, tuple(devices[rank] for rank in candidate.mesh.ranks), candidate.mesh.axes
            ),
        )
        layouts = dict.fromkeys(layouts, whole_on(candidate.mesh))
    for name in auto.free:
        mesh = layouts[name].mesh
        layouts[name] = Layout(
            mesh, tuple(_used(decl, name, mesh, candidate.use(axis)) for axis in range(len(mesh.axes)))
        )
    return decl, replace(over, layouts=layouts, uses=candidate)


def _used(decl: StepDecl, name: str, mesh: Mesh, use: str) -> Sbp:
    """How a variable lies along an axis of some use."""
    if use in ("tensor", "free"):
        return AUTO
    shape, splits = decl.decls[name].spec.shape, splits_of(decl, name)
    may_split = bool(shape) and shape[0] >= mesh.size and (splits is None or 0 in splits)
    return split(0) if use == "storage" and may_split else BROADCAST


def _given(decl: StepDecl, arguments: Mapping[Key, fx.Node], over: Spread) -> dict[fx.Node, Given]:
    """The layouts of arguments: variables as they are kept, inputs as they come or else as ``_batch`` says, the rest
    whole."""
    from oneflow.engine.assignment.infer import Given

    given: dict[fx.Node, Given] = {}
    for key, node in arguments.items():
        mesh = joint_note(node).placed
        axes = mesh.axes
        given[node] = Given((BROADCAST,) * len(axes))
        if key[0] == "variable":
            given[node] = Given(over.layouts[key[1]].sbp, splits_of(decl, key[1]))
        elif key[0] == "feed":
            batch, layout = decl.feeds[key[1]].batch_axis, decl.feeds[key[1]].layout
            if layout is not None:
                given[node] = Given(layout.sbp)
            else:
                whole = batch is None or val(node).shape[batch] < mesh.size
                given[node] = Given(
                    tuple(
                        _batch(None if whole else batch, "data" if over.uses is None else over.uses.use(axis))
                        for axis in range(len(axes))
                    )
                )
    return given


def _batch(batch: int | None, use: str) -> Sbp:
    """How an input lies along an axis where nobody says: its batch is split, unless the axis is for something else."""
    if use == "free":
        return AUTO
    return BROADCAST if batch is None or use == "tensor" else split(batch)


def _wanted(decl: StepDecl, arguments: Mapping[Key, fx.Node], outputs: Outputs, over: Spread) -> list[Wanted]:
    """What values must be in the end: gradients as their variables are updated. One whose variable's layout is still
    open follows it."""
    from oneflow.engine.assignment.infer import Wanted

    wanted = []
    for name, node in outputs.gradients.items():
        layout = update_layout(decl.require_training(), decl.decls[name].spec, over.layouts[name])
        wanted.append(Wanted(node, layout, arguments["variable", name]))
    return wanted
