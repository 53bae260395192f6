"""Ops on blobs with as many rows as the data says (``flow.argwhere``, ``flow.experimental.unique_with_counts`` ...).

Such a blob is as large as it can become, and a count says how many of its first rows are meant. Ops that work on each
row by itself give such a blob again. Where rows come together (sums, scattering) those behind the count are first made
what adds nothing. Anything else is refused.
"""

from __future__ import annotations

from math import inf
from typing import Any, NoReturn

import torch
from torch import fx

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trace import record
from oneflow.engine.ops import array, create, elementwise, reduce, unary
from oneflow.engine.ops.dynamic import filled
from oneflow.engine.ops.row import Op

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_ELEMENTWISE = {
    *(op.name for op in (*elementwise.ROWS, *unary.ROWS)), "nn.relu6", "nn.hardswish", "nn.hardsigmoid", "nn.mish", "nn.leaky_relu", "nn.elu",
    "nn.hardtanh", "nn.swish", "nn.bias_add", "where", "masked_fill", "cast", "identity", "amp_white_identity", "constant_like", "nn.random_mask_like",
    "smooth_l1_loss", "nn.sigmoid_cross_entropy_with_logits",
}  # fmt: skip
_BY_ROW = {
    "nn.sparse_softmax_cross_entropy_with_logits",
    "nn.sparse_cross_entropy",
    "nn.softmax_cross_entropy_with_logits",
    "math.in_top_k",
}
_ALONG_AN_AXIS = {
    "nn.softmax",
    "nn.logsoftmax",
    "math.argmax",
    "math.top_k",
    "math.l2_normalize",
    "sort",
    "argsort",
    "one_hot",
    "stack",
    "concat",
}
_SHAPES = {"reshape", "squeeze", "expand_dims", "flatten", "transpose"}
_WEIGHTED = {"matmul", "nn.dense"}  # rows by a whole matrix
_PICKED = {"gather", "gather_nd"}  # rows of a whole blob, by indices that are counted
_SCATTERED = {"scatter_nd": 1, "tensor_scatter_nd_add": 2, "unsorted_segment_sum": 0}  # the argument that is added up
_LEAST, _MOST = "least", "most"
_NOTHING: dict[str, Any] = {  # what changes no result of a reduction
    "math.reduce_sum": 0, "math.reduce_prod": 1, "math.reduce_max": _LEAST, "math.reduce_min": _MOST, "math.reduce_any": 0, "math.reduce_all": 1,
    "math.reduce_euclidean_norm": 0, "math.reduce_logsumexp": _LEAST,
}  # fmt: skip


def count_of(nodes: list[fx.Node], op: Op) -> fx.Node | None:
    """The count that the rows of these inputs have in common; None where all are whole."""
    counts = {note.count for note in map(op_note, nodes) if note.count is not None}
    if len(counts) > 1:
        raise UnsupportedError(
            f"{op.name} was given blobs whose numbers of rows the data says each for itself; cut or join them in numpy"
        )
    return counts.pop() if counts else None


def record_counted(
    op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node
) -> fx.Node:
    """Records an op that has counted inputs."""
    if op.name in _SCATTERED:
        return _scattered(op, args, attributes, name, count)
    if op.name == "math.reduced_shape_elem_cnt":
        return _size(args, attributes, name, count)
    if op.name.startswith("math.reduce_"):
        return _reduced(op, args, attributes, name, count)
    if op.name in _WEIGHTED:
        return _weighted(op, args, attributes, name, count)
    if op.name in _PICKED:
        return _picked(op, args, attributes, name, count)
    if (
        op.name in _ELEMENTWISE
        or op.name in _BY_ROW
        or op.name in _ALONG_AN_AXIS
        or op.name in _SHAPES
        or op.name == "slice_v2"
    ):
        return _by_row(op, args, attributes, name, count)
    raise _refused(op, args)


def refuse_counted(op: Op, args: Any) -> NoReturn:
    """Refuses counted inputs."""
    raise _refused(op, args)


def _refused(op: Op, args: Any) -> UnsupportedError:
    (first, *_) = [node for node in tree_leaves(args) if isinstance(node, fx.Node) and op_note(node).count is not None]
    note = op_note(first)
    return UnsupportedError(
        f"{op.name} was given {note.name!r} {note.spec}, which has as many rows as the data says; ops that take each "
        f"row by itself and sums over the rows "
        "can be computed of it, for others return it and go on in numpy"
    )


def _counted(node: fx.Node, count: fx.Node) -> fx.Node:
    change_op_note(node, count=count, is_dynamic=True)
    return node


def _whole(node: fx.Node) -> fx.Node:
    change_op_note(node, is_dynamic=False)
    return node


def fill(node: fx.Node, count: fx.Node, value: Any) -> fx.Node:
    """Counted rows, with ``value`` in those behind the count."""
    dtype = op_note(node).spec.dtype.torch
    if value in (_LEAST, _MOST):
        sign = -1 if value == _LEAST else 1
        limits = None if dtype.is_floating_point else torch.iinfo(dtype)
        value = sign * inf if limits is None else limits.min if sign < 0 else limits.max
    return record(filled, (node, count), {"value": value}, None)


def _is_counted(value: Any) -> bool:
    return isinstance(value, fx.Node) and op_note(value).count is not None


def _by_row(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    """Ones stand behind the count where floats are computed with: an op that has no finite slope at 0 would spoil the
    gradients of other rows."""
    size, rank = _rows_of(args)
    if not all(_fits(node, size, rank) for node in tree_leaves((args, attributes)) if isinstance(node, fx.Node)):
        raise _refused(op, args)

    def ones(node: fx.Node) -> fx.Node:
        return fill(node, count, 1) if _is_counted(node) and op_note(node).spec.dtype.is_floating_point else node

    args, attributes = fx.node.map_arg((args, attributes), ones)
    made = record(op, args, attributes, name)
    if not _keeps_rows(op, attributes, op_note(made).spec.shape, size, rank):
        raise (
            _refused(op, args)
            if any(map(_is_counted, tree_leaves(args)))
            else UnsupportedError(
                f"{op.name} would take the rows of a blob apart that has as many as the data says; return it and go on "
                f"in numpy"
            )
        )
    return _counted(made, count)


def _rows_of(args: Any) -> tuple[int, int]:
    shape = next(op_note(node).spec.shape for node in tree_leaves(args) if _is_counted(node))
    return shape[0], len(shape)


def _fits(node: fx.Node, size: int, rank: int) -> bool:
    """Whether another operand has nothing to do with the number of rows."""
    shape = op_note(node).spec.shape
    return op_note(node).count is not None or len(shape) < rank or (len(shape) == rank and shape[0] == 1)


def _keeps_rows(op: Op, attributes: dict[str, Any], shape: tuple[int, ...], size: int, rank: int) -> bool:
    if not shape or shape[0] != size:
        return False
    if op.name in _ALONG_AN_AXIS:
        axis = attributes.get("axis", attributes.get("dim"))
        last = len(shape) if op.name in ("one_hot", "stack") else rank
        return isinstance(axis, int) and axis % last != 0
    if op.name == "transpose":
        return attributes["perm"][0] == 0
    if op.name == "slice_v2":
        return tuple(attributes["bounds"][0]) in ((None, None, None), (None, None, 1), (0, None, 1))
    return True


def _reduced(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    (x, *_) = args
    rank = len(op_note(x).spec.shape)
    axis = attributes.get("axis")
    axes = list(range(rank)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if 0 not in [a % rank for a in axes]:
        return _counted(record(op, args, attributes, name), count)
    if op.name not in (*_NOTHING, "math.reduce_mean"):
        raise _refused(op, args)
    if op.name != "math.reduce_mean":
        return _whole(record(op, (fill(x, count, _NOTHING[op.name]), *args[1:]), attributes, name))
    ones = record(create.constant_like, (x,), {"value": 1, "dtype": op_note(x).spec.dtype.torch}, None)
    total, number = (record(reduce.reduce_sum, (fill(node, count, 0),), attributes, None) for node in (x, ones))
    return _whole(record(elementwise.divide, (total, number), {}, name))


def _size(args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    """How many elements there are, which the count says."""
    dtype = attributes["dtype"] or op_note(args[0]).spec.dtype.torch
    ones = record(create.constant_like, (args[0],), {"value": 1, "dtype": dtype}, None)
    rest = record(reduce.reduce_sum, (fill(ones, count, 0),), {"axis": attributes["axis"], "keepdims": False}, None)
    return (
        _whole(record(array.reshape, (rest,), {"shape": (1,)}, name))
        if op_note(rest).spec.shape == (1,)
        else _not_all(args)
    )


def _not_all(args: Any) -> Any:
    raise UnsupportedError(
        f"the elements of {op_note(args[0]).name!r} are counted on all axes together, its number of rows is what the "
        f"data says"
    )


def _weighted(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    x, *others = args
    is_weight = not any(map(_is_counted, tree_leaves((others, attributes)))) and len(op_note(others[0]).spec.shape) == 2
    if not is_weight or attributes.get("transpose_a") or len(op_note(x).spec.shape) < 2:
        raise _refused(op, args)
    return _counted(record(op, args, attributes, name), count)


def _picked(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    params, indices = args
    if _is_counted(params) or (op.name == "gather" and (attributes["axis"] != 0 or attributes["batch_dims"] != 0)):
        raise _refused(op, args)
    return _counted(record(op, (params, fill(indices, count, 0)), attributes, name), count)


def _scattered(op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, count: fx.Node) -> fx.Node:
    added = args[_SCATTERED[op.name]]
    where = [arg for arg in args if _is_counted(arg)]
    if not _is_counted(added) or len(where) != 2 or attributes.get("axis", 0) != 0:
        raise _refused(op, args)
    return _whole(record(op, tuple(fill(arg, count, 0) if _is_counted(arg) else arg for arg in args), attributes, name))
