"""Convolutions and linear layers of a predict program on the CPU take along what follows them: bias, the sum with a
residual, an activation.

Their filters, which depend on variables alone, are packed once. ``ops/fused_conv.py`` keeps the aten ops that a fused
one stands for. Results of convolutions lie in channels_last memory, which no program relies on; what a program returns
lies as it was traced.
"""

from __future__ import annotations

import operator
from math import inf
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changed_by, writes
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import fused_conv
from oneflow.engine.ops.cpu.fused_conv import TAPS, Activation
from oneflow.engine.ops.cpu.winograd import LANES
from oneflow.engine.passes.invariant import Invariants
from oneflow.engine.passes.packing import images_here
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import copy_notes, forget_val, local_note, set_val, tensor, val

aten = torch.ops.aten
_NONE: Activation = ("none", 0.0, 0.0)
_SUMS = (aten.add.Tensor, aten.add_.Tensor)
_SIMPLE: dict[Any, Activation] = {
    aten.relu: ("clip", 0.0, inf),
    aten.hardswish: ("hardswish", 0.0, 0.0),
    aten.hardsigmoid: ("hardsigmoid", 0.0, 0.0),
    aten.silu: ("silu", 0.0, 0.0),
    aten.sigmoid: ("sigmoid", 0.0, 0.0),
}
_ACTIVATIONS: dict[Any, Activation] = {
    overload: found
    for packet, found in _SIMPLE.items()
    for overload in (packet.default, getattr(aten, f"{packet.__name__}_").default)
}
_CLIPS = (aten.hardtanh.default, aten.hardtanh_.default)
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_TRANSPOSED, _GROUPS = 6, 8


def fuse_convolutions(graph: fx.Graph, invariants: Invariants) -> None:
    """Puts one op in the place of a convolution or a linear layer whose filters are invariant, with the sum and the
    activation behind it.

    Relies on a lowered predict step. Leaves the same values but for rounding; packed filters are among the invariants.
    Where the C extension is not built, the graph as it was.
    """
    if native.conv is None:
        return
    fusion = _Fusion(graph, invariants)
    for node in list(graph.nodes):
        if node.target is aten.convolution.default:
            fusion.convolution(node)
        elif node.target in (aten.mm.default, aten.addmm.default):
            fusion.linear(node)
        elif node.target is aten.mean.dim:
            fusion.mean(node)
        elif node.target is aten.max_pool2d_with_indices.default:
            fusion.max_pool(node)
        elif node.target is aten.mul.Tensor:
            fusion.scale(node)
    fusion.restore_outputs()


class _Fusion:
    """One pass over a graph: who may move where, by the memory that nodes read and write."""

    def __init__(self, graph: fx.Graph, invariants: Invariants) -> None:
        self._graph, self._invariants = graph, invariants
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._order = list(graph.nodes)
        self._memory: dict[fx.Node, Memory] = memories(graph)
        self._made: list[fx.Node] = []

    # -------------------------------------------------------------- convolutions

    def convolution(self, conv: fx.Node) -> None:
        images, weight, bias = (argument(conv, place) for place in range(3))
        if not self._has_filters(conv, weight, bias) or val(conv).dim() != 4 or not all(images_here(conv)):
            return
        images, before = self._unpadded(conv)
        is_depthwise = _is_depthwise(conv)
        if conv.args[_TRANSPOSED] or not (is_depthwise or conv.args[_GROUPS] == 1):
            return
        chain, residual, activation = self._chain(conv, [images], takes_sum=not is_depthwise)
        stride, dilation, made = argument(conv, 3), argument(conv, 5), _made_here(conv)
        with self._graph.inserting_before(chain[-1]):
            if is_depthwise:
                packed = self._invariant(fused_conv.packed_taps, weight, conv)
                geometry = (*val(weight).shape[2:], *stride, *before)
                fused = self._graph.call_function(
                    fused_conv.depthwise, (images, packed, bias, geometry, made, activation)
                )
            elif _is_for_winograd(conv, activation):
                packed = self._invariant(fused_conv.winograd_filters, weight, conv)
                fused = self._graph.call_function(
                    fused_conv.winograd, (images, packed, bias, residual, before, made, activation)
                )
            else:
                packed, shift = self._invariant(fused_conv.packed_filters, weight, conv), self._filled(bias, conv)
                geometry = (*val(weight).shape[2:], *stride, *before, *dilation)
                fused = self._graph.call_function(
                    fused_conv.convolution, (images, packed, shift, residual, geometry, made, activation)
                )
        self._replace(chain, fused, conv)

    def _has_filters(self, node: fx.Node, weight: Any, bias: Any) -> bool:
        if weight not in self._invariants or not (bias is None or bias in self._invariants):
            return False
        return all(t.dtype is torch.float32 and t.device.type == "cpu" and t.numel() for t in (val(node), val(weight)))

    def _unpadded(self, conv: fx.Node) -> tuple[fx.Node, tuple[int, int]]:
        """What a convolution reads, and the zeros above and left of it: those of a padding before it are taken as its
        own."""
        images, (high, wide) = argument(conv, 0), argument(conv, 4)
        if images.target is not aten.constant_pad_nd.default or len(images.users) > 1 or images.kwargs:
            return images, (high, wide)
        pads = argument(images, 1)
        value = images.args[2] if len(images.args) > 2 else 0
        if len(pads) != 4 or min(pads) < 0 or value != 0 or not self._may_read(argument(images, 0), images, conv):
            return images, (high, wide)
        return argument(images, 0), (high + pads[2], wide + pads[0])

    def mean(self, node: fx.Node) -> None:
        """The mean of a picture that a convolution has made, or what came of one: torch's is slow in channels_last
        memory."""
        images, dims = argument(node, 0), argument(node, 1)
        value = tensor(images)
        if (
            not self._made
            or node.kwargs
            or value is None
            or value.dim() != 4
            or value.dtype is not torch.float32
            or value.device.type != "cpu"
        ):
            return
        if sorted(dim % 4 for dim in dims) == [2, 3]:
            node.target, node.args = fused_conv.mean, (images, len(node.args) > 2 and bool(node.args[2]))

    def max_pool(self, node: fx.Node) -> None:
        """The maxima of pictures that a convolution has made, if nobody asks where they were."""
        images, readers = argument(node, 0), list(node.users)
        across, stride, before, apart, is_high = _pool_arguments(node)
        if (
            images not in self._made
            or apart != (1, 1)
            or is_high
            or not all(one.target is operator.getitem and one.args[1] == 0 for one in readers)
        ):
            return
        made = val(node)[0]
        with self._graph.inserting_before(node):
            pool = self._graph.call_function(
                fused_conv.max_pool, (images, (*across, *stride, *before), tuple(made.shape[2:]))
            )
        copy_notes(pool, node)
        set_val(pool, torch.empty_like(made, memory_format=torch.channels_last))
        self._made.append(pool)
        self._place[pool] = self._place[node]
        for reader in readers:
            self._memory[pool] = self._memory[reader]
            reader.replace_all_uses_with(pool)
            self._graph.erase_node(reader)
        self._graph.erase_node(node)

    def scale(self, node: fx.Node) -> None:
        """A picture that a convolution has made times a factor for each channel, as squeeze-and-excite has it."""
        first, second = argument(node, 0), node.args[1]
        for images, factors in ((first, second), (second, first)):
            if (
                images not in self._made
                or not isinstance(images, fx.Node)
                or not isinstance(factors, fx.Node)
                or node.kwargs
            ):
                continue
            its = tensor(factors)
            if its is not None and its.dtype is torch.float32 and its.shape == (*val(images).shape[:2], 1, 1):
                node.target, node.args = fused_conv.scale, (images, factors)
                set_val(node, torch.empty_like(val(node), memory_format=torch.channels_last))
                self._made.append(node)
                return

    # -------------------------------------------------------------- linear layers

    def linear(self, product: fx.Node) -> None:
        first = 0 if product.target is aten.mm.default else 1
        bias = argument(product, 0) if first else None
        rows, weight = argument(product, first), argument(product, first + 1)
        if product.kwargs or not self._has_filters(product, weight, bias) or not (bias is None or val(bias).dim() == 1):
            return
        if local_note(product).local is not None or val(rows).numel() * val(weight).shape[1] < 2**18:
            return
        chain, residual, activation = self._chain(product, [rows], takes_sum=True)
        columns = val(weight).shape[1]
        with self._graph.inserting_before(chain[-1]):
            packed = self._invariant(fused_conv.packed_filters, self._transposed(weight, product), product)
            shift = self._filled(bias, product)
            fused = self._graph.call_function(fused_conv.linear, (rows, packed, shift, residual, columns, activation))
            if tuple(val(chain[-1]).shape) != tuple(val(product).shape):
                copy_notes(fused, product)
                fused = self._graph.call_function(aten.reshape.default, (fused, list(val(chain[-1]).shape)))
        self._replace(chain, fused, chain[-1])

    def _transposed(self, weight: fx.Node, like: fx.Node) -> fx.Node:
        if weight.target is aten.t.default and argument(weight, 0) in self._invariants:
            return argument(weight, 0)
        made = self._graph.call_function(aten.t.default, (weight,))
        copy_notes(made, like)
        set_val(made, val(weight).t())
        self._invariants.add(made)
        return made

    # -------------------------------------------------------------- what follows

    def _chain(
        self, start: fx.Node, read: list[fx.Node], takes_sum: bool
    ) -> tuple[list[fx.Node], fx.Node | None, Activation]:
        """The nodes that a fused op stands for, what it adds, and its activation. They end where what it reads is still
        as it was."""
        chain, residual = [start], None
        node = self._next(chain, read)
        if (
            takes_sum
            and node is not None
            and node.target in _SUMS
            and (other := _added(node, chain[-1])) is not None
            and self._may_read(other, node, node)
        ):
            chain, residual = self._with(chain, node), other
            read = [*read, other]
            node = self._next(chain, read)
        found = None if node is None else _activation(node)
        if node is not None and found is not None:
            return self._with(chain, node), residual, found
        return chain, residual, _NONE

    def _next(self, chain: list[fx.Node], read: list[fx.Node]) -> fx.Node | None:
        """The node that alone reads what a chain makes, if all that the chain reads is the same there. A view between a
        linear layer and it is looked through."""
        node = _only_user(chain[-1])
        if node is not None and node.target in _VIEWS and chain[0].target is not aten.convolution.default:
            node = _only_user(node)
        if node is None or not all(self._may_read(one, chain[0], node) for one in read):
            return None
        return node

    def _with(self, chain: list[fx.Node], node: fx.Node) -> list[fx.Node]:
        between = [
            argument(node, place)
            for place in range(2)
            if place < len(node.args) and isinstance(node.args[place], fx.Node)
        ]
        views = [one for one in between if one.target in _VIEWS and one.args[0] is chain[-1]]
        return [*chain, *views, node]

    def _may_read(self, value: fx.Node, at: fx.Node, later: fx.Node) -> bool:
        """Whether nothing between two nodes writes into a value."""
        if value not in self._memory:
            return True  # made by this pass, so by no op that is written over
        memory = self._memory[value]
        between = self._order[self._place[at] + 1 : self._place[later]]
        return not any(
            self._memory.get(one) == memory
            for node in between
            if _is_there(node) and writes(node)
            for one in changed_by(node)
        )

    # -------------------------------------------------------------- graphs

    def _invariant(self, function: Any, value: fx.Node, like: fx.Node) -> fx.Node:
        made = self._graph.call_function(function, (value,))
        copy_notes(made, like)
        forget_val(made)
        self._invariants.add(made)
        return made

    def _filled(self, bias: fx.Node | None, like: fx.Node) -> fx.Node | None:
        return None if bias is None else self._invariant(fused_conv.filled_bias, bias, like)

    def _replace(self, chain: list[fx.Node], fused: fx.Node, like: fx.Node) -> None:
        made = val(chain[-1])
        copy_notes(fused, like)
        set_val(fused, made)
        if like is chain[0] and made.dim() == 4:
            set_val(fused, torch.empty_like(made, memory_format=torch.channels_last))
            self._made.append(fused)
        self._memory[fused] = self._memory[chain[-1]]
        self._place[fused] = self._place[chain[-1]]
        chain[-1].replace_all_uses_with(fused)
        for node in reversed(chain):
            self._graph.erase_node(node)

    def restore_outputs(self) -> None:
        """Has what a program returns lie as it was traced."""
        if not self._made:
            return
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        for node in output.all_input_nodes:
            made = tensor(node)
            if made is not None and made.dim() == 4 and made.is_contiguous():
                with self._graph.inserting_before(output):
                    plain = self._graph.call_function(aten.contiguous.default, (node,))
                copy_notes(plain, node)
                output.replace_input_with(node, plain)


def _made_here(conv: fx.Node) -> tuple[int, int, int]:
    """Channels, height and width of what it gives; of the channels a rank may have a part."""
    local = local_note(conv).local
    _, channels, height, width = val(conv).shape
    return (channels if local is None else local.input_shape(1)[0], height, width)


def _pool_arguments(node: fx.Node) -> tuple[Any, ...]:
    """Window, stride, padding and dilation of a pool, in pairs, and whether it rounds sizes up."""
    usual: tuple[Any, ...] = (None, [1], [], [0], [1], False)
    given: list[Any] = [argument(node, place) if place < len(node.args) else usual[place] for place in range(1, 6)]
    across, stride, before, apart, is_high = given
    return (
        *(tuple(pair) if len(pair) == 2 else (*pair, *pair) for pair in (across, stride or across, before, apart)),
        is_high,
    )


def _is_depthwise(conv: fx.Node) -> bool:
    """Whether the extension has a kernel for a convolution of each channel by itself."""
    channels, each, high, wide = val(argument(conv, 1)).shape
    stride, dilation, groups = argument(conv, 3), argument(conv, 5), argument(conv, _GROUPS)
    is_own = groups > 1 and groups == channels and each == 1 and val(argument(conv, 0)).shape[1] == channels
    return is_own and _made_here(conv)[0] == channels and list(dilation) == [1, 1] and (wide, stride[1]) in TAPS


def _is_for_winograd(conv: fx.Node, activation: Activation) -> bool:
    filters, channels, *across = val(argument(conv, 1)).shape
    is_plain = (
        all(list(argument(conv, place)) == [1, 1] for place in (3, 5))
        and across == [3, 3]
        and activation[0] in ("none", "clip")
    )
    return is_plain and channels % LANES == 0 and _made_here(conv)[0] % LANES == 0 and images_here(conv)[1] == channels


def _only_user(node: fx.Node) -> fx.Node | None:
    (user, *others) = node.users or [None]
    return user if user is not None and not others and user.op == "call_function" else None


def _added(total: fx.Node, made: fx.Node) -> fx.Node | None:
    """What a node adds to what was made, if that is as large, and it does not write into it."""
    first, second = total.args[:2]
    if total.kwargs or not isinstance(first, fx.Node) or not isinstance(second, fx.Node) or first is second:
        return None
    is_first = first is made or (first.target in _VIEWS and first.args[0] is made)
    mine, other = (first, second) if is_first else (second, first)
    if not is_first and total.target is aten.add_.Tensor:
        return None
    its = tensor(other)
    return other if its is not None and its.shape == val(mine).shape and its.dtype is torch.float32 else None


def _activation(node: fx.Node) -> Activation | None:
    found = _ACTIVATIONS.get(node.target)
    if found is not None:
        return found
    if node.target in _CLIPS and not node.kwargs:
        low, high = (
            argument(node, place) if place < len(node.args) else usual for place, usual in ((1, -1.0), (2, 1.0))
        )
        return ("clip", float(low), float(high))
    if node.target is aten.gelu.default:
        return ("gelu_tanh" if node.kwargs.get("approximate", "none") == "tanh" else "gelu", 0.0, 0.0)
    return None


def _is_there(node: fx.Node) -> bool:
    """Whether a node is still in the graph."""
    return not node._erased
