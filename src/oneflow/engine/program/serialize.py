"""Serialisation: programs as plain data, to be sent to another process. Nodes by number, aten ops by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from oneflow.engine.ops.cpu import (
    fused_norm,  # noqa: F401 - they register the ops that programs name
    winograd,  # noqa: F401 - they register the ops that programs name
)
from oneflow.engine.ops.kernels import cross_entropy  # noqa: F401 - they register the ops that programs name
from oneflow.engine.program.notes import ArgumentNote, LocalNote, argument_note, set_argument_note, set_local_note
from oneflow.engine.program.program import Key, Program, Section


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
    """A dtype, layout or memory format by its name. Pickle would look for a module that has it, and might find the
    user's program."""

    name: str


Rows = list[tuple[str, Any, Any, Any, str]]
"""A graph as rows of (kind, target, args, kwargs, what an error says of it)."""


@dataclass(frozen=True)
class _PackedSection:
    """A section whose graph is rows. The args of an argument are its shape and dtype, where they are known: nothing is
    made of them, but a program for other shapes is another one."""

    rows: Rows
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]


@dataclass(frozen=True)
class PackedProgram:
    """A program as plain data: all of it but its sections, and those without graphs."""

    program: Program
    sections: dict[str, _PackedSection]


def pack(program: Program, what: Callable[[fx.Node], str]) -> PackedProgram:
    """A program as plain data; ``what(node)`` is how errors name a node."""
    return PackedProgram(
        replace(program, sections={}), {name: _pack(section, what) for name, section in program.sections.items()}
    )


def unpack(packed: PackedProgram) -> Program:
    """The inverse of ``pack``; each node's note says how errors name it."""
    return replace(packed.program, sections={name: _unpack(section) for name, section in packed.sections.items()})


def _pack(section: Section, what: Callable[[fx.Node], str]) -> _PackedSection:
    refs = {node: _Ref(i) for i, node in enumerate(section.graph.nodes)}
    rows = []
    for node in section.graph.nodes:
        args, kwargs = _plain(node.args, refs), _plain(node.kwargs, refs)
        if node.op == "placeholder":
            note = argument_note(node)
            args = _plain((None, None) if note is None else (note.shape, note.dtype), refs)
        rows.append((node.op, _by_name(node.target), args, kwargs, what(node) if node.op == "call_function" else ""))
    return _PackedSection(rows, section.inputs, section.outputs)


def rows_of(graph: fx.Graph) -> Rows:
    """A graph of ops as plain data, without what is noted on its nodes."""
    refs = {node: _Ref(i) for i, node in enumerate(graph.nodes)}
    return [
        (
            node.op,
            _by_name(node.target) if node.op == "call_function" else "",
            _plain(node.args, refs),
            _plain(node.kwargs, refs),
            "",
        )
        for node in graph.nodes
    ]


def graph_of(rows: Rows) -> fx.Graph:
    """The inverse of ``rows_of``."""
    graph: fx.Graph = fx.Graph()
    nodes: list[fx.Node] = []
    for kind, target, args, kwargs, _ in rows:
        args, kwargs = (_resolved(value, nodes) for value in (args, kwargs))
        if kind == "placeholder":
            nodes.append(graph.placeholder(f"argument_{len(nodes)}"))
        elif kind == "output":
            nodes.append(graph.output(args[0]))
        else:
            nodes.append(graph.call_function(target.find() if isinstance(target, _Aten) else target, args, kwargs))
    return graph


def _by_name(target: Any) -> Any:
    return (
        _Aten(f"{target._schema.name}.{target._overloadname}") if isinstance(target, torch._ops.OpOverload) else target
    )


def _unpack(packed: _PackedSection) -> Section:
    graph: fx.Graph = fx.Graph()
    nodes: list[fx.Node] = []
    keys = iter(packed.inputs)
    for kind, target, args, kwargs, what in packed.rows:
        args, kwargs = (_resolved(value, nodes) for value in (args, kwargs))
        if kind == "placeholder":
            nodes.append(graph.placeholder("argument"))
            set_argument_note(nodes[-1], ArgumentNote(next(keys), *args))
        elif kind == "output":
            nodes.append(graph.output(args[0]))
        else:
            nodes.append(graph.call_function(target.find() if isinstance(target, _Aten) else target, args, kwargs))
        set_local_note(nodes[-1], LocalNote(what=what))
    return Section(graph, packed.inputs, packed.outputs)


def _plain(value: Any, refs: Mapping[fx.Node, _Ref]) -> Any:
    """fx's own containers as Python's, nodes by number, torch's constants by name."""
    if isinstance(value, fx.Node):
        return refs[value]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return _Torch(str(value).removeprefix("torch."))
    if isinstance(value, dict):
        return {key: _plain(v, refs) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(v, refs) for v in value)
    return [_plain(v, refs) for v in value] if isinstance(value, list) else value


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
