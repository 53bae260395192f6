"""The joint graph: forward and backward of a step as one explicit graph of aten ops, as AOTAutograd makes one.

Passes can see all of it: there is no autograd engine and no graph of closures at run time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
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
