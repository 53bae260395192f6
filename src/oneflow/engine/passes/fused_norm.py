"""Batch norm of training, the sum and the relu behind it, become one op, and so do their backward passes.

In a residual network these are most of the time that is not spent on convolutions: each is a pass over memory.
``ops/fused_norm.py`` keeps the aten ops that a fused one stands for, and computes them where the C extension does not.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import changed_by
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops import native  # noqa: F401 - the first registers the ops
from oneflow.engine.ops.cpu import fused_norm  # noqa: F401 - the first registers the ops
from oneflow.engine.passes.inplace import may_keep
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import copy_notes, set_val, tensor, val

aten = torch.ops.aten
_FORWARD, _BACKWARD = torch.ops.oneflow.batch_norm_relu.default, torch.ops.oneflow.batch_norm_relu_backward.default
_RELUS = (aten.relu.default, aten.relu_.default, aten.hardtanh.default, aten.hardtanh_.default)
_MASKS = (aten.threshold_backward.default, aten.hardtanh_backward.default)
_SUMS = (aten.add.Tensor, aten.add_.Tensor)
BYTES = 2**17
"""Smaller tensors are in the cache anyway."""


def fuse_batch_norms(graph: fx.Graph) -> None:
    """Puts one op in the place of a batch norm of training with the sum and the relu behind it, and one in that of its
    backward pass with the mask of relu and the sum before it.

    Relies on the graph of a section. Leaves the same values but for rounding; where the C extension is not built, the
    graph as it was.
    """
    norms = [
        node
        for node in graph.nodes
        if node.target in (aten.native_batch_norm.default, aten.native_batch_norm_backward.default)
    ]
    if native.library is None or not norms:
        return
    moves = _Moves(graph)
    for node in norms:
        if node.target is aten.native_batch_norm.default:
            _fuse_forward(graph, node, moves)
        else:
            _fuse_backward(graph, node, moves)


class _Moves:
    """Which nodes may stand elsewhere in the graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self._order = list(graph.nodes)
        self._place = {node: i for i, node in enumerate(self._order)}
        self._memory: dict[fx.Node, Memory] = memories(graph)

    def may(self, node: fx.Node, to: fx.Node, without: list[fx.Node]) -> bool:
        """Whether ``node`` does the same at the place of ``to``: no node between them, but for some, changes what it
        reads, or reads what it changes."""
        first, last = sorted((self._place[node], self._place[to]))
        read, changed = self._of(node.all_input_nodes), self._of(changed_by(node))
        for one in self._order[first + 1 : last]:
            if one not in without:
                reads = self._of(one.all_input_nodes)
                if changed & reads or read & (reads if may_keep(one) else self._of(changed_by(one))):
                    return False
        return True

    def is_between(self, made: list[fx.Node], place: fx.Node, read: list[fx.Node]) -> bool:
        """Whether ``place`` comes behind all that is ``made`` and before all that is ``read``."""
        here = self._place[place]
        return all(self._place[node] < here for node in made) and all(self._place[node] > here for node in read)

    def put(self, nodes: list[fx.Node], place: fx.Node) -> None:
        """Notes that new nodes stand where ``place`` does."""
        self._place.update(dict.fromkeys(nodes, self._place[place]))

    def _of(self, nodes: list[fx.Node]) -> set[Memory]:
        return {self._memory.get(node, (node,)) for node in nodes}  # what was put in here makes memory of its own


def _is_image(node: Any) -> bool:
    """Whether a value is what the extension is faster at: large, and float32 in channels_last memory of the CPU."""
    value = tensor(node) if isinstance(node, fx.Node) else None
    if (
        value is None
        or value.dim() != 4
        or value.dtype is not torch.float32
        or value.device.type != "cpu"
        or value.numel() * value.itemsize < BYTES
    ):
        return False
    return value.is_contiguous(memory_format=torch.channels_last)


def _item(node: fx.Node, index: int) -> fx.Node | None:
    """What reads one output of an op; None if nothing does."""
    return next((user for user in node.users if user.target is operator.getitem and user.args[1] == index), None)


def _only_user(node: fx.Node, targets: tuple[Any, ...]) -> fx.Node | None:
    """The node that alone reads a value, if it is one of these ops and nothing else."""
    (user, *others) = node.users or [None]
    return user if user is not None and not others and user.target in targets and not user.kwargs else None


# ------------------------------------------------------------------ forward


def _fuse_forward(graph: fx.Graph, norm: fx.Node, moves: _Moves) -> None:
    images, weight, bias, mean, var, is_training, momentum, eps = (argument(norm, place) for place in range(8))
    made = _item(norm, 0)
    if not is_training or weight is None or bias is None or made is None or not _is_image(images):
        return
    chain, residual = [made], None
    total = _only_user(made, _SUMS)
    if total is not None and (other := _residual(total, made)) is not None:
        chain, residual = [made, total], other
    relu = _only_user(chain[-1], _RELUS)
    bounds = _bounds(relu) if relu is not None else None
    chain += [relu] if relu is not None and bounds is not None else []
    if len(chain) == 1 or not moves.may(norm, chain[-1], chain):
        return
    saved = [item for item in (_item(norm, 1), _item(norm, 2)) if item is not None]
    if not moves.is_between([], chain[-1], [user for item in saved for user in item.users]):
        return
    with graph.inserting_before(chain[-1]):
        fused = graph.call_function(
            _FORWARD, (images, residual, weight, bias, mean, var, momentum, eps, bounds is not None, *(bounds or ()))
        )
    moves.put(_replace(graph, fused, norm, [chain[-1], _item(norm, 1), _item(norm, 2)]), chain[-1])
    _erase(graph, [*reversed(chain), norm])


def _bounds(relu: fx.Node) -> tuple[float, ...] | None:
    """The ceiling of relu, if it has one; None where the floor of a clamp is not 0, or its ceiling not above it."""
    if relu.target in (aten.relu.default, aten.relu_.default):
        return ()
    bounds: Any = relu.args[1:] or (-1.0, 1.0)  # torch's defaults
    return (float(bounds[1]),) if bounds[0] == 0 and bounds[1] > 0 else None


def _residual(total: fx.Node, made: fx.Node) -> fx.Node | None:
    """What is added to a normalised value, if that is a picture of its size."""
    first, second = argument(total, 0), argument(total, 1)
    other = second if first is made else first
    may_write = total.target is aten.add.Tensor or first is made
    return (
        other if other is not made and may_write and _is_image(other) and val(other).shape == val(made).shape else None
    )


# ------------------------------------------------------------------ backward


def _fuse_backward(graph: fx.Graph, backward: fx.Node, moves: _Moves) -> None:
    masked, images, weight, _, _, mean, invstd, is_training, eps, wanted = (
        argument(backward, place) for place in range(10)
    )
    if (
        not is_training
        or weight is None
        or list(wanted) != [True] * 3
        or not _is_image(images)
        or masked.target not in _MASKS
    ):
        return
    gradient, activation, threshold, *ceiling = (
        argument(masked, place) for place in range(3 if masked.target is aten.threshold_backward.default else 4)
    )
    if threshold != 0 or not all(map(_is_image, (masked, gradient, activation))) or not moves.may(backward, masked, []):
        return
    if not moves.is_between(
        [images, weight, mean, invstd], masked, []
    ):  # what is made again for the backward pass may be made later
        return
    chain, other = [masked], None
    if gradient.target is aten.add.Tensor and _only_user(gradient, _MASKS) and not gradient.kwargs:
        terms = [argument(gradient, place) for place in range(2)]
        if all(_is_image(term) and val(term).shape == val(images).shape for term in terms) and moves.may(
            gradient, masked, []
        ):
            chain, (gradient, other) = [masked, gradient], terms
    keeps = len(masked.users) > 1
    with graph.inserting_before(masked):
        fused = graph.call_function(
            _BACKWARD, (gradient, other, activation, images, weight, mean, invstd, eps, keeps, *ceiling)
        )
    moves.put(
        _replace(graph, fused, backward, [*(_item(backward, index) for index in range(3)), masked if keeps else None]),
        masked,
    )
    _erase(graph, [backward, *chain])


# ------------------------------------------------------------------ graphs


def _replace(graph: fx.Graph, fused: fx.Node, like: fx.Node, olds: list[Any]) -> list[fx.Node]:
    """Has the outputs of a fused op stand in the place of values; it says of itself what another says. Gives the new
    nodes."""
    copy_notes(fused, like)
    new = [fused]
    with graph.inserting_after(fused):
        for index, old in reversed(list(enumerate(olds))):
            if old is None:
                continue
            item = graph.call_function(operator.getitem, (fused, index))
            copy_notes(item, old)
            new.append(item)
            old.replace_all_uses_with(item, delete_user_cb=lambda user: user is not like)
    set_val(fused, tuple(val(old) if old is not None else None for old in olds))
    return new


def _erase(graph: fx.Graph, nodes: list[Any]) -> None:
    """Takes out nodes that nothing reads any more, and the items of their outputs."""
    for node in nodes:
        for item in [user for user in node.users if user.target is operator.getitem and not user.users]:
            graph.erase_node(item)
        graph.erase_node(node)
