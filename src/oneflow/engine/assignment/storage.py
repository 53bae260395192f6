"""Where variables are kept, and how: known from the job before it is compiled.

With split optimizer state that is ZeRO stage 1; variables that are declared split are ZeRO stage 3, or FSDP.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from torch import fx

from oneflow.engine.core.sbp import BROADCAST, Sbp, split
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trained import owners
from oneflow.engine.program.step_decl import StepDecl
from oneflow.engine.sharding.mesh import Layout, Mesh, mesh_of, whole_on
from oneflow.optimizer.optimizers import Optimizer
from oneflow.optimizer.training import Training

RankOfDevice = Mapping[tuple[int, int], int]


def variable_layouts(graph: Graph, ranks: RankOfDevice) -> dict[str, Layout]:
    """The layout of each variable of a job: on the mesh where it is first used, as it was declared. AUTO stands where
    the compiler may choose."""
    meshes = cache(lambda placement: mesh_of(placement, ranks))
    users = _first_users(graph)
    return {
        name: _declared(graph.decls[name].distribute, meshes(op_note(users.get(node, node)).placement))
        for name, node in graph.variables.items()
    }


def _first_users(graph: Graph) -> dict[fx.Node, fx.Node]:
    found: dict[fx.Node, fx.Node] = {}
    for user in graph.body.nodes:
        for node in user.all_input_nodes:
            found.setdefault(node, user)
    return found


def _declared(distribute: tuple[Sbp, ...], mesh: Mesh) -> Layout:
    """A declaration for another number of axes than the mesh has is read from its last axis: the others hold it
    whole."""
    kept = distribute[-len(mesh.axes) :]
    return Layout(mesh, (BROADCAST,) * (len(mesh.axes) - len(kept)) + kept)


def update_layout(training: Training, spec: TensorSpec, layout: Layout) -> Layout:
    """How a variable's gradient and state lie while it is updated: as the variable does, or with states shared out,
    split along dim 0."""
    threshold = training.split_states_from
    first = next((axis for axis, sbp in enumerate(layout.sbp) if sbp is BROADCAST and layout.mesh.axes[axis] > 1), None)
    is_split = any(sbp.dim == 0 for sbp in layout.sbp)
    if (
        threshold is None
        or first is None
        or is_split
        or spec.elements < threshold
        or spec.shape[0] < layout.mesh.axes[first]
    ):
        return layout
    return Layout(layout.mesh, tuple(split(0) if axis == first else sbp for axis, sbp in enumerate(layout.sbp)))


def splits_of(step: StepDecl, name: str) -> frozenset[int] | None:
    """The dims along which the compiler may choose to split a variable (None: any): as its update allows."""
    training = step.training
    if training is None or not training.optimizer.selects(name):
        return None
    if not training.optimizer.owner(name).row.may_be_split:
        return frozenset()
    return frozenset([0]) if name in training.row_wise else None


def state_layouts(graph: Graph, optimizer: Optimizer, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The layouts of the optimizer state of a job's trained variables. State of a shape of its own is whole."""
    found = {}
    for decl, owner in owners(graph, optimizer):
        layout = update_layout(graph.require_training(), decl.spec, layouts[decl.name])
        for state, made in zip(owner.row.states, owner.state_decls(decl)):
            found[made.name] = layout if state.shape is None else whole_on(layout.mesh)
    return found


def stored_layouts(graph: Graph, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The layouts of a job's variables, with those of the state that its training keeps."""
    of_states = state_layouts(graph, graph.training.optimizer, layouts) if graph.training is not None else {}
    return {**layouts, **of_states}
