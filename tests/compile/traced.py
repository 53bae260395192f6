"""Aten calls to test rules on: those in the joint graphs of the op rows' samples, and calls made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import runner
import torch
from families import BY_FILE
from sample import Sample
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import interpret
from oneflow.engine.sharding.call import Call, tensors_in


@dataclass(frozen=True)
class Executed:
    """One aten call on real tensors, and its result. ``row`` is the op row it came from."""

    row: str
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The tensor arguments."""
        return tuple(tensors_in((*self.args, *self.kwargs.values())))

    def call(self, parts: int) -> Call:
        """As rules see it, for so many ranks."""
        return Call(self.op, self.args, self.kwargs, self.result, parts)


@lru_cache(maxsize=None)
def executed(file: str) -> tuple[Executed, ...]:
    """The calls in the joint graphs of a sample file's samples; of calls that differ in values only, the first of each
    row."""
    found: dict[Any, Executed] = {}
    for sample in BY_FILE[file]:
        for one in _calls(sample):
            found.setdefault((one.row, one.call(1).key()), one)
    return tuple(found.values())


def distinct(file: str) -> list[Executed]:
    """Those that differ in more than their row."""
    return list({one.call(1).key(): one for one in executed(file)}.values())


def made(op: Any, *args: Any, **kwargs: Any) -> Executed:
    """A call of an op on real tensors."""
    return Executed(op.name(), op, args, kwargs, op(*args, **kwargs))


def _calls(sample: Sample) -> Iterator[Executed]:
    whole = joint(sample)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        module = make_fx(whole.step)(*[mode.from_tensor(t) for t in whole.tensors])
    env: dict[fx.Node, Any] = {}
    feeds = iter(whole.tensors)
    for node in module.graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "placeholder":
            env[node] = next(feeds)
        elif node.op == "get_attr":
            env[node] = node.meta["val"] = getattr(module, node.target)
        elif node.op == "call_function":
            env[node] = node.target(*args, **kwargs)
            if _is_pure(node):
                yield Executed(sample.row, node.target, *_copied((tuple(args), dict(kwargs))), _copied(env[node]))


def _is_pure(node: fx.Node) -> bool:
    """Writers are left out: the compiler has turned them into calls that write nothing when it looks for rules."""
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable


def _copied(value: Any) -> Any:
    """Apart from the memory of the graph, in which a later call may write."""
    return tree_map_only(Tensor, lambda t: t.detach().clone(), value)


@dataclass(frozen=True)
class Joint:
    """Forward and backward of a sample as one function. It takes ``tensors`` (inputs, then variables, then what else is
    fed), and behind them gradients of ``floats``, the results that may have some; without those all are 1."""

    graph: Graph
    blobs: list[Blob]
    fed: list[fx.Node]
    tensors: list[Tensor]
    learned: list[bool]

    @property
    def floats(self) -> list[Blob]:
        return [blob for blob in self.blobs if blob.dtype.is_floating_point] if any(self.learned) else []

    def step(self, *given: Tensor) -> list[Tensor]:
        """The results, then the gradients of what is learned."""
        leaves = [t.detach().requires_grad_(learn) for t, learn in zip(given, self.learned)]
        env = interpret(self.graph, dict(zip(self.fed, leaves)), "cpu")
        floats = [env[blob.node] for blob in self.floats]
        pairs = [
            (r, g) for r, g in zip(floats, given[len(self.fed) :] or map(torch.ones_like, floats)) if r.requires_grad
        ]
        wanted = [t for t in leaves if t.requires_grad]
        grads = (
            torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
            if pairs
            else ()
        )
        return [*(env[blob.node] for blob in self.blobs), *(g for g in grads if g is not None)]


def joint(sample: Sample) -> Joint:
    state, blobs = runner.trace(sample)
    graph = state.graph
    generator = torch.Generator().manual_seed(0)
    variables = [graph.decls[name].initializer.draw(graph.decls[name].spec, generator) for name in graph.variables]
    fed = [*graph.inputs, *graph.variables.values()]
    tensors = [*runner.leaves(sample), *variables]
    if graph.step is not None:
        fed, tensors = [*fed, graph.step], [*tensors, torch.zeros(1, dtype=torch.int64)]
    for source, nodes in graph.sources:
        fed, tensors = [*fed, *nodes], [*tensors, *source.next()]
    frozen = {node for name, node in graph.variables.items() if not graph.decls[name].trainable}
    learned = [sample.gradient and node not in frozen and t.dtype.is_floating_point for node, t in zip(fed, tensors)]
    return Joint(graph, list(blobs), fed, [t.detach() for t in tensors], learned)
