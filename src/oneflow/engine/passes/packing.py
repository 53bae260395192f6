"""Convolutions of a predict job on the CPU run on filters that oneDNN has laid out for them (weight prepacking), and
add a residual as they go.

Activations stay ops of their own, in place: oneDNN's make 0 of a NaN, which would hide that a net has diverged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.engine.ir.nodes import argument
from oneflow.engine.passes.invariant import Invariants
from oneflow.engine.program.notes import copy_notes, forget_val, local_note, set_val, tensor, val

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn


def pack_convolutions(graph: fx.Graph, invariants: Invariants) -> None:
    """Has oneDNN's own ops compute what convolutions of invariant filters do, and a sum with what they gave.

    Relies on a lowered predict step. Leaves the same values; packed filters are among the invariants.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and _can_pack(node, invariants):
            _pack(graph, node, invariants)
    for node in list(graph.nodes):
        if node.target is aten.add.Tensor:
            _add_as_it_goes(graph, node, invariants)


def _can_pack(conv: fx.Node, invariants: Invariants) -> bool:
    images, weight, bias, *_, transposed, _, _ = conv.args
    if transposed or weight not in invariants or not (bias is None or bias in invariants):
        return False
    tensors = [val(conv), val(argument(conv, 1))]
    plain = all(t.dtype is torch.float32 and t.device.type == "cpu" and t.dim() == 4 and t.numel() for t in tensors)
    return plain and all(images_here(conv)) and _lies_as_onednn_gives(tensors[0])


def images_here(conv: fx.Node) -> tuple[int, ...]:
    """The shape of the images that a convolution is given on this rank, where its part may be empty."""
    local = local_note(conv).local
    return local.input_shape(0) if local is not None else tuple(val(argument(conv, 0)).shape)


def _lies_as_onednn_gives(value: torch.Tensor) -> bool:
    """The strides of a result, since views that read it were made for those it has."""
    return value.stride() == torch.empty(value.shape, device="meta", memory_format=torch.channels_last).stride()


def _pack(graph: fx.Graph, conv: fx.Node, invariants: Invariants) -> None:
    images, weight, bias, stride, padding, dilation, _, _, groups = conv.args
    with graph.inserting_before(conv):
        shape = list(images_here(conv))
        packed = graph.call_function(
            mkldnn._reorder_convolution_weight.default, (weight, padding, stride, dilation, groups, shape)
        )
    copy_notes(packed, conv)
    forget_val(packed)  # its layout is oneDNN's secret
    invariants.add(packed)
    conv.target = mkldnn._convolution_pointwise.default
    conv.args = (images, packed, bias, padding, stride, dilation, groups, "none", [], "")


def _add_as_it_goes(graph: fx.Graph, total: fx.Node, invariants: Invariants) -> None:
    """conv(x) + y becomes one op in the place of the sum, by then both x and y are there."""
    first, second = argument(total, 0), argument(total, 1)
    for conv, other in ((first, second), (second, first)):
        if not total.kwargs and _can_add(conv, other) and invariants.may_move(argument(conv, 0)):
            images, weight, bias, *numbers = conv.args[:7]
            total.target = mkldnn._convolution_pointwise.binary
            total.args = (images, other, weight, bias, *numbers, "add", 1.0, None, [], "")
            made = val(total)
            copy_notes(total, conv)
            set_val(total, made)
            graph.erase_node(conv)
            return


def _can_add(conv: Any, other: Any) -> bool:
    if not isinstance(conv, fx.Node) or not isinstance(other, fx.Node) or conv is other:
        return False
    if conv.target is not mkldnn._convolution_pointwise.default or len(conv.users) > 1:
        return False
    mine, its = val(conv), tensor(other)
    return its is not None and (mine.shape, mine.stride(), mine.dtype) == (its.shape, its.stride(), its.dtype)
