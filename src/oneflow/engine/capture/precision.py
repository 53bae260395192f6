"""Automatic mixed precision (AMP): which nodes of a logical graph compute in half precision.

White ops (matrix products, convolutions) always do; gray ones where they lie between white ops; clear ones follow their
neighbours; everything else, losses and reductions above all, stays in float32. Variables stay float32 masters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.engine.core.tree import tree_map
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import Adapt
from oneflow.engine.ir.nodes import row_of


def half_nodes(graph: Graph) -> set[fx.Node]:
    """The nodes that compute in half precision."""
    ops = [node for node in graph.body.nodes if node.op == "call_function"]
    white = {node for node in ops if row_of(node).precision == "white"}
    passing = {node for node in ops if row_of(node).precision in ("gray", "clear")}
    after = _spread(white, passing, lambda node: node.users)
    before = _spread(white, passing, lambda node: node.all_input_nodes)
    half = white | (passing & after & before)
    return half | _followers(ops, half)


def _spread(start: set[fx.Node], through: set[fx.Node], step: Any) -> set[fx.Node]:
    """The nodes of ``through`` that can be reached from ``start`` without leaving ``through``."""
    seen: set[fx.Node] = set()
    todo = list(start)
    while todo:
        for node in step(todo.pop()):
            if node in through and node not in seen:
                seen.add(node)
                todo.append(node)
    return seen


def _followers(ops: list[fx.Node], half: set[fx.Node]) -> set[fx.Node]:
    """Clear nodes fed by half-precision nodes alone."""
    followers: set[fx.Node] = set()
    for node in ops:
        inputs = [n for n in node.all_input_nodes if n.op == "call_function"]
        if row_of(node).precision == "clear" and inputs and all(n in half or n in followers for n in inputs):
            followers.add(node)
    return followers


def half_dtype(device: torch.device) -> torch.dtype:
    """float16 where the device computes with it fast, else bfloat16."""
    return torch.float16 if device.type == "cuda" else torch.bfloat16


def casting(graph: Graph, half: torch.dtype) -> Adapt:
    """An ``adapt`` for the interpreter that casts what enters and leaves half-precision nodes."""
    chosen = half_nodes(graph)
    variables = set(graph.variables.values())

    def adapt(node: fx.Node, inputs: Any) -> Any:
        if node not in chosen:
            return tree_map(lambda v: v.float() if _is(v, half) else v, inputs)
        if row_of(node).precision == "white":
            return tree_map(lambda v: v.to(half) if _is(v, torch.float32) else v, inputs)
        kept = {i for i, arg in enumerate(node.args) if arg in variables}
        args = [
            v if i in kept else tree_map(lambda a: a.to(half) if _is(a, torch.float32) else a, v)
            for i, v in enumerate(inputs[0])
        ]
        return tuple(args), inputs[1]

    return adapt


def _is(value: Any, dtype: torch.dtype) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == dtype
