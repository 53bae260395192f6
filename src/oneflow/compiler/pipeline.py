"""How a traced job becomes a program: the steps in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from oneflow.compiler.cleanup import argument, clean, drop_layouts, writes
from oneflow.compiler.early import update_early
from oneflow.compiler.inplace import write_over
from oneflow.compiler.joint import Joint, Like, Outputs, Request, build_joint
from oneflow.compiler.precision import casting, half_dtype
from oneflow.compiler.prepare import prepared
from oneflow.compiler.program import Program
from oneflow.compiler.rewrite import rewritten
from oneflow.compiler.update import Group, Update, groups_of, state_decls, trained_by
from oneflow.core.errors import ArgumentError, UnsupportedError
from oneflow.ir.graph import Graph
from oneflow.ir.interpret import Adapt
from oneflow.ops import update
from oneflow.optimizer.schedule import CustomScheduler
from oneflow.optimizer.training import Training


@dataclass(frozen=True)
class Target:
    """What a job is compiled for: its variables as they lie in memory, the shapes of its feeds, device and precision.

    ``keeps_values``: a predict job may hold what it made of its variables from one step to the next.
    """

    variables: Mapping[str, torch.Tensor]
    feeds: list[torch.Tensor]
    device: torch.device
    mixed_precision: bool
    keeps_values: bool = True


def compile_job(graph: Graph, target: Target) -> Program:
    """The program of one step of ``graph``."""
    graph = rewritten(graph)
    joint = build_joint(_request(graph, target))
    drop_layouts(joint.graph)
    clean(joint.graph)
    outputs = joint.outputs()
    joint.graph.erase_node(joint.output_node())
    arguments = _arguments(graph, joint)
    if graph.training is None:
        return _predict_program(graph, joint, outputs, arguments, target.keeps_values)
    return _train_program(graph, joint, outputs, arguments)


def feed_nodes(graph: Graph) -> list[fx.Node]:
    """The placeholders that are fed each step: inputs, then sources."""
    return [*graph.inputs, *(node for _, nodes in graph.sources for node in nodes)]


@dataclass(frozen=True)
class _Arguments:
    """The placeholders of a joint graph by what they are: stored variables by name, and what each step brings."""

    stored: dict[str, fx.Node]
    fed: list[fx.Node]

    def ordered(self, rates: list[fx.Node]) -> list[fx.Node]:
        return [*self.stored.values(), *self.fed, *rates]


def _arguments(graph: Graph, joint: Joint) -> _Arguments:
    stored = {name: joint.inputs[node] for name, node in graph.variables.items()}
    if graph.training is not None:
        stored.update({decl.name: _placeholder(joint.graph) for decl in state_decls(graph, graph.training.optimizer)})
    fed = [joint.inputs[node] for node in feed_nodes(graph)]
    if graph.step is not None:
        fed.append(joint.inputs[graph.step])
    if joint.loss_seed is not None:
        fed.append(joint.loss_seed)
    return _Arguments(stored, fed)


def _placeholder(graph: fx.Graph) -> fx.Node:
    with graph.inserting_before(next(iter(graph.nodes))):
        return graph.placeholder("argument")


def _request(graph: Graph, target: Target) -> Request:
    tensors: dict[fx.Node, torch.Tensor | Like] = {node: target.variables[name] for name, node in graph.variables.items()}
    tensors.update(zip(feed_nodes(graph), target.feeds))
    if graph.step is not None:
        tensors[graph.step] = Like((1,), torch.int64, target.device)
    return joint_request(graph, tensors, target.device, target.mixed_precision)


def joint_request(graph: Graph, tensors: Mapping[fx.Node, torch.Tensor | Like], device: torch.device, mixed_precision: bool) -> Request:
    """What joint graph a job wants, given what its placeholders look like."""
    adapt: Adapt = casting(graph, half_dtype(device)) if mixed_precision else lambda node, inputs: inputs
    training: Training | None = graph.training
    if training is None:
        return Request(graph, tensors, device, adapt)
    scale = None if training.loss_scale.is_dynamic else training.loss_scale.initial
    trained = tuple(decl.name for decl in trained_by(graph, training.optimizer))
    rates = tuple(custom_rates(graph).values())
    return Request(graph, tensors, device, adapt, trained, scale, training.micro_batches, rates)


def custom_rates(graph: Graph) -> dict[int, fx.Node]:
    """For each optimizer whose rate is a blob of the job, that blob's node."""
    if graph.training is None:
        return {}
    by_name = {f"{node.meta['name']}/out": node for node in graph.body.nodes}
    found = {}
    for member in graph.training.optimizer.members():
        if isinstance(member.lr_scheduler, CustomScheduler):
            if member.lr_scheduler.lbn not in by_name:
                raise ArgumentError(f"CustomScheduler: job {graph.job!r} has no blob {member.lr_scheduler.lbn!r}")
            found[id(member)] = by_name[member.lr_scheduler.lbn]
    if found and graph.training.in_two_parts:
        raise UnsupportedError("CustomScheduler cannot be used with gradient accumulation or a dynamic loss scale")
    return found


def _predict_program(graph: Graph, joint: Joint, outputs: Outputs, arguments: _Arguments, keeps_values: bool) -> Program:
    joint.graph.output(_returned(outputs))
    stored = list(arguments.stored.values())
    split = prepared(joint.graph, stored) if keeps_values else None
    first, held = split if split is not None else (None, stored)
    write_over(joint.graph)
    return Program(
        job=graph.job,
        graph=_reordered(joint.graph, [*held, *arguments.fed]),
        variables=tuple(arguments.stored),
        uses_step=graph.step is not None,
        writes=any(writes(node) and argument(node, 0) in stored for node in joint.graph.nodes),
        prepare=first,
    )


def _train_program(graph: Graph, joint: Joint, outputs: Outputs, arguments: _Arguments) -> Program:
    training = graph.require_training()
    groups = groups_of(graph, training.optimizer, list(joint.trained))
    if training.in_two_parts:
        second = _separate_update(graph, groups, list(arguments.stored), list(joint.trained))
        gradients = list(outputs.gradients.values())
        finite = joint.graph.call_function(update.all_finite, (gradients,)) if training.loss_scale.is_dynamic else None
        joint.graph.output((*_returned(outputs), gradients, finite))
        return _updating_program(graph, joint, arguments, groups, [], second)
    rates, inputs = _rates(graph, joint, outputs, groups)
    scale = training.loss_scale.initial
    unscale = None if scale == 1.0 else 1.0 / scale
    Update(joint.graph, graph, arguments.stored, outputs.gradients, rates, unscale, training.coupled).append(groups)
    joint.graph.output(_returned(outputs))
    return _updating_program(graph, joint, arguments, groups, inputs, None)


def _returned(outputs: Outputs) -> tuple[Any, ...]:
    return tuple(outputs.results), tuple(outputs.watched)


def _rates(graph: Graph, joint: Joint, outputs: Outputs, groups: list[Group]) -> tuple[list[fx.Node], list[fx.Node]]:
    """The rate of each group as a node, and those of them that are arguments of the program."""
    blobs = dict(zip(custom_rates(graph), outputs.rates))
    rates, inputs = [], []
    for group in groups:
        if id(group.optimizer) in blobs:
            rates.append(joint.graph.call_function(float, (blobs[id(group.optimizer)],)))
        else:
            rates.append(_placeholder(joint.graph))
            inputs.append(rates[-1])
    return rates, inputs


def _separate_update(graph: Graph, groups: list[Group], stored: list[str], trained: list[str]) -> fx.Graph:
    """The update as a graph of its own: of the variables, the gradients, the factor that unscales them, and the rates."""
    second: fx.Graph = fx.Graph()
    variables = {name: second.placeholder("variable") for name in stored}
    gradients = {name: second.placeholder("gradient") for name in trained}
    unscale = second.placeholder("unscale")
    rates = [second.placeholder("rate") for _ in groups]
    Update(second, graph, variables, gradients, rates, unscale, graph.require_training().coupled).append(groups)
    second.output(None)
    return second


def _updating_program(
    graph: Graph, joint: Joint, arguments: _Arguments, groups: list[Group], rates: list[fx.Node], second: fx.Graph | None
) -> Program:
    custom = custom_rates(graph)
    update_early(joint.graph)
    write_over(joint.graph)
    return Program(
        job=graph.job,
        graph=_reordered(joint.graph, arguments.ordered(rates)),
        variables=tuple(arguments.stored),
        uses_step=graph.step is not None,
        dynamic_scale=joint.loss_seed is not None,
        rates=tuple(group.rate for group in groups if id(group.optimizer) not in custom),
        update=second,
        writes=True,
    )


def _reordered(graph: fx.Graph, placeholders: list[fx.Node]) -> fx.Graph:
    """The graph with its placeholders in the order the program's arguments come."""
    first = next(iter(graph.nodes))
    for node in placeholders:
        if node is first:
            first = first.next
        else:
            first.prepend(node)
    return graph
