"""Elementwise ops write over an input that nothing reads again (buffer reuse): no new memory, one pass over it less.

On a CPU a large fresh tensor costs about as much to get from the system as to fill.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from oneflow.engine.ops.cpu.native_sequence import FRESH
from oneflow.engine.ops.kernels import cross_entropy  # noqa: F401 - registers oneflow::cross_entropy_backward
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import tensor, val

aten = torch.ops.aten


@dataclass(frozen=True)
class Over:
    """How an op writes over one of its first arguments: the op that does, which arguments may be taken, and the name of
    the result if it is given. Kernels ``on_cpu`` alone are known to read a row before they write it."""

    target: Any
    takes: tuple[int, ...]
    out: str | None = None
    on_cpu: bool = False

    def rewritten(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], taken: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the op that writes over the one that is ``taken``."""
        if self.out is not None:
            return args, {**kwargs, self.out: args[taken]}
        swapped = [*args]
        swapped[0], swapped[taken] = args[taken], args[0]
        return tuple(swapped), kwargs


def _onednn() -> dict[Any, Over]:
    """Its convolutions that add to what they are given; a build of torch may lack them."""
    if not torch.backends.mkldnn.is_available():
        return {}
    return {torch.ops.mkldnn._convolution_pointwise.binary: Over(torch.ops.mkldnn._convolution_pointwise_.binary, (1,))}


OVER: dict[Any, Over] = {
    aten.relu.default: Over(aten.relu_.default, (0,)),
    aten.hardtanh.default: Over(aten.hardtanh_.default, (0,)),
    aten.sigmoid.default: Over(aten.sigmoid_.default, (0,)),
    aten.tanh.default: Over(aten.tanh_.default, (0,)),
    aten.neg.default: Over(aten.neg_.default, (0,)),
    aten.add.Tensor: Over(aten.add_.Tensor, (0, 1)),
    aten.mul.Tensor: Over(aten.mul_.Tensor, (0, 1)),
    aten.sub.Tensor: Over(aten.sub_.Tensor, (0,)),
    aten.div.Tensor: Over(aten.div_.Tensor, (0,)),
    aten.gelu_backward.default: Over(aten.gelu_backward.grad_input, (0,), "grad_input"),
    aten.silu_backward.default: Over(aten.silu_backward.grad_input, (0,), "grad_input"),
    torch.ops.oneflow.cross_entropy_backward.default: Over(torch.ops.oneflow.cross_entropy_backward_.default, (0,)),
    aten.threshold_backward.default: Over(aten.threshold_backward.grad_input, (0,), "grad_input"),
    aten.hardtanh_backward.default: Over(aten.hardtanh_backward.grad_input, (0,), "grad_input"),
    aten._log_softmax.default: Over(aten._log_softmax.out, (0,), "out", on_cpu=True),
    aten._softmax.default: Over(aten._softmax.out, (0,), "out", on_cpu=True),
    **_onednn(),
}
"""What writes over an operand, by the op that makes a new value."""


def write_over(graph: fx.Graph) -> None:
    """Lets elementwise ops of a finished graph take the memory of an input that dies with them.

    Relies on a section to which nothing is added any more. Leaves the same values; arguments and outputs are never
    written over.
    """
    uses = _Uses(graph)
    for node in list(graph.nodes):
        over = OVER.get(node.target)
        made = tensor(node)
        if over is None or made is None or (over.on_cpu and made.device.type != "cpu"):
            continue
        places = [i for i in over.takes if i < len(node.args) and (i == 0 or not node.kwargs)]
        taken = next((i for i in places if uses.can_take(node, node.args[i])), None)
        if taken is not None:
            uses.give(node, node.args[taken])
            node.args, node.kwargs = over.rewritten(node.args, node.kwargs, taken)
            node.target = over.target


def may_keep(node: fx.Node) -> bool:
    """Returns whether a node calls one of our functions, which may return a view of its arguments or still need them
    after it has returned."""
    return (
        node.op == "call_function"
        and not isinstance(node.target, torch._ops.OpOverload)
        and node.target not in (operator.getitem, *FRESH)
    )


class _Uses:
    """The memory of each value, and the last place in the graph that touches it."""

    def __init__(self, graph: fx.Graph) -> None:
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._memory = memories(graph)
        self._there: dict[Memory, list[fx.Node]] = defaultdict(list)  # the values that lie in each memory
        for node, memory in self._memory.items():
            self._there[memory].append(node)
        self._last: dict[Memory, int] = {}
        for node in graph.nodes:
            for used in (node, *node.all_input_nodes):
                self._last[self._memory[used]] = self._place[node]
        kept = [used for node in graph.nodes if may_keep(node) for used in node.all_input_nodes]
        self._last.update(dict.fromkeys([self._memory[used] for used in kept], len(self._place)))

    def can_take(self, node: fx.Node, taken: Any) -> bool:
        """Whether an argument is a value of the graph's own, exactly as large as the result, and read for the last
        time."""
        if not isinstance(taken, fx.Node) or taken.op != "call_function" or tensor(taken) is None:
            return False
        mine, its = val(node), val(taken)
        if (mine.shape, mine.stride(), mine.dtype) != (its.shape, its.stride(), its.dtype):
            return False
        memory = self._memory[taken]
        shared = sum(isinstance(arg, fx.Node) and self._memory[arg] == memory for arg in node.args)
        if memory[0].op == "placeholder" or may_keep(memory[0]) or shared > 1 or _repeats(its):
            return False
        return self._last[memory] == self._place[node]

    def give(self, node: fx.Node, taken: fx.Node) -> None:
        """Notes that a node's value lies where its argument did, which lives on as long as the node's value."""
        memory, mine = self._memory[taken], self._memory[node]
        self._last[memory] = self._last[mine]
        moved = self._there.pop(mine)
        self._memory.update(dict.fromkeys(moved, memory))
        self._there[memory] += moved


def _repeats(value: torch.Tensor) -> bool:
    """Whether several elements lie in one place, as in an expanded tensor."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride()))
