"""Clusters: neighbouring ops that only move memory become one call, forward and backward.

Layer norm with the residual before it, GELU with its bias, softmax with mask and dropout, sums of gradients, the tail
of a loss, casts of mixed precision. A cluster is never made around convolutions, products, attention, collectives,
draws of random bits, or anything that writes: those have kernels of their own, or an order that counts.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changed_by, changes, is_random
from oneflow.engine.ir.nodes import argument
from oneflow.engine.passes.clusters.cluster import Spec, call_cluster, make_cluster, spec_of
from oneflow.engine.passes.inplace import may_keep, write_over
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import argument_note, copy_notes, local_note, set_val, tensor, tensors, val

aten = torch.ops.aten
BYTES = 2**16
"""Clusters of smaller tensors spare too little."""
_MOST = 48  # members: kernels of more take long to compile and gain nothing
_FAR = 24  # nodes by which an op may be done earlier, such as the sum of a gradient behind the products that read it
_KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool)
_NUMBERS = ("rate", "unscale")

_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
}
_OTHERS = {  # beside what torch itself calls pointwise
    aten.hardswish.default,
    aten.hardswish_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardtanh_backward.default,
    aten.mish_backward.default,
    aten.elu_backward.default,
    aten.leaky_relu_backward.default,
    aten.softplus_backward.default,
    aten.mse_loss.default,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss.default,
    aten.ones_like.default,
    aten.zeros_like.default,
    aten.full_like.default,
    aten._to_copy.default,
    aten.clone.default,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.mean.default,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.var.correction,
    aten.var_mean.correction,
    aten._softmax.default,
    aten._softmax_backward_data.default,
    aten._log_softmax.default,
    aten._log_softmax_backward_data.default,
    aten.native_layer_norm.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm.default,
    aten.native_group_norm_backward.default,
    aten.nll_loss_forward.default,
    aten.nll_loss_backward.default,
}


@dataclass(eq=False)
class _Found:
    """A cluster while it is found: its members in order, where it stands, and whether something that is none of it
    reads it already; then it stays there."""

    members: list[fx.Node]
    place: int
    is_closed: bool = False
    outside: set[fx.Node] = field(default_factory=set)


def make_clusters(graph: fx.Graph, is_alone: bool) -> None:
    """Puts calls of clusters in the place of ops that only move memory.

    Relies on a section to which nothing but writing over is done any more; ``is_alone``: the values noted on its nodes
    lie as they will when it runs. Leaves the same values but for rounding.
    """
    for members, place in _Finder(graph).clusters():
        _replace(graph, members, place, is_alone)


# ------------------------------------------------------------------ what may be a member


def _is_op(node: fx.Node) -> bool:
    """Whether an op moves memory and does nothing else, on tensors alone."""
    target = node.target
    if (
        node.op != "call_function"
        or not isinstance(target, torch._ops.OpOverload)
        or target.namespace != "aten"
        or changes(node)
        or is_random(node)
    ):
        return False
    if target not in _VIEWS and target not in _OTHERS and torch.Tag.pointwise not in target.tags:
        return False
    made = tensors(node)
    return (
        bool(made)
        and all(one.dtype in _KINDS for one in made)
        and all(map(_is_tensor, node.all_input_nodes))
        and bool(node.all_input_nodes)
    )


def _is_tensor(node: fx.Node) -> bool:
    """Whether a value is a tensor, for all that is noted: what was boxed has no value noted."""
    note = argument_note(node)
    if note is not None:
        return note.key[0] not in _NUMBERS and tensor(node) is not None
    return bool(tensors(node)) or (
        node.op == "call_function" and node.target is not operator.getitem and local_note(node).boxing is not None
    )


def _is_work(node: fx.Node) -> bool:
    return node.target not in _VIEWS and node.target is not operator.getitem


# ------------------------------------------------------------------ finding


class _Finder:
    """Goes through a section once. A cluster grows at its end as long as nothing else has read it: it then stands at
    the place of its last member. Later an op may still be done with it, if all that it reads is there."""

    def __init__(self, graph: fx.Graph) -> None:
        self._order = list(graph.nodes)
        self._place = {node: i for i, node in enumerate(self._order)}
        self._memory: dict[fx.Node, Memory] = memories(graph)
        self._changed: defaultdict[Memory, list[int]] = defaultdict(list)
        for place, node in enumerate(self._order):
            for used in (
                node.all_input_nodes if may_keep(node) else changed_by(node) if node.op == "call_function" else ()
            ):
                self._changed[self._memory[used]].append(place)
        self._owner: dict[fx.Node, _Found] = {}
        self._found: list[_Found] = []

    def clusters(self) -> list[tuple[list[fx.Node], fx.Node]]:
        """Members, and the one at whose place they are done."""
        for place, node in enumerate(self._order):
            joined = self._joined(node, place)
            for used in node.all_input_nodes:
                owner = self._owner.get(used)
                if owner is not None and owner is not joined:
                    owner.is_closed = True
        return [
            (found.members, self._order[found.place])
            for found in self._found
            if found.members and _is_worth_it(found.members)
        ]

    def _joined(self, node: fx.Node, place: int) -> _Found | None:
        """The cluster that a node has become a member of."""
        if node.target is operator.getitem:
            owner = self._owner.get(argument(node, 0))
            return None if owner is None else self._add(owner, node)
        if not _is_op(node):
            return None
        owners = list(dict.fromkeys(self._owner[used] for used in node.all_input_nodes if used in self._owner))
        open_ones = [
            one for one in owners if not one.is_closed and self._is_alike(one, node) and self._may_move(one, place)
        ]
        if open_ones and sum(len(one.members) for one in open_ones) < _MOST:
            return self._add(self._merged(open_ones, place), node)
        for owner in reversed(owners):
            if self._may_hoist(owner, node, place):
                return self._add(owner, node)
        if node.target in _VIEWS:
            return None
        self._found.append(_Found([], place))
        return self._add(self._found[-1], node)

    def _add(self, found: _Found, node: fx.Node) -> _Found:
        found.members.append(node)
        found.outside.update(used for used in node.all_input_nodes if self._owner.get(used) is not found)
        self._owner[node] = found
        return found

    def _merged(self, ones: list[_Found], place: int) -> _Found:
        first, *others = ones
        for other in others:
            first.members += other.members
            first.outside |= other.outside
            self._owner.update(dict.fromkeys(other.members, first))
            other.members = []
        first.members.sort(key=self._place.__getitem__)
        first.outside.difference_update(first.members)
        first.place = place
        return first

    def _is_alike(self, found: _Found, node: fx.Node) -> bool:
        """Whether a node is of the same part of a step: what is made again for the backward pass must not be made
        before."""
        return local_note(found.members[0]).section == local_note(node).section and _device(
            found.members[0]
        ) == _device(node)

    def _may_move(self, found: _Found, place: int) -> bool:
        return not any(self._is_changed(used, found.place, place) for used in found.outside)

    def _may_hoist(self, found: _Found, node: fx.Node, place: int) -> bool:
        if (
            place - found.place > _FAR
            or len(found.members) >= _MOST
            or not self._is_alike(found, node)
            or not found.is_closed
        ):
            return False
        others = [used for used in node.all_input_nodes if self._owner.get(used) is not found]
        return all(
            self._stands_at(used) < found.place and not self._is_changed(used, found.place, place) for used in others
        )

    def _stands_at(self, node: fx.Node) -> int:
        owner = self._owner.get(node)
        return self._place[node] if owner is None else owner.place

    def _is_changed(self, node: fx.Node, after: int, before: int) -> bool:
        """Whether a value may be written over between two places."""
        places = self._changed.get(self._memory[node], [])
        return bisect_right(places, after) < bisect_left(places, before)


def _device(node: fx.Node) -> str:
    return tensors(node)[0].device.type


def _is_worth_it(members: list[fx.Node]) -> bool:
    sizes = [one.numel() * one.itemsize for node in members for one in tensors(node)]
    return sum(map(_is_work, members)) > 1 and max(sizes) >= BYTES


# ------------------------------------------------------------------ graphs


def _replace(graph: fx.Graph, found: list[fx.Node], place: fx.Node, is_alone: bool) -> None:
    """Puts the call of a cluster in its place. Views of what it makes, which others read, are taken behind it: it gives
    memory of its own only, each piece once."""
    members, views, read = _without_views(found)
    if not _is_worth_it(members):
        return
    inside = set(members)
    inputs = list(dict.fromkeys(used for node in members for used in node.all_input_nodes if used not in inside))
    outputs = [
        node
        for node in members
        if node not in views and (node in read or any(user not in inside for user in node.users))
    ]
    body, reference = _body(members, inputs, outputs), _body(members, inputs, outputs)
    write_over(reference)
    cluster: Any = make_cluster(body, reference, _specs(inputs) if is_alone else None)
    new: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(place):
        call = graph.call_function(call_cluster, (cluster, *inputs))
        copy_notes(call, outputs[-1])
        set_val(call, tuple(val(node) for node in outputs))
        for index, node in enumerate(outputs):
            new[node] = graph.call_function(operator.getitem, (call, index))
            copy_notes(new[node], node)
        for node in views:
            new[node] = graph.node_copy(node, lambda used: new.get(used, used))
    kept = inside | set(new.values())
    for node, made in new.items():
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in kept)
    for node in reversed(found):
        graph.erase_node(node)


def _without_views(found: list[fx.Node]) -> tuple[list[fx.Node], list[fx.Node], set[fx.Node]]:
    """Members but for views that only others read; all views that others read, to be made behind the cluster; and what
    these look at."""
    inside, views = set(found), list[fx.Node]()
    read: set[fx.Node] = set()
    for node in reversed(found):
        if node.target in _VIEWS and (node in read or any(user not in inside for user in node.users)):
            views.insert(0, node)
            read.update(node.all_input_nodes)
            if all(user not in inside for user in node.users):
                inside.remove(node)
    return [node for node in found if node in inside], views, read


def _body(members: list[fx.Node], inputs: list[fx.Node], outputs: list[fx.Node]) -> fx.Graph:
    body: fx.Graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        new[node] = body.placeholder("argument")
        copy_notes(new[node], node)
    for node in members:
        new[node] = body.node_copy(node, new.__getitem__)
    body.output(tuple(new[node] for node in outputs))
    return body


def _specs(inputs: list[fx.Node]) -> list[Spec] | None:
    made = [tensor(node) for node in inputs]
    return None if None in made else [spec_of(one) for one in made if one is not None]
