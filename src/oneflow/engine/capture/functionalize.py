"""Functionalization of a joint graph: what writes into a value becomes an op that makes a new one.

A value on ranks may be boxed, which is a copy: what is written into one of the two would be lost to the other. A write
into a view is one into what it is a view of, and into all other views of that: whoever reads one of them afterwards
reads the new value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx

from oneflow.engine.capture.cleanup import drop_unused, writes
from oneflow.engine.capture.dense_views import join_views, without_strides
from oneflow.engine.core.errors import GraphError
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.notes import copy_notes, joint_note, set_val, val

aten = torch.ops.aten
_ALIAS = torch.ops.oneflow.layout.default
_RESHAPES = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.expand.default, aten.contiguous.default,
}  # fmt: skip
_SCATTERS: dict[Any, Any] = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""The ops that give a tensor with another value in the place of such a view of it. They take what the view takes."""


_FUNCTIONAL: dict[Any, Any] = {
    aten.transpose_.default: aten.transpose.int,
    aten.pow_.Scalar: aten.pow.Tensor_Scalar,
    aten.pow_.Tensor: aten.pow.Tensor_Tensor,
    aten.floor_divide_.Tensor: aten.floor_divide.default,
}
"""The ops that make what these write, where their overloads have another name."""


def without_writes(graph: fx.Graph) -> None:
    """Ops that change a value made by another op become ops that make a new one; those that write into arguments stay.

    Relies on a clean joint graph. Leaves one in which a value never changes, so that it may be boxed.
    """
    _make_views(graph)
    without_strides(graph)
    _Values(graph).rewrite()
    join_views(graph)
    drop_unused(graph)


def _make_views(graph: fx.Graph) -> None:
    """Ops such as ``squeeze_`` change no memory, but how their argument lies in it: they become views."""
    for node in list(graph.nodes):
        if node.op == "call_function" and writes(node) and torch.Tag.inplace_view in node.target.tags:
            _require_first(node)
            changed, node.target = argument(node, 0), _functional(node)
            _replace_later(graph, node, changed)


def _replace_later(graph: fx.Graph, node: fx.Node, changed: fx.Node) -> None:
    later = False
    for other in graph.nodes:
        if later:
            other.replace_input_with(changed, node)
        later = later or other is node


def _functional(node: fx.Node) -> Any:
    """The op that makes what this one writes."""
    op: Any = node.target
    if op in _FUNCTIONAL:
        return _FUNCTIONAL[op]
    _, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, op.namespace), name.removesuffix("_"), None)
    found = getattr(packet, op._overloadname, None) if name.endswith("_") else None
    if found is None:
        raise _refused(node, f"{op} writes into a tensor that another op made")
    return found


def _require_first(node: fx.Node) -> None:
    """Refuses what writes into other arguments than its first, or into a list of tensors."""
    op: Any = node.target
    arguments = op._schema.arguments
    changed = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    if changed != [arguments[0].name] or not isinstance(argument(node, 0), fx.Node):
        raise _refused(node, f"{op} writes into its argument {changed[0]!r}")


def _refused(node: fx.Node, what: str) -> GraphError:
    origin = joint_note(node).origin
    line, place = (f"{origin.line}: ", f" in {origin.name!r} ({origin.kind})") if origin is not None else ("", "")
    return GraphError(
        f"{line}{what}{place}, which a graph on several ranks cannot do; write it with an op that gives a new tensor"
    )


class _Values:
    """What every node of a graph holds now, while its nodes are gone through in order.

    Nodes that lie in the memory of their first argument, their parent, are its views; what is no view is a root. A root
    has a version for every write into its memory. A node that was made at an earlier version is made again before it is
    read.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._parents: dict[fx.Node, fx.Node] = {}
        self._same: dict[fx.Node, fx.Node] = {}  # what an op wrote into, which it stands for itself
        for node in graph.nodes:
            if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
                continue
            source = self._same.get(node.args[0], node.args[0])
            if writes(node):
                self._same[node] = source
            elif _is_view(node) and (node.target is not operator.getitem or source in self._parents):
                self._parents[node] = source
        self._versions: dict[fx.Node, int] = {}
        self._writers: dict[fx.Node, fx.Node] = {}
        self._now: dict[fx.Node, tuple[int, fx.Node]] = {}
        self._following = next(iter(graph.nodes))  # what comes behind the write that is looked at

    def rewrite(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "call_function" and writes(node):
                self._write(node)
                continue
            self._read_inputs(node)
            if node in self._parents:
                self._now[node] = self._versions.get(self._root(node), 0), node

    def _root(self, node: fx.Node) -> fx.Node:
        node = self._same.get(node, node)
        while node in self._parents:
            node = self._parents[node]
        return node

    def _read_inputs(self, node: fx.Node) -> None:
        node.args, node.kwargs = fx.node.map_arg((node.args, node.kwargs), lambda read: self._read(read, node))

    def _read(self, node: fx.Node, reader: fx.Node) -> fx.Node:
        """The node that has what this one holds now: itself, or one that is made in front of the reader."""
        node = self._same.get(node, node)
        root = self._root(node)
        version, now = self._now.get(node, (0, node))
        if version == self._versions.get(root, 0):
            return now
        parent, op = self._read(self._parents[node], reader), cast(Callable[..., Any], node.target)
        with self.graph.inserting_before(reader):
            made = self.graph.call_function(op, (parent, *node.args[1:]), node.kwargs)
        self._note(made, val(node), self._writers[root])
        self._now[node] = self._versions[root], made
        return made

    @staticmethod
    def _note(made: fx.Node, value: Any, like: fx.Node) -> None:
        copy_notes(made, like)
        set_val(made, value)

    # -------------------------------------------------------------- writes

    def _write(self, node: fx.Node) -> None:
        _require_first(node)
        changed, self._following = self._same[node], node.next
        root = self._root(changed)
        if changed is root and root.op == "placeholder":
            self._read_inputs(node)
            node.update_arg(0, root)
            values = [(root, node)]
        else:
            node.target = _functional(node)
            is_whole = (
                node.target is aten.copy.default and self._root(argument(node, 1)).op != "placeholder"
            )  # which may be written into later
            self._read_inputs(node)
            values = self._put_back(node, self._made(node, val(changed), is_whole))
        self._writers[root] = node
        self._versions[root] = self._versions.get(root, 0) + 1
        for holder, value in values:
            self._now[holder] = self._versions[root], value
        if root.op == "placeholder" and changed is not root:
            self._add(node, aten.copy_.default, (root, values[-1][1]), val(root))

    def _add(self, writer: fx.Node, target: Any, args: tuple[Any, ...], value: Tensor) -> fx.Node:
        """A call behind a write, and behind what was added for it already."""
        with self.graph.inserting_before(self._following):
            made = self.graph.call_function(target, args)
        self._note(made, value, writer)
        return made

    def _made(self, node: fx.Node, held: Tensor, is_copy: bool) -> fx.Node:
        """What a write has made of a value, in the dtype that this has. Where all of it is a copy, that is what was
        copied."""
        if is_copy and (val(argument(node, 1)).shape, val(argument(node, 1)).dtype) == (held.shape, held.dtype):
            return argument(node, 1)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), val)
        set_val(node, cast(Callable[..., Any], node.target)(*args, **kwargs))
        if val(node).dtype == held.dtype:
            return node
        made = self._add(node, aten._to_copy.default, (node,), held)
        made.kwargs = {"dtype": held.dtype}
        return made

    def _put_back(self, writer: fx.Node, made: fx.Node) -> list[tuple[fx.Node, fx.Node]]:
        """What a view that is written to, and everything that it is a view of, hold when its value is ``made``; the
        root comes last."""
        changed = self._same[writer]
        found = [(changed, made)]
        while changed in self._parents:
            view, parent = changed, self._parents[changed]
            if not isinstance(val(parent), Tensor):
                parent = self._parents[parent]
            made = self._inverse(view, parent, made, writer)
            found.append((parent, made))
            changed = parent
        return found

    def _inverse(self, view: fx.Node, parent: fx.Node, part: fx.Node, writer: fx.Node) -> fx.Node:
        """The parent with ``part`` in the place of a view of it."""
        if view.target is _ALIAS:
            return part
        if view.target in _INVERSES:
            target, args = _INVERSES[view.target](view, parent)
            return self._add(writer, target, (part, *args), val(parent))
        pieces = argument(view, 0)
        target, args = (
            _place_of_piece(pieces, argument(view, 1))
            if view.target is operator.getitem
            else (_SCATTERS.get(view.target), view.args[1:])
        )
        if target is None:
            maker = pieces.target if view.target is operator.getitem else view.target
            raise _refused(writer, f"a write into a view of a tensor, made by {maker}")
        return self._add(writer, target, (self._read(parent, writer), part, *args), val(parent))


def _is_view(node: fx.Node) -> bool:
    """Whether what a node gives lies in the memory of its first argument."""
    made, source = _first(val(node)), _first(val(argument(node, 0)))
    return made is not None and source is not None and made.untyped_storage()._cdata == source.untyped_storage()._cdata


def _first(value: Any) -> Tensor | None:
    value = next(iter(value), None) if isinstance(value, (tuple, list)) else value
    return value if isinstance(value, Tensor) else None


def _place_of_piece(pieces: fx.Node, number: int) -> tuple[Any, tuple[Any, ...]]:
    """The op, and its arguments, that put back one of the pieces of a tensor."""
    rest = pieces.args[2:]
    if pieces.target is aten.unbind.int:
        return aten.select_scatter.default, (pieces.args[1] if len(pieces.args) > 1 else 0, number)
    if pieces.target in (aten.split.Tensor, aten.split_with_sizes.default):
        dim = argument(pieces, 2) if rest else 0
        sizes = [piece.shape[dim] for piece in val(pieces)]
        return aten.slice_scatter.default, (dim, sum(sizes[:number]), sum(sizes[: number + 1]))
    return None, ()


def _reshaped(view: fx.Node, parent: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    return aten.reshape.default, (list(val(parent).shape),)


def _permuted(view: fx.Node, parent: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    order = [dim % val(parent).dim() for dim in argument(view, 1)]
    return aten.permute.default, (sorted(range(len(order)), key=order.__getitem__),)


_INVERSES: dict[Any, Callable[[fx.Node, fx.Node], tuple[Any, tuple[Any, ...]]]] = {
    **dict.fromkeys(_RESHAPES, _reshaped),
    aten.permute.default: _permuted,
    aten.transpose.int: lambda view, parent: (aten.transpose.int, view.args[1:]),
    aten.t.default: lambda view, parent: (aten.t.default, ()),
}
"""How to get from a view of all elements of a tensor back to that tensor: the op, and its arguments."""
