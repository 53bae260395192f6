"""The joint graph of a job: its logical graph is interpreted op by op while it is traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.joint import Joint, Like
from oneflow.engine.capture.tracer import Tracer, unaliased
from oneflow.engine.core.errors import JobError
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import Adapt, interpret
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ops.array import assign
from oneflow.engine.program.notes import JointNote, Origin, set_joint_note
from oneflow.engine.program.program import Key


@dataclass(frozen=True)
class JointOptions:
    """What to build a joint graph of.

    ``tensors`` gives each placeholder a tensor (a variable's own, or what stands for one) whose layout the graph is
    made for. ``trained`` are the variables to differentiate for. ``loss_scale`` multiplies the losses; None makes it an
    input of the graph (a dynamic loss scale). ``rates`` are nodes whose values are wanted as learning rates. In the
    mirrored view ``copies`` is the number of devices, whose gradients are added up.
    """

    graph: Graph
    tensors: Mapping[fx.Node, torch.Tensor | Like]
    device: torch.device
    adapt: Adapt
    trained: tuple[str, ...] = ()
    loss_scale: float | None = 1.0
    micro_batches: int = 1
    rates: tuple[fx.Node, ...] = ()
    copies: int = 1


def build_joint(options: JointOptions) -> Joint:
    """Traces the job's forward, its backward if it has losses, and marks which node is which output.

    Relies on a logical graph whose ops all have notes. Leaves aten ops alone, each with its value without data, its
    part of the step, and the logical op it came from where there is one. Writes into variables come last.
    """
    graph = options.graph
    tracer = Tracer(JointNote())
    placeholders = [node for node in graph.body.nodes if node.op == "placeholder"]
    arguments = [tracer.fake(options.tensors[node]) for node in placeholders]
    if graph.losses and options.loss_scale is None:
        arguments.append(tracer.fake(Like((), torch.get_default_dtype(), options.device)))
    step = _TracedJob(options, placeholders, tracer)
    return step.describe(tracer.trace(step.run, arguments).graph)


class _TracedJob:
    """The traced function, and what is known once it has run."""

    def __init__(self, options: JointOptions, placeholders: list[fx.Node], tracer: Tracer[JointNote]) -> None:
        self.options = options
        self.placeholders = placeholders
        self._tracer = tracer
        self.counts = (0, 0, 0)
        self.trained: list[str] = []

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        graph = self.options.graph
        values = dict(zip(self.placeholders, tensors))
        for node in self._differentiated():
            if node in values:
                values[node] = values[node].detach().requires_grad_()
        env = interpret(graph, values, self.options.device, self._enter, self.options.adapt)
        self._enter(None)
        self._follow_backward(env)
        results = [_in_spec(env[node], op_note(node).spec) for node in graph.result_nodes()]
        watched = [_in_spec(env[w.node], op_note(w.node).spec) for w in graph.watches if not w.diff]
        rates = [env[node] for node in self.options.rates]
        diffs, gradients = self._backward(env, tensors[len(self.placeholders) :])
        self._enter(None, "backward" if graph.losses else "forward")
        watched_in_order = _weave(graph, watched, diffs)
        self.counts = (len(results), len(watched_in_order), len(rates))
        outputs = [*unaliased(results + watched_in_order, list(tensors)), *rates, *gradients]
        self._assign(env, dict(zip(self.placeholders, tensors)))
        return outputs

    def _assign(self, env: dict[fx.Node, Any], stored: dict[fx.Node, torch.Tensor]) -> None:
        """Writes into variables come last: until then the whole step reads what they held when it began."""
        for node in self.options.graph.body.nodes:
            if node.target is assign:
                stored[node.args[0]].copy_(env[node])

    def _differentiated(self) -> list[fx.Node]:
        graph = self.options.graph
        nodes = [graph.variables[name] for name in self.options.trained]
        return nodes + [w.node for w in graph.watches if w.diff and op_note(w.node).spec.dtype.is_floating_point]

    def _backward(
        self, env: dict[fx.Node, Any], seed: tuple[torch.Tensor, ...]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        graph, options = self.options.graph, self.options
        if not graph.losses:
            return [], []
        nodes = [node for node in graph.losses if env[node].requires_grad]
        losses = [env[node] for node in nodes]
        # A variable is one value that the copies of a mirrored job share: as a loss it is one loss, not one of each
        # copy.
        shares = [options.copies if node.op == "placeholder" else 1 for node in nodes]
        watched = [w.node for w in graph.watches if w.diff]
        if not losses:
            if any(op_note(node).spec.dtype.is_floating_point for node in graph.losses):
                line, names = op_note(graph.losses[0]).line, [op_note(node).name for node in graph.losses]
                raise JobError(
                    f"{line}: the losses {names} of train job {graph.job!r} have no gradient; no op behind a variable "
                    f"has one"
                )
            return [torch.zeros_like(env[node]) for node in watched], []
        elements = (
            max(_elements(graph, losses[0]), 1) * options.micro_batches
        )  # a batch of nothing has no gradient either
        # A watched gradient is that of the sum: where one is watched the backward pass begins with it, and what updates
        # is divided at the end.
        divisor = 1 if any(watch.diff for watch in graph.watches) else elements
        if seed:
            seeds = [
                (seed[0] / (divisor * share)).to(loss.dtype).expand(loss.shape) for loss, share in zip(losses, shares)
            ]
        else:
            assert options.loss_scale is not None
            seeds = [
                torch.full_like(loss, options.loss_scale / (divisor * share)) for loss, share in zip(losses, shares)
            ]
        nodes = [node for node in self._differentiated() if env[node].requires_grad]
        grads = torch.autograd.grad(losses, [env[node] for node in nodes], seeds, allow_unused=True)
        count = len(options.trained)
        self.trained = [name for name, grad in zip(options.trained, grads) if grad is not None]
        gradients = [grad if divisor == elements else grad / elements for grad in grads[:count] if grad is not None]
        of_node = dict(zip(nodes[count:], grads[count:]))
        found = [(node, of_node.get(node)) for node in watched]
        return [torch.zeros_like(env[node]) if grad is None else grad for node, grad in found], gradients

    def _enter(self, node: fx.Node | None, part: str = "forward") -> None:
        self._tracer.enter(_note(node, part))

    def _follow_backward(self, env: dict[fx.Node, Any]) -> None:
        for node in self.options.graph.body.nodes:
            self._tracer.follow_backward(tree_leaves(env[node]), _note(node, "backward"))

    def describe(self, graph: fx.Graph) -> Joint:
        for node, note in self._tracer.origins(graph):
            set_joint_note(node, note)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        seed = placeholders[len(self.placeholders) :]
        arguments = _arguments(self.options.graph, dict(zip(self.placeholders, placeholders)))
        return Joint(graph, {**arguments, **({("scale",): seed[0]} if seed else {})}, self.counts, tuple(self.trained))


def _note(node: fx.Node | None, part: str) -> JointNote:
    """What is known of aten nodes that came from ``node``, in the given part of the step."""
    if node is None:
        return JointNote(None, part)
    note = op_note(node)
    origin = Origin(note.name, str(node.target), note.line, note.placement)
    return JointNote(origin, part, region=note.region if part == "forward" else None)


def _arguments(graph: Graph, inputs: Mapping[fx.Node, fx.Node]) -> dict[Key, fx.Node]:
    """The placeholders of a joint graph by key, given the one of each of the job's."""
    found: dict[Key, fx.Node] = {("variable", name): inputs[node] for name, node in graph.variables.items()}
    found.update({("feed", number): inputs[node] for number, node in enumerate(graph.feeds())})
    if graph.step is not None:
        found["step",] = inputs[graph.step]
    return found


def _in_spec(value: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A result in the dtype the user was shown, whatever precision it was computed in."""
    return value.to(spec.dtype.torch)


def _elements(graph: Graph, loss: torch.Tensor) -> int:
    """By how much gradients are divided: the elements of a loss; for a loss of dynamic shape its batch size."""
    return loss.shape[0] if op_note(graph.losses[0]).is_dynamic else prod(loss.shape)


def _weave(graph: Graph, watched: list[torch.Tensor], diffs: list[torch.Tensor]) -> list[torch.Tensor]:
    values, gradients = iter(watched), iter(diffs)
    return [next(gradients) if w.diff else next(values) for w in graph.watches]
