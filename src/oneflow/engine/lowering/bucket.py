"""Buckets (gradient bucketing, as in DDP): the sums of many gradients become one all-reduce, begun when the last of
them is there and waited for when the first is read, so that communication overlaps with the backward pass.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.core.bucket_limits import BucketLimits
from oneflow.engine.ir.nodes import add_call, argument
from oneflow.engine.program.notes import boxing_note, copy_notes, local_note, set_local_note, val
from oneflow.engine.sharding.call import nbytes

FIRST_BYTES = 2**20  # the first is full sooner, so that the sums begin sooner


def put_in_buckets(
    graph: fx.Graph,
    limits: BucketLimits,
    early: bool,
    in_turn: bool = False,
    channels_last: Collection[str] = (),
) -> None:
    """Replaces the sums of gradients over the same ranks by buckets within ``limits``, in the order of the sums.
    ``early`` ones begin in the midst of the backward pass; where gradients are accumulated over micro-batches they
    cannot. ``in_turn`` they begin one after the other, so that ranks that run different programs, as the copies of a
    mirrored job may, begin them in the same order. The gradients of variables that are ``channels_last`` are summed in
    that memory format, which is the same on all ranks.

    Relies on a rank's graph in which a sum of a gradient is noted as that. Leaves none of these sums alone; all ranks
    have the same buckets.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    full: list[list[fx.Node]] = []
    open_buckets: dict[object, list[fx.Node]] = {}
    sizes: dict[object, int] = {}
    for node in list(graph.nodes):
        if node.target is not collective.all_reduce or local_note(node).gradient is None:
            continue
        summed = val(boxing_note(node).node)
        key, size = (argument(node, 2), summed.dtype), nbytes(summed)
        if key in open_buckets:
            is_full = (
                sizes[key] + size > limits.bytes
                or len(open_buckets[key]) == limits.tensors
                or (not full and sizes[key] >= FIRST_BYTES)
            )
            is_late = order[argument(node, 0)] > order[open_buckets[key][0]]  # boxed only behind the first sum
            if is_full or is_late:
                full.append(open_buckets.pop(key))
        open_buckets.setdefault(key, []).append(node)
        sizes[key] = size + (sizes[key] if len(open_buckets[key]) > 1 else 0)
    before: fx.Node | None = None
    for number, members in enumerate([*full, *open_buckets.values()]):
        places = tuple(place for place, node in enumerate(members) if local_note(node).gradient in channels_last)
        bucket = collective.Bucket(number, argument(members[0], 2), not in_turn, places)
        begun = _replace(graph, bucket, members, order, before, early)
        before = begun if in_turn else None


def _replace(
    graph: fx.Graph,
    bucket: collective.Bucket,
    members: list[fx.Node],
    order: dict[fx.Node, int],
    before: fx.Node | None,
    early: bool,
) -> fx.Node:
    """Puts a bucket in the place of its members; the node that begins it, behind ``before`` if that is given."""
    values: list[fx.Node] = [argument(node, 0) for node in members]
    last = max(values if before is None else [before, *values], key=lambda node: order[node])
    with graph.inserting_after(last) if early else graph.inserting_before(members[0]):
        begun = add_call(graph, collective.bucket_start, bucket, values)
    order[begun] = order[last]
    set_local_note(begun, replace(local_note(members[0]), members=tuple(local_note(node) for node in members)))
    with graph.inserting_before(members[0]):
        done = add_call(graph, collective.bucket_wait, bucket, begun)
        copy_notes(done, members[0])
        items = [graph.call_function(operator.getitem, (done, i)) for i in range(len(members))]
    for node, item in zip(members, items):
        copy_notes(item, node)
        order[item] = order[node]
        node.replace_all_uses_with(item)
        graph.erase_node(node)
    return begun


def multiply_in_place(graph: fx.Graph) -> None:
    """Lets matrix products that only a bucket reads be made where it wants them.

    Relies on buckets. Leaves the same values.
    """
    for start in [node for node in graph.nodes if node.target is collective.bucket_start]:
        bucket, values = argument(start, 0), argument(start, 1)
        for place, made in enumerate(values):
            if made.target is torch.ops.aten.mm.default and list(made.users) == [start] and values.count(made) == 1:
                made.target, made.args = collective.product_in, (bucket, place, *made.args)
