"""Runs a logical graph node by node on tensors: how the joint graph is made, and how tests look inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from oneflow.engine.core.errors import ArgumentError, OneFlowError
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.nodes import row_of
from oneflow.engine.ir.notes import op_note

Adapt = Callable[[fx.Node, Any], Any]


def interpret(
    graph: Graph,
    values: Mapping[fx.Node, torch.Tensor],
    device: torch.device | str,
    enter: Callable[[fx.Node], None] = lambda node: None,
    adapt: Adapt = lambda node, inputs: inputs,
) -> dict[fx.Node, Any]:
    """The value of every node, given those of the placeholders.

    ``enter`` is told of each node before it runs; ``adapt`` may change its inputs (mixed precision casts them).
    """
    env: dict[fx.Node, Any] = dict(values)
    for node in graph.body.nodes:
        if node.op == "call_function":
            enter(node)
            env[node] = _run(node, env, device, adapt)
    return env


def _run(node: fx.Node, env: Mapping[fx.Node, Any], device: torch.device | str, adapt: Adapt) -> Any:
    inputs = fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
    args, attributes = adapt(node, inputs)
    row = row_of(node)
    extra = {"device": device} if row.creates else {}
    try:
        return row(*args, **attributes, **extra)
    except OneFlowError as error:
        raise type(error)(f"{op_note(node).line}: {row} ({op_note(node).name!r}): {error.reason}") from None
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ArgumentError(f"{op_note(node).line}: {row} ({op_note(node).name!r}): {error}") from error
