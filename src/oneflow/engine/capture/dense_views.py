"""Views by strides (``as_strided``) as views by shape. Strides are those of whole tensors in one process; a part of one
on a rank has others.

Pools give their result strides of their own, and what autograd does for that is zeros, two views by strides and a copy
between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.notes import copy_notes, set_val, val

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def without_strides(graph: fx.Graph) -> None:
    """Has views by strides of all elements of a tensor move its dims; others read memory in the order that was traced.

    Relies on a clean joint graph. Leaves the same values.
    """
    for node in list(graph.nodes):
        if node.target is aten.as_strided.default:
            source = argument(node, 0)
            if _lies_as(val(source), val(node)):
                node.replace_all_uses_with(source)
                graph.erase_node(node)
                continue
            flat = _flat(graph, node)
            made = _shaped(graph, node, flat) if flat is not None else None
            if made is not None:
                node.replace_all_uses_with(made)
                graph.erase_node(node)
            elif flat is not None:
                with graph.inserting_before(node):
                    lying = _call(graph, node, aten.contiguous.default, flat)
                offset = val(node).storage_offset()
                node.args, node.kwargs = (lying, argument(node, 1), argument(node, 2), offset), {}


def join_views(graph: fx.Graph) -> None:
    """A view of a view becomes one of what that is a view of, so that a split passes that the shape between them would
    not let through.

    Relies on a graph without writes. Leaves the same values, and views that nothing reads.
    """
    for node in graph.nodes:
        while node.target in _VIEWS and argument(node, 0).target in _VIEWS:
            node.target = aten.reshape.default
            node.update_arg(0, argument(argument(node, 0), 0))


def _lies_as(a: Tensor, b: Tensor) -> bool:
    is_same = a.shape == b.shape and a.storage_offset() == b.storage_offset()
    return is_same and all(size == 1 or x == y for size, x, y in zip(a.shape, a.stride(), b.stride()))


def _flat(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """All elements of the memory that a view reads, in its order; None where that has gaps."""
    source: Any = argument(node, 0)
    storage = val(source).untyped_storage()
    while val(source).numel() * val(source).itemsize != storage.nbytes() and _lies_in(source, storage):
        source = argument(source, 0)
    order = _order(val(source)) if val(source).numel() * val(source).itemsize == storage.nbytes() else None
    if order is None:
        return None
    with graph.inserting_before(node):
        moved = source if order == list(range(len(order))) else _call(graph, node, aten.permute.default, source, order)
        return _call(graph, node, aten.view.default, moved, [val(source).numel()])


def _lies_in(node: fx.Node, storage: Any) -> bool:
    before = node.args[0] if node.args else None
    return (
        isinstance(before, fx.Node)
        and isinstance(val(before), Tensor)
        and val(before).untyped_storage()._cdata == storage._cdata
    )


def _shaped(graph: fx.Graph, node: fx.Node, flat: fx.Node) -> fx.Node | None:
    """A view of all elements, by shape; None if this one leaves some out or has some twice."""
    made = val(node)
    order = _order(made)
    if order is None or made.numel() != val(flat).numel():
        return None
    back = sorted(range(len(order)), key=order.__getitem__)
    with graph.inserting_before(node):
        shaped = _call(graph, node, aten.view.default, flat, [made.shape[dim] for dim in order])
        return (
            shaped
            if order == back == list(range(len(order)))
            else _call(graph, node, aten.permute.default, shaped, back)
        )


def _order(value: Tensor) -> list[int] | None:
    """The dims of a tensor in the order in which they lie in memory, the widest strides first; None where there are
    gaps between elements. Dims of one element keep their places, as far as they can."""
    strides = value.stride()
    wide = sorted((dim for dim in range(value.dim()) if value.shape[dim] != 1), key=lambda dim: -strides[dim])
    expected = 1
    for dim in reversed(wide):
        if strides[dim] != expected:
            return None
        expected *= value.shape[dim]
    places = iter(wide)
    return [next(places) if value.shape[dim] != 1 else dim for dim in range(value.dim())] if value.numel() else None


def _call(graph: fx.Graph, like: fx.Node, target: Any, *args: Any) -> fx.Node:
    made = graph.call_function(target, args)
    copy_notes(made, like)
    set_val(made, target(*fx.node.map_arg(args, val)))
    return made
