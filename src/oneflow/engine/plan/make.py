"""Makes the plan of a traced job: compiles it for every device, measures one rank of each kind, and writes down what
was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from oneflow.engine.assignment.distribute import Assigned, CompileTarget, declared_feeds, distribute_job
from oneflow.engine.assignment.storage import RankOfDevice, state_layouts, update_layout, variable_layouts
from oneflow.engine.capture.joint import Like
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.region import local_shape
from oneflow.engine.ir.graph import Graph, VariableDecl
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trained import state_decls
from oneflow.engine.job.settings import Settings
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.lowering.readers import shares_of
from oneflow.engine.plan.alike import alike
from oneflow.engine.plan.held import Held, Memory
from oneflow.engine.plan.listing import Listing, devices_text
from oneflow.engine.plan.measure import Calls, Measured, measure
from oneflow.engine.plan.notes import notes_of, notes_of_job
from oneflow.engine.plan.report import Plan, ranks_text
from oneflow.engine.plan.values import PlanVariable, RankCost, Traffic
from oneflow.engine.program.notes import joint_note, layout_of, val
from oneflow.engine.program.program import Key
from oneflow.engine.sharding.mesh import Layout, whole_on

_DEVICE = torch.device("cpu")  # shapes are the same on any; a plan needs none


def make_plan(graph: Graph, settings: Settings, placement: Placement) -> Plan:
    """The plan of a traced job on ``placement``, in place of the placement it was traced for.

    Ops under ``flow.scope.placement`` stay where it says; a note tells so. The batch stays as declared.
    """
    placed = _placed(graph, placement)
    ranks = _ranks(graph, placed, placement)
    for source, nodes in placed.sources:
        shares_of(placed, source, nodes, ranks)  # raises what the run would
    assigned, stored = _distributed(placed, ranks, settings)
    where = _Where(_device_type(placed, placement), ranks, placement)
    notes = (*notes_of_job(graph, placement), *notes_of(assigned, len(ranks)))
    return _written_down(assigned, stored, where, settings.micro_batches, settings.is_train, notes)


def make_step_plan(assigned: Assigned, trained: Sequence[str], ranks: RankOfDevice, placement: Placement) -> Plan:
    """The plan of a step that is spread over ranks; ``placement`` is that of its first ops."""
    decl = assigned.decl
    stored = {name: _Stored(variable, assigned.layouts[name]) for name, variable in decl.decls.items()}
    stored.update(_states(assigned, trained))
    count = 1 if decl.training is None else decl.training.micro_batches
    where = _Where(placement.device_type, ranks, placement)
    return _written_down(assigned, stored, where, count, decl.training is not None, notes_of(assigned, len(ranks)))


@dataclass(frozen=True)
class _Where:
    """What a plan is made for."""

    device_type: str
    ranks: RankOfDevice
    placement: Placement


def _written_down(
    assigned: Assigned,
    stored: dict[str, _Stored],
    where: _Where,
    micro_batches: int,
    is_train: bool,
    notes: tuple[str, ...],
) -> Plan:
    rows = _measured(assigned, stored, micro_batches)
    listing = Listing(assigned, where.device_type, {rank: device for device, rank in where.ranks.items()}, rows)
    return Plan(
        job=assigned.decl.job,
        kind="train" if is_train else "predict",
        device_type=where.device_type,
        devices=len(where.ranks),
        axes=_axes(assigned, where.placement, len(where.ranks)),
        micro_batches=micro_batches,
        ranks=_costs(assigned, stored, rows),
        ops=listing.ops(),
        notes=notes,
        variables=_variables(stored, listing),
        stages=len(assigned.stages or [0]),
    )


# ------------------------------------------------------------------ compiling


def _placed(graph: Graph, placement: Placement) -> Graph:
    """The graph with ``placement`` as its default one."""
    copy = graph.copy()
    for node in copy.body.nodes:
        if op_note(node).placement is graph.placement:  # one and the same object where no scope was open
            change_op_note(node, placement=placement)
    return replace(copy, placement=placement)


def _ranks(graph: Graph, placed: Graph, placement: Placement) -> RankOfDevice:
    """A rank for every device, in their order. Scopes may name more devices than the job's own placement has, not than
    were asked for."""
    devices = {device for node in placed.body.nodes for device in op_note(node).placement.devices}
    asked = set(placement.devices)
    outside = devices - asked
    if outside and placement != graph.placement:
        line, where = next(
            (op_note(n).line, op_note(n).placement)
            for n in placed.body.nodes
            if outside & set(op_note(n).placement.devices)
        )
        raise ArgumentError(
            f"{line}: job {graph.job!r} is to be planned for {devices_text(placement.device_type, placement.devices)}, "
            f"and this op is placed "
            f"on {devices_text(where.device_type, where.devices)} by a flow.scope.placement; plan for more devices, or "
            f"without devices="
        )
    return {device: rank for rank, device in enumerate(sorted(asked | devices))}


def _device_type(graph: Graph, placement: Placement) -> str:
    """As workers are started: all of them for GPUs if an op asks for one."""
    asked = {op_note(node).placement.device_type for node in graph.body.nodes if node.op == "call_function"} or {
        placement.device_type
    }
    return "gpu" if "gpu" in asked else "cpu"


@dataclass(frozen=True)
class _Stored:
    """A variable, or state of the training, and how it lies."""

    decl: VariableDecl
    layout: Layout

    def shape(self, rank: int) -> tuple[int, ...] | None:
        """The shape of a rank's part; None where it has none."""
        position = self.layout.mesh.position(rank)
        return (
            None
            if position is None
            else local_shape(self.decl.spec.shape, self.layout.sbp, self.layout.mesh.axes, position)
        )

    def bytes(self, rank: int) -> int:
        shape = self.shape(rank)
        return 0 if shape is None else prod(shape) * self.decl.spec.dtype.torch.itemsize


def _distributed(graph: Graph, ranks: RankOfDevice, settings: Settings) -> tuple[Assigned, dict[str, _Stored]]:
    layouts = variable_layouts(graph, ranks)
    target = CompileTarget(ranks, layouts, declared_feeds(graph, _DEVICE), _DEVICE, settings.mixed_precision)
    assigned = distribute_job(graph, target)
    stored = {name: _Stored(graph.decls[name], assigned.layouts[name]) for name in graph.variables}
    if graph.training is not None:
        of_states = state_layouts(graph, graph.training.optimizer, assigned.layouts)
        stored.update({d.name: _Stored(d, of_states[d.name]) for d in state_decls(graph, graph.training.optimizer)})
    return assigned, stored


def _states(assigned: Assigned, trained: Sequence[str]) -> dict[str, _Stored]:
    """What the optimizers keep of trained variables. State of a shape of its own is whole."""
    found = {}
    for name in trained:
        training, decl = assigned.decl.require_training(), assigned.decl.decls[name]
        owner = training.optimizer.owner(name)
        layout = update_layout(training, decl.spec, assigned.layouts[name])
        for state, made in zip(owner.row.states, owner.state_decls(decl)):
            found[made.name] = _Stored(made, layout if state.shape is None else whole_on(layout.mesh))
    return found


def _axes(assigned: Assigned, placement: Placement, count: int) -> tuple[int, ...]:
    """Of the placement; where scopes name more devices, of the one that names them all."""
    stages = assigned.stages or []
    piped = [(len(stages), *mesh.axes) for mesh in stages[:1] if all(other.axes == mesh.axes for other in stages)]
    axes = [*piped, placement.axes, *(mesh.axes for mesh in assigned.meshes)]
    return next((found for found in axes if prod(found) == count), (count,))


# ------------------------------------------------------------------ measuring


def _measured(
    assigned: Assigned, stored: Mapping[str, _Stored], micro_batches: int
) -> list[tuple[list[int], Measured]]:
    """Every class of ranks that are alike, with the costs of its first."""
    calls = Calls(_DEVICE)
    return [
        (
            members,
            measure(lower_job(assigned, members[0]), _arguments(assigned, stored, members[0]), calls, micro_batches),
        )
        for members in alike(assigned)
    ]


def _arguments(assigned: Assigned, stored: Mapping[str, _Stored], rank: int) -> dict[Key, Any]:
    """What a step of a rank is given, without data: its parts of variables and feeds; the numbers that all have."""
    found: dict[Key, Any] = {("unscale",): 1.0, **{("rate", i): 1.0 for i in range(len(assigned.rates()))}}
    for name, variable in stored.items():
        shape = variable.shape(rank)
        if shape is not None:
            found["variable", name] = _held(
                Like(shape, variable.decl.spec.dtype.torch, torch.device("meta"), variable.decl.channels_last)
            )
    for key, node in assigned.arguments.items():
        layout, value = layout_of(node), val(node)
        position = layout.mesh.position(rank)
        if key[0] != "variable" and (position is not None or joint_note(node).everywhere):
            shape = (
                tuple(value.shape)
                if position is None
                else local_shape(value.shape, layout.sbp, layout.mesh.axes, position)
            )
            found[key] = _held(Like(shape, value.dtype, torch.device("meta")))
    return found


def _held(like: Like) -> Held:
    return Held(like.shape, like.empty().stride(), like.dtype, Memory(prod(like.shape) * like.dtype.itemsize))


# ------------------------------------------------------------------ writing down


def _costs(
    assigned: Assigned, stored: Mapping[str, _Stored], rows: list[tuple[list[int], Measured]]
) -> tuple[RankCost, ...]:
    """A row for all ranks that cost the same, by their first. Their peak is the highest: those that hand results back
    hold a little more."""
    together: dict[Any, list[int]] = {}
    peaks: Counter[Any] = Counter()
    for members, measured in rows:
        variables = sum(variable.bytes(members[0]) for variable in stored.values())
        traffic = tuple(sorted(_traffic(measured).items()))
        states = sum(variable.bytes(members[0]) for name, variable in stored.items() if name not in assigned.decl.decls)
        key = measured.flops, traffic, variables, _stage(assigned, members[0]), states
        together.setdefault(key, []).extend(members)
        peaks[key] = max(peaks[key], measured.peak)
    return tuple(
        RankCost(ranks_text(ranks), len(ranks), key[0], dict(key[1]), peaks[key], *key[2:])
        for key, ranks in sorted(together.items(), key=lambda item: min(item[1]))
    )


def _traffic(measured: Measured) -> dict[str, Traffic]:
    calls: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for sent in measured.sent:
        if sent.exchange.calls:
            calls[sent.exchange.kind] += sent.exchange.calls * sent.times
            sizes[sent.exchange.kind] += sent.exchange.bytes * sent.times
    return {kind: Traffic(calls[kind], sizes[kind]) for kind in calls}


def _stage(assigned: Assigned, rank: int) -> int | None:
    stages = assigned.stages or []
    return next((number for number, mesh in enumerate(stages) if rank in mesh.ranks), None)


def _variables(stored: Mapping[str, _Stored], listing: Listing) -> tuple[PlanVariable, ...]:
    return tuple(
        PlanVariable(
            name,
            variable.decl.spec.shape,
            variable.decl.spec.dtype.name,
            tuple(map(str, variable.layout.sbp)),
            listing.where(variable.layout.mesh),
            variable.bytes(variable.layout.mesh.ranks[0]),
        )
        for name, variable in stored.items()
    )
