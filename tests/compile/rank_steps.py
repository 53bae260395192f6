"""Training steps of modules on several ranks that are evaluated side by side in one process, as ``lockstep`` does for
single calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from at_once import answers
from lockstep import cut, join, lock_step
from torch import Tensor, fx, nn

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.assignment.distribute import Assigned, Spread, distribute
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.sbp import BROADCAST, Sbp, split
from oneflow.engine.graph.compiled import Sources, capture
from oneflow.engine.graph.structure import call_of
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.program.notes import layout_of, val
from oneflow.engine.program.program import Program
from oneflow.engine.sharding.mesh import Layout, mesh_of
from oneflow.engine.step import codegen

RATE = 0.5
_MEETINGS = {collective.all_reduce, collective.gather_parts, collective.reduce_parts, collective.exchange_parts}


class _Train(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=RATE))

    def build(self, *inputs: Tensor) -> Any:
        results = self.model(*inputs)
        results[0].backward()
        return results


@dataclass(frozen=True)
class Step:
    """A training step of a module, whose results are a loss and others, over ranks on these axes. Variables and inputs
    are whole tensors."""

    assigned: Assigned
    variables: dict[str, Tensor]
    inputs: tuple[Tensor, ...]
    axes: tuple[int, ...]

    def run(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The results, and the variables afterwards, put together from the parts of all ranks."""
        ranks = range(prod(self.axes))
        whole = {("variable", name): tensor for name, tensor in self.variables.items()}
        whole |= {("feed", number): tensor for number, tensor in enumerate(self.inputs)}
        layouts = {key: layout_of(self.assigned.arguments[key]).sbp for key in whole}
        parts = {key: cut(tensor, layouts[key], self.axes) for key, tensor in whole.items()}
        held = [{key: parts[key][rank] for key in parts} for rank in ranks]
        results = lock_step([_steps(lower_job(self.assigned, rank), held[rank]) for rank in ranks], _meet)
        returned = [
            _only(
                join(
                    [own[i] for own in results],
                    torch.empty(val(node).shape, dtype=val(node).dtype),
                    layout_of(node).sbp,
                    self.axes,
                )
            )
            for i, node in enumerate(self.assigned.outputs.results)
        ]
        after = {
            key[1]: _only(join([own[key] for own in held], tensor, layouts[key], self.axes))
            for key, tensor in whole.items()
            if key[0] == "variable"
        }
        return returned, after


def _meet(function: Any, calls: Sequence[tuple[Any, ...]]) -> list[Tensor]:
    """What each member gets: memory of its own, contiguous as from the real collectives."""
    return [answer.clone(memory_format=torch.contiguous_format) for answer in answers(function, calls)]


def _only(copies: Sequence[Tensor]) -> Tensor:
    """What all ranks have alike."""
    assert all(torch.equal(copy, copies[0]) or copy.isnan().any() for copy in copies), "all ranks have the same"
    return copies[0]


def step_of(model: nn.Module, inputs: tuple[Tensor, ...], axes: tuple[int, ...], seed: int) -> Step:
    """A step whose inputs and parameters are split as the seed draws it; buffers are whole."""
    draw = random.Random(seed)
    graph = _Train(model)
    captured = capture(graph._graph, call_of(inputs, {}), Sources())
    size = prod(axes)
    placement = Placement("cpu", tuple((0, rank) for rank in range(size)), axes)
    ranks = {(0, rank): rank for rank in range(size)}
    mesh = mesh_of(placement, ranks)
    trained = set(captured.traced.joint.trained)
    shapes = {name: decl.spec.shape for name, decl in captured.decl.decls.items()}
    layouts = {
        name: Layout(mesh, tuple(_drawn(draw, shape if name in trained else (), size) for _ in axes))
        for name, shape in shapes.items()
    }
    feeds = tuple(
        replace(feed, layout=Layout(mesh, tuple(_drawn(draw, tensor.shape, size) for _ in axes)))
        for feed, tensor in zip(captured.decl.feeds, inputs)
    )
    decl = replace(captured.decl, placement=placement, feeds=feeds, keeps_parts=True)
    assigned = distribute(decl, captured.traced.joint, Spread(ranks, layouts, captured.device))
    return Step(assigned, {name: captured.tensors[name].detach().clone() for name in shapes}, inputs, axes)


def _drawn(draw: random.Random, shape: Sequence[int], ranks: int) -> Sbp:
    """How a tensor is sharded along one axis. A dim is split where each rank gets something of it."""
    return draw.choice([BROADCAST, *(split(dim) for dim, extent in enumerate(shape) if extent >= ranks)])


def _steps(program: Program, held: dict[Any, Tensor]) -> Generator[tuple[Any, tuple[Any, ...]], Tensor, Any]:
    """Evaluates the step of one rank; yields each collective that it comes to and is sent its result."""
    section = program.sections["step"]
    keys = iter(section.inputs)
    env: dict[fx.Node, Any] = {}
    for node in section.graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "placeholder":
            key = next(keys)
            env[node] = RATE if key[0] == "rate" else held[key]
        elif node.op == "output":
            return args[0]
        elif node.target is collective.bucket_start:
            bucket, values = args
            env[node] = []
            for value in values:
                env[node].append((yield collective.all_reduce, (value, "sum", bucket.ranks)))
        elif node.target is collective.bucket_wait:
            env[node] = args[1]
        elif node.target in _MEETINGS:
            env[node] = yield node.target, args
        else:
            env[node] = codegen._callable(node.target)(*args, **kwargs)  # as an executor calls it
    raise AssertionError("a graph ends in an output")


def eager(model: nn.Module, inputs: Iterable[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The same step by plain torch."""
    results = model(*inputs)
    results[0].backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= RATE * parameter.grad
    after = {f"model.{name}": value.detach() for name, value in model.state_dict().items()}
    return [result.detach() for result in results], after


def check(make: Callable[[], nn.Module], inputs: tuple[Tensor, ...], axes: tuple[int, ...], seed: int) -> None:
    """Asserts that a step on ranks gives what one of plain torch does."""
    torch.manual_seed(0)
    results, after = step_of(make().double().train(), inputs, axes, seed).run()
    torch.manual_seed(0)
    expected, wanted = eager(make().double().train(), inputs)
    found = {f"result {number}": value for number, value in enumerate(results)} | after
    for name, value in ({f"result {number}": value for number, value in enumerate(expected)} | wanted).items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )
