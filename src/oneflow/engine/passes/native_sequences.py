"""Ops of prediction that follow each other become one call, a sequence that the C extension runs in planned memory
(``ops/native_sequence.py``)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import fused_conv
from oneflow.engine.ops.cpu.native_sequence import OPS, At, Op, Sequence, call_sequence
from oneflow.engine.program.notes import copy_notes, set_val, tensor, val

aten = torch.ops.aten
_VIEWS = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.squeeze.dims,
    aten.flatten.using_ints,
)


def make_sequences(graph: fx.Graph) -> None:
    """Puts one call in the place of ops of ``fused_conv.py`` with none of another kind between them.

    Relies on a finished predict step. Leaves the same values. Where the extension is not built, the graph as it was.
    """
    if native.conv is None:
        return
    group: list[fx.Node] = []
    for node in list(graph.nodes):
        if node.target in OPS or (group and _is_flat(node, group)):
            group.append(node)
        elif group and node.op != "placeholder":
            _replace(graph, group)
            group = []


def _is_flat(node: fx.Node, group: list[fx.Node]) -> bool:
    """Whether a node looks at pictures of one pixel as rows, and only linear layers of prediction read those."""
    if (
        node.target not in _VIEWS
        or node.args[0] not in group
        or not all(user.target is fused_conv.linear for user in node.users)
    ):
        return False
    given, made = tensor(node.args[0]), tensor(node)  # type: ignore[arg-type]
    if given is None or made is None or given.dim() != 4:
        return False
    return tuple(given.shape[2:]) == (1, 1) and made.dim() == 2 and made.shape[1] == given.shape[1]


def _replace(graph: fx.Graph, group: list[fx.Node]) -> None:
    while group[-1].target in _VIEWS:  # with no reader behind it in the group
        group.pop()
    inputs: list[fx.Node] = []
    for node in group:
        inputs += [used for used in node.all_input_nodes if used not in group and used not in inputs]
    numbers = {node: At(number) for number, node in enumerate([*inputs, *group])}
    ops = tuple(_op(node, numbers) for node in group)
    given = [node for node in group if any(user not in numbers for user in node.users)]
    sequence: Any = Sequence(len(inputs), ops, tuple(numbers[node].number for node in given))
    with graph.inserting_after(group[-1]):
        call = graph.call_function(call_sequence, (sequence, *inputs))
    copy_notes(call, group[-1])
    set_val(call, tuple(val(node) for node in given))
    for index, node in reversed(list(enumerate(given))):
        with graph.inserting_after(call):
            item = graph.call_function(operator.getitem, (call, index))
        copy_notes(item, node)
        set_val(item, val(node))
        node.replace_all_uses_with(item, delete_user_cb=lambda user: user not in numbers)
    for node in reversed(group):
        graph.erase_node(node)


def _op(node: fx.Node, numbers: dict[fx.Node, At]) -> Op:
    def plain(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return numbers[argument]
        return tuple(argument) if isinstance(argument, (list, tuple)) else argument

    if node.target in _VIEWS:
        return Op(fused_conv.flat, (plain(node.args[0]),))
    return Op(node.target, tuple(plain(argument) for argument in node.args))  # type: ignore[arg-type]
