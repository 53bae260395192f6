"""The forward pass of a graph that does not train, as what is exported is described."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.capture.forward_graph import Captured
from oneflow.engine.capture.stand_in import standing_in
from oneflow.engine.core.errors import GraphError
from oneflow.engine.graph.definition import Definition
from oneflow.engine.graph.structure import Call, Meta
from oneflow.engine.graph.variables import variables_of
from oneflow.engine.onnx.capture import Callee, arguments_of, captured_call


def forward_captured(graph: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    """The aten ops of ``build`` with these arguments. Parameters have the names of the graph's variables."""
    if graph.added:
        raise GraphError(
            f"{graph.name} trains; export a graph of the same modules in evaluation mode, without an optimizer"
        )
    modules = graph.modules
    variables = variables_of(modules)
    names = {id(tensor): name for name, tensor in variables.items()}
    callee = Callee(
        graph.name,
        graph.doc or graph.name,
        graph.build,
        variables,
        lambda values: standing_in(modules, names, values),
        {path: part for prefix, module in modules.items() for path, part in module.named_modules(prefix=prefix)},
    )
    arguments = arguments_of(graph.name, inspect.signature(graph.build), args, kwargs)
    return captured_call(callee, arguments, arguments.tensors)


def inputs_like(signature: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call with this signature; its tensors are zeros."""
    leaves = [
        torch.zeros(m.shape, dtype=m.dtype, device=m.device) if isinstance(m, Meta) else m[1] for m in signature[1:]
    ]
    return Call(leaves, signature[0]).arguments([leaf for leaf in leaves if isinstance(leaf, Tensor)])
