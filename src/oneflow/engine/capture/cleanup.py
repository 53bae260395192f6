"""Clean-up of a joint graph: drops what autograd's bookkeeping left behind. Each pass keeps every value as it was.

Dead code elimination (``drop_unused``), common subexpression elimination (``share_equal_nodes``), and peephole rules
for aliases, transposes that undo each other and sums that keep dims only to lose them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops import structure  # noqa: F401 - registers oneflow::layout
from oneflow.engine.program.notes import set_val, tensor, val

aten = torch.ops.aten

_SAME_VALUE = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}
_LAYOUT = torch.ops.oneflow.layout.default
_RESHAPES = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.expand.default,
    aten.permute.default,
}
_UNSAFE_SPLITS: dict[Any, Any] = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


def clean(graph: fx.Graph) -> None:
    """All clean-up passes in order.

    Relies on a joint graph with its output node. Leaves one of the same values, in which every node is read or writes.
    """
    declare_views(graph)
    drop_aliases(graph)
    cancel_transposes(graph)
    fold_kept_sums(graph)
    share_equal_nodes(graph)
    drop_unused(graph)


def declare_views(graph: fx.Graph) -> None:
    """Replaces unsafe splits by splits. Their pieces are views too, but the schema hides that from autograd, which has
    run by now."""
    for node in graph.nodes:
        node.target = _UNSAFE_SPLITS.get(node.target, node.target)


def drop_aliases(graph: fx.Graph) -> None:
    """``detach`` and reshapes to the shape a value has already become the value itself. So does a copy of a constant,
    if nothing is written into it: else every step would go on from what the one before it has written."""
    written = {_storage(arg) for node in graph.nodes if node.op == "call_function" for arg in changed_by(node)}
    for node in list(graph.nodes):
        if node.target is aten.lift_fresh_copy.default and _storage(node) in written:
            node.target = aten.clone.default
        elif node.op == "call_function" and (node.target in _SAME_VALUE or _keeps_shape(node)):
            node.replace_all_uses_with(argument(node, 0))
            graph.erase_node(node)


def _keeps_shape(node: fx.Node) -> bool:
    if node.target not in _RESHAPES:
        return False
    before, after = val(argument(node, 0)), val(node)
    return before.shape == after.shape and before.stride() == after.stride()


def drop_layouts(graph: fx.Graph) -> None:
    """On one device every layout is the same."""
    for node in list(graph.nodes):
        if node.target is _LAYOUT:
            node.replace_all_uses_with(argument(node, 0))
            graph.erase_node(node)


def cancel_transposes(graph: fx.Graph) -> None:
    """t(t(x)) becomes x, so that a weight's gradient comes out in the weight's own layout; so do other moves of dims
    that undo each other, such as the permutes that channels-last layers leave between them."""
    for node in list(graph.nodes):
        if node.op == "call_function" and _undoes(node, argument(node, 0) if node.args else None):
            node.replace_all_uses_with(argument(argument(node, 0), 0))


def _undoes(node: fx.Node, before: Any) -> bool:
    """Whether a node brings the dims that the one before it has moved back to their places."""
    back = _order(node)
    order = _order(before) if back is not None and isinstance(before, fx.Node) else None
    return order is not None and back is not None and [order[dim] for dim in back] == list(range(len(order)))


def _order(node: fx.Node) -> list[int] | None:
    """The dims of a node's argument in the order that it gives them; None if it does something else."""
    if node.target is aten.permute.default:
        return [dim % len(argument(node, 1)) for dim in argument(node, 1)]
    if node.target not in (aten.t.default, aten.transpose.int):
        return None
    dims = list(range(val(node).dim()))
    if node.target is aten.t.default:
        return dims[::-1]
    first, second = (argument(node, place) % len(dims) for place in (1, 2))
    dims[first], dims[second] = dims[second], dims[first]
    return dims


def fold_kept_sums(graph: fx.Graph) -> None:
    """A sum that keeps its dims only for a view to drop them becomes a sum that does not."""
    for node in list(graph.nodes):
        if node.target is not aten.view.default or argument(node, 0).target is not aten.sum.dim_IntList:
            continue
        total = argument(node, 0)
        if len(total.users) == 1 and len(total.args) == 3 and total.args[2] and _drops_dims(total, node):
            total.args = total.args[:2]
            set_val(total, val(node))
            node.replace_all_uses_with(total)
            graph.erase_node(node)


def _drops_dims(total: fx.Node, view: fx.Node) -> bool:
    shape = val(argument(total, 0)).shape
    dims = {d % len(shape) for d in argument(total, 1)}
    return tuple(val(view).shape) == tuple(n for i, n in enumerate(shape) if i not in dims)


def share_equal_nodes(graph: fx.Graph) -> None:
    """Two pure nodes of the same op on the same inputs become one."""
    memory = {_storage(arg) for node in graph.nodes for arg in changed_by(node)}
    written = {node for node in graph.nodes if _storage(node) in memory and _storage(node) is not None}
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or changes(node) or is_random(node):
            continue
        if node in written or any(n in written for n in node.all_input_nodes):
            continue
        key = (node.target, _frozen(node.args), _frozen(node.kwargs))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        else:
            seen[key] = node


def changed_by(node: fx.Node) -> list[fx.Node]:
    """The inputs of a node that it may change."""
    return (
        [argument(node, 3), argument(node, 4)]
        if _updates_statistics(node)
        else node.all_input_nodes
        if writes(node)
        else []
    )


def _storage(node: fx.Node) -> int | None:
    """What memory a node's value lies in; views share it."""
    made = tensor(node)
    return None if made is None else made.untyped_storage()._cdata


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in sorted(value.items()))
    return value, type(value)


def is_random(node: fx.Node) -> bool:
    """True for nodes that draw from a generator."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def writes(node: fx.Node) -> bool:
    """True for nodes that change one of their inputs."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def changes(node: fx.Node) -> bool:
    """True for nodes that write, and for batch norm that updates its running statistics, of which its schema does not
    tell."""
    return writes(node) or _updates_statistics(node)


def _updates_statistics(node: fx.Node) -> bool:
    return node.target is aten.native_batch_norm.default and bool(node.args[5]) and node.args[3] is not None


def drop_unused(graph: fx.Graph) -> None:
    """Removes nodes that nothing reads, writers aside, and calls that other ranks meet: they wait for this one, which
    needs no result."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and not changes(node) and not _is_met(node):
            graph.erase_node(node)


def _is_met(node: fx.Node) -> bool:
    return getattr(node.target, "__module__", "").startswith(collective.__name__)
