"""The joint graph: forward and backward of a job as one explicit graph of aten ops, as AOTAutograd makes one.

Passes can see all of it: there is no autograd engine and no graph of closures at run time. This is the only module that
traces with torch's semi-private make_fx; torch is pinned for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from oneflow.engine.core.errors import JobError
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import Adapt, interpret
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ops.array import assign
from oneflow.engine.program.notes import JointNote, Origin, set_joint_note
from oneflow.engine.program.program import Key


@dataclass(frozen=True)
class Outputs:
    """The outputs of a joint graph by what they are for."""

    results: list[fx.Node]
    watched: list[fx.Node]
    rates: list[fx.Node]
    gradients: dict[str, fx.Node]


@dataclass(frozen=True)
class Joint:
    """An aten graph and what its arguments and outputs stand for. It has as many results, watched values and rates as
    ``counts`` says, then the gradients of ``trained``."""

    graph: fx.Graph
    arguments: dict[Key, fx.Node]
    counts: tuple[int, int, int]
    trained: tuple[str, ...]

    def outputs(self) -> Outputs:
        """Read from the graph itself, since passes replace nodes."""
        nodes: list[fx.Node] = list(argument(self.output_node(), 0))
        results, watched, rates = self.counts
        first, second, third = results, results + watched, results + watched + rates
        return Outputs(nodes[:first], nodes[first:second], nodes[second:third], dict(zip(self.trained, nodes[third:])))

    def output_node(self) -> fx.Node:
        return next(node for node in reversed(self.graph.nodes) if node.op == "output")


@dataclass(frozen=True)
class Like:
    """Stands for a tensor that need not exist."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    channels_last: bool = False
    strides: tuple[int, ...] | None = None

    def empty(self) -> torch.Tensor:
        if self.strides is not None:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        memory = torch.channels_last if self.channels_last and len(self.shape) == 4 else torch.contiguous_format
        return torch.empty(self.shape, dtype=self.dtype, device=self.device, memory_format=memory)


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
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    placeholders = [node for node in graph.body.nodes if node.op == "placeholder"]
    fakes = [_fake(mode, options.tensors[node]) for node in placeholders]
    seed_inputs = []
    if graph.losses and options.loss_scale is None:
        with mode:
            seed_inputs = [torch.empty((), device=options.device)]
    tracer = _TracedStep(options, placeholders)
    with mode:
        module = make_fx(tracer.run)(*fakes, *seed_inputs)
    return tracer.describe(module.graph)


def _fake(mode: FakeTensorMode, tensor: torch.Tensor | Like) -> torch.Tensor:
    if isinstance(tensor, torch.Tensor):
        return mode.from_tensor(tensor)
    with mode:
        return tensor.empty()


class _TracedStep:
    """The traced function, and the notes it takes while it is traced."""

    def __init__(self, options: JointOptions, placeholders: list[fx.Node]) -> None:
        self.options = options
        self.placeholders = placeholders
        self.counts = (0, 0, 0)
        self.trained: list[str] = []
        self.origins: list[tuple[int, Origin | None, str, int | None]] = []

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
        mode = get_proxy_mode()
        assert mode is not None
        region = op_note(node).region if node is not None and part == "forward" else None
        self.origins.append((len(mode.tracer.graph.nodes), None if node is None else _origin(node), part, region))

    def _follow_backward(self, env: dict[fx.Node, Any]) -> None:
        """Has autograd say which op it differentiates: what an op added to autograd's own graph gives its origin to the
        backward pass."""
        seen: set[Any] = set()
        for node in self.options.graph.body.nodes:
            todo = [t.grad_fn for t in tree_leaves(env[node]) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
            while todo:
                function = todo.pop()
                if function not in seen:
                    seen.add(function)
                    function.register_prehook(lambda gradients, node=node: self._enter(node, "backward"))
                    todo.extend(following for following, _ in function.next_functions if following is not None)

    def describe(self, graph: fx.Graph) -> Joint:
        self._name_origins(graph)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        seed = placeholders[len(self.placeholders) :]
        arguments = _arguments(self.options.graph, dict(zip(self.placeholders, placeholders)))
        return Joint(graph, {**arguments, **({("scale",): seed[0]} if seed else {})}, self.counts, tuple(self.trained))

    def _name_origins(self, graph: fx.Graph) -> None:
        """Notes on each aten node which op of the job it came from, and in which part of the step it runs."""
        nodes = list(graph.nodes)
        for node in nodes:
            set_joint_note(node, JointNote())
        bounds = [*self.origins, (len(nodes), None, "backward", None)]
        for (start, origin, part, region), (end, *_) in zip(bounds, bounds[1:]):
            for node in nodes[start:end]:
                set_joint_note(node, JointNote(origin, part, region=region))


def _origin(node: fx.Node) -> Origin:
    note = op_note(node)
    return Origin(note.name, str(node.target), note.line, note.placement)


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


def unaliased(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs that share no memory with an input (a variable is updated in place) or with each other."""
    taken = {t.untyped_storage()._cdata for t in inputs}
    fresh = []
    for out in outputs:
        out = out.detach()
        if out.untyped_storage()._cdata in taken:
            out = out.clone()
        taken.add(out.untyped_storage()._cdata)
        fresh.append(out)
    return fresh
