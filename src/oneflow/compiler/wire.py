"""Programs as plain data (serialisation), to be sent to another process: nodes by number, aten ops by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from oneflow.compiler.program import Program, Section


@dataclass(frozen=True)
class _Ref:
    """The value of the node of this number."""

    number: int


@dataclass(frozen=True)
class _Aten:
    """An op by its full name, such as "aten::add.Tensor"."""

    name: str

    def find(self) -> Any:
        space, rest = self.name.split("::")
        packet, overload = rest.split(".")
        return getattr(getattr(getattr(torch.ops, space), packet), overload)


@dataclass(frozen=True)
class _Torch:
    """A dtype, layout or memory format by its name. Pickle would look for a module that has it, and might find the user's program."""

    name: str


@dataclass(frozen=True)
class _Packed:
    """A graph as rows of (kind, target, args, kwargs, what an error says of it). The args of an argument are its shape and dtype, where they are
    known: nothing is made of them, but a program for other shapes is another one."""

    rows: list[tuple[str, Any, Any, Any, str]]


def pack(program: Program, what: Any) -> Program:
    """The program with its graphs as plain data; ``what(node)`` is how errors name a node."""
    return replace(program, sections={name: replace(s, graph=_pack(s.graph, what)) for name, s in program.sections.items()})  # type: ignore[arg-type]


def unpack(program: Program) -> Program:
    """The inverse of ``pack``; each node's ``meta["what"]`` says how errors name it."""
    sections = {name: Section(_unpack(s.graph), s.inputs, s.outputs) for name, s in program.sections.items()}  # type: ignore[arg-type]
    return replace(program, sections=sections)


def _pack(graph: fx.Graph, what: Any) -> _Packed:
    number = {node: i for i, node in enumerate(graph.nodes)}
    rows = []
    for node in graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: _Ref(number[n]))  # type: ignore[arg-type, return-value]
        target = _Aten(f"{node.target._schema.name}.{node.target._overloadname}") if isinstance(node.target, torch._ops.OpOverload) else node.target
        if node.op == "placeholder":
            args = node.meta.get("shape"), node.meta.get("dtype")
        rows.append((node.op, target, _plain(args), _plain(kwargs), what(node) if node.op == "call_function" else ""))
    return _Packed(rows)


def _unpack(packed: _Packed) -> fx.Graph:
    graph: fx.Graph = fx.Graph()
    nodes: list[fx.Node] = []
    for kind, target, args, kwargs, what in packed.rows:
        args, kwargs = (_resolved(value, nodes) for value in (args, kwargs))
        if kind == "placeholder":
            nodes.append(graph.placeholder("argument"))
            nodes[-1].meta.update(zip(("shape", "dtype"), args))
        elif kind == "output":
            nodes.append(graph.output(args[0]))
        else:
            nodes.append(graph.call_function(target.find() if isinstance(target, _Aten) else target, args, kwargs))
        nodes[-1].meta["what"] = what
    return graph


def _plain(value: Any) -> Any:
    """fx's own containers as Python's, torch's constants by name."""
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return _Torch(str(value).removeprefix("torch."))
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _resolved(value: Any, nodes: list[fx.Node]) -> Any:
    if isinstance(value, _Ref):
        return nodes[value.number]
    if isinstance(value, _Torch):
        return getattr(torch, value.name)
    if isinstance(value, dict):
        return {key: _resolved(v, nodes) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_resolved(v, nodes) for v in value)
    return [_resolved(v, nodes) for v in value] if isinstance(value, list) else value
