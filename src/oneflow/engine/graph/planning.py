"""Plans of graphs: on the ranks of their global tensors, or of a graph of local ones on devices that are asked for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import torch
from torch import nn

from oneflow.engine.assignment.auto import meshes_of
from oneflow.engine.assignment.distribute import Assigned, Spread, distribute
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.placement import Placement
from oneflow.engine.graph.auto import searched
from oneflow.engine.graph.compiled import Captured, capture
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.on_ranks import devices_of
from oneflow.engine.graph.sources import Sources
from oneflow.engine.graph.structure import Call
from oneflow.engine.plan.make import make_step_plan
from oneflow.engine.plan.report import Plan
from oneflow.engine.sharding.mesh import Layout, mesh_of, whole_on


def planned(graph: Definition, call: Call, asked: Placement | None) -> Plan:
    """The plan of a step of these arguments."""
    with (
        closing(Sources()) as sources,
        torch.device("cpu"),
    ):  # what build() makes is computed where the rest is, in a planned world too
        captured = capture(graph, call, sources)
    if captured.on is not None:
        if asked is not None:
            raise ArgumentError(
                f"{graph.name} is a graph of global tensors and is planned on their placements; plan it without "
                f"devices= and placement="
            )
        places = [devices_of(place) for place in captured.on.places]
        every = sorted({device for place in places for device in place.devices})
        return make_step_plan(
            captured.assigned(), captured.traced.joint.trained, {device: device[1] for device in every}, places[0]
        )
    placement = asked or Placement("gpu" if captured.device.type == "cuda" else "cpu", ((0, 0),))
    ranks = {device: rank for rank, device in enumerate(placement.devices)}
    return make_step_plan(_spread(graph, captured, placement, ranks), captured.traced.joint.trained, ranks, placement)


def _spread(graph: Definition, captured: Captured, placement: Placement, ranks: dict[tuple[int, int], int]) -> Assigned:
    """A graph of local tensors on devices: each has all variables, or of those that ZeRO shares out a part, and a part
    of the batch; or what auto parallel finds."""
    mesh = mesh_of(placement, ranks)
    layouts: dict[str, Layout] = dict.fromkeys(captured.decl.decls, whole_on(mesh))
    training = captured.decl.training
    if training is not None and training.splits_variables:
        layouts |= {
            name: update_layout(training, captured.decl.decls[name].spec, layouts[name])
            for name in captured.traced.joint.trained
        }
    auto = None
    if graph.config.auto_parallel and mesh.size > 1:
        parameters = [name for name, tensor in captured.tensors.items() if isinstance(tensor, nn.Parameter)]
        free = frozenset(name for name in parameters if layouts[name] == whole_on(mesh))
        is_open = len(mesh.axes) == 1 and free.issuperset(parameters)
        auto = searched(graph, free, meshes_of(mesh.ranks) if is_open else ())
    return distribute(
        replace(captured.decl, placement=placement),
        captured.traced.joint,
        Spread(ranks, layouts, torch.device("cpu"), auto=auto),
    )
