"""A graph as text: its modules as a tree, and the ops of a compiled step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from oneflow.engine.global_tensor.tensor import GlobalTensor

if TYPE_CHECKING:
    from torch import fx

    from oneflow.engine.graph.definition import Definition


def told(graph: Definition) -> str:
    """The tree of a graph's modules, parameters and buffers."""
    lines = [f"(GRAPH:{graph.name}:{graph.kind}): (", f"  {graph.config!r}"]
    if graph.auto:
        lines.append(f"  (AUTO PARALLEL:{graph.auto})")
    for name, module in graph.modules.items():
        lines += [f"  {line}" for line in _module(name, name, module)]
    for added in graph.added:
        schedule = "" if added.schedule is None else f", {type(added.schedule).__name__}"
        lines.append(f"  (OPTIMIZER:{type(added.optimizer).__name__}{schedule})")
    return "\n".join([*lines, ")"])


def _module(path: str, name: str, module: nn.Module) -> Iterator[str]:
    inner = [
        f"(PARAMETER:{path}.{own}:{_tensor(tensor)}): ()" for own, tensor in module.named_parameters(recurse=False)
    ]
    inner += [f"(BUFFER:{path}.{own}:{_tensor(tensor)}): ()" for own, tensor in module.named_buffers(recurse=False)]
    for own, child in module.named_children():
        inner += _module(f"{path}.{own}", own, child)
    head = f"(MODULE:{path}:{type(module).__name__}({module.extra_repr()}))"
    yield from [f"{head}: (", *(f"  {line}" for line in inner), ")"] if inner else [f"{head}: ()"]


def _tensor(tensor: Tensor) -> str:
    lies = f"placement={tensor.placement}, sbp={tensor.sbp}, " if isinstance(tensor, GlobalTensor) else ""  # type: ignore[attr-defined]
    return f"tensor(..., {lies}size={tuple(tensor.shape)}, dtype={str(tensor.dtype).replace('torch', 'oneflow')}, requires_grad={tensor.requires_grad})"


def told_ops(graph: fx.Graph) -> str:
    """Every op of a step with the module and the line it came from."""
    from oneflow.engine.program.notes import joint_note

    lines = []
    for node in graph.nodes:
        if node.op == "call_function":
            origin = joint_note(node).origin
            come = "" if origin is None else f"  # {origin.name} ({origin.kind}) {origin.line}"
            lines.append(f"{joint_note(node).part:<9}{node.format_node()}{come}")
    return "\n".join(lines)
