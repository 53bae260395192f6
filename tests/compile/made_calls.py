"""Calls of ops on shapes that two, three and four ranks divide evenly or not: larger than the samples', and for ops
they lack."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from traced import Executed, made

from oneflow.engine.sharding.rules import pointwise

aten = torch.ops.aten


def floats(*shape: int) -> Tensor:
    """Between 0.1 and 0.9, where every function of one argument that the rules know has a finite value."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * 0.8 + 0.1


def signed(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def ints(*shape: int, high: int = 5) -> Tensor:
    return torch.randint(1, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


def flags(*shape: int) -> Tensor:
    return signed(*shape) > 0


def pointwise_calls() -> list[Executed]:
    """Each elementwise op on tensors of one shape, with arguments made after its schema."""
    return [_call_by_schema(op) for op in pointwise.RULES.by_op]


def _call_by_schema(op: Any) -> Executed:
    """Arguments that have defaults are left out, but for bounds, of which there must be one, and for reductions:
    none."""
    needed = [a for a in op._schema.arguments if not a.has_default_value() or a.name in ("min", "reduction")]
    positional = [_argument(op, a) for a in needed if not a.has_default_value() and not a.kwarg_only]
    return made(op, *positional, **{a.name: _argument(op, a) for a in needed[len(positional) :]})


def _argument(op: Any, argument: Any) -> Any:
    kind, name = str(argument.type).removeprefix("Optional[").removesuffix("]"), argument.name
    if kind != "Tensor":
        return {"number": 2, "float": 0.5, "int": 0, "bool": False, "str": "floor"}[kind]
    if name in ("condition", "mask"):
        return flags(5, 6)
    if op.name().startswith("aten::bitwise"):
        return ints(5, 6)
    return floats() if (op, name) == (aten.masked_fill.Tensor, "value") else floats(5, 6)


def broadcast_calls() -> list[Executed]:
    x, row, column, number = signed(5, 6), floats(6), floats(5, 1), floats()
    binary = [aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default, aten.gt.Tensor]
    return [
        *(made(op, x, other) for op in binary for other in (row, column, number)),
        *(made(op, x, 2.0) for op in binary[:4]),
        made(aten.where.self, flags(5, 1), row, x),
        made(aten.masked_fill.Scalar, x, flags(6), 0),
        made(aten.masked_fill.Scalar, x, flags(6), 1.5),
        made(aten.addcmul.default, x, row, column, value=0.5),
        made(aten._to_copy.default, x, dtype=torch.int64),
        made(aten._to_copy.default, ints(5, 6), dtype=torch.float32),
        made(aten._to_copy.default, x, dtype=torch.float64),
        made(aten.copy.default, x, row),
        made(aten.div.Tensor_mode, x, row, rounding_mode="floor"),
        made(aten.binary_cross_entropy.default, floats(5, 6), floats(5, 6), None, 1),
        *(made(aten.mse_loss_backward.default, floats(), x, floats(5, 6), reduction) for reduction in (1, 2)),
    ]


def view_calls() -> list[Executed]:
    return [
        made(aten.view.default, signed(4, 6), [24]),
        made(aten.view.default, signed(24), [4, 6]),
        made(aten.view.default, signed(5, 6), [30]),
        made(aten.view.default, signed(5, 1, 6), [5, 6]),
        made(aten.view.default, signed(4, 8, 12), [32, 3, 4]),
        made(aten._unsafe_view.default, signed(2, 3, 8), [6, -1]),
        made(aten.reshape.default, signed(1, 7), [7, 1]),
        made(aten.expand.default, signed(5, 1), [4, 5, 6]),
        made(aten.expand.default, signed(5, 6), [-1, -1]),
        made(aten.squeeze.default, signed(5, 1, 2)),
        made(aten.squeeze.dim, signed(2, 1, 5), 0),
        made(aten.squeeze.dim, signed(2, 1, 5), -2),
        made(aten.squeeze.dims, signed(1, 2, 1, 5), [0, 1, 2]),
        made(aten.unsqueeze.default, signed(5, 6), -1),
        made(aten.permute.default, signed(4, 5, 6), [2, 0, -2]),
        made(aten.transpose.int, signed(4, 5, 6), -1, 0),
        made(aten.t.default, signed(5, 6)),
        made(aten.t.default, signed(5)),
        made(aten.unbind.int, signed(5, 2, 6), 1),
        made(aten.stack.default, [signed(5, 6), floats(5, 6)], -1),
        made(aten.cat.default, [signed(5, 6), signed(5, 2)], -1),
        made(aten.split.Tensor, signed(5, 6), 2, 1),
        made(aten.split_with_sizes.default, signed(5, 6), [1, 4], 0),
        made(aten.unsafe_split.Tensor, signed(5, 6), 2, 1),
        made(aten.unsafe_split_with_sizes.default, signed(5, 6), [1, 4], 0),
    ]


def reduce_calls() -> list[Executed]:
    x, order = signed(5, 6, 4), signed(5, 6)
    dims = [aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.logsumexp.default]
    everything = [aten.sum.default, aten.mean.default, aten.max.default, aten.min.default, aten.prod.default]
    return [
        *(made(op, x, dim, keep) for op in dims for dim in ([1], [0, -1]) for keep in (False, True)),
        *(made(op, x) for op in everything),
        made(aten.sum.dim_IntList, x, [], False),
        made(aten.sum.dim_IntList, ints(5, 6), [0]),
        made(aten.sum.default, flags(5, 6)),
        made(aten.logsumexp.default, torch.full((5, 6), -torch.inf), [0]),
        *(made(op, flags(5, 6)) for op in (aten.any.default, aten.all.default)),
        *(made(op, flags(5, 6), 1) for op in (aten.any.dim, aten.all.dim)),
        *(made(op, flags(5, 6), [0], True) for op in (aten.any.dims, aten.all.dims)),
        made(aten.any.dims, flags(5, 6), []),
        *(made(aten.prod.dim_int, x, dim) for dim in (0, -1)),
        *(
            made(op, x, [0, 1], correction=c, keepdim=c == 0)
            for op in (aten.var_mean.correction, aten.var.correction)
            for c in (0, 1)
        ),
        made(aten.var_mean.correction, x),
        *(made(aten.norm.ScalarOpt_dim, x, p, [1]) for p in (None, 1, 3, torch.inf)),
        made(aten.linalg_vector_norm.default, x, 2, [0, 2], True),
        *(made(op, order, dim) for op in (aten.argmax.default, aten.argmin.default) for dim in (0, None)),
        *(made(op, order, 1) for op in (aten.max.dim, aten.min.dim)),
        made(aten.cumsum.default, x, 1),
    ]


def create_calls() -> list[Executed]:
    x = signed(5, 6)
    return [
        made(aten.full.default, [5, 6], 1.5),
        made(aten.full.default, [5, 6], 0.0),
        made(aten.zeros.default, [5, 6]),
        made(aten.ones.default, [5, 6], dtype=torch.int32),
        made(aten.empty.memory_format, [5, 6]),
        made(aten.scalar_tensor.default, 0.0),
        *(made(op, x, [4, 7]) for op in (aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default)),
        made(aten.new_full.default, x, [4, 7], 2.0),
        *(made(op, x) for op in (aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default)),
        made(aten.full_like.default, x, 3.0),
        *(made(aten.fill.Scalar, x, value) for value in (0, 1.5)),
        made(aten.arange.default, 7),
        made(aten.arange.default, 6.5),
        made(aten.arange.start, 2, 9),
        *(
            made(aten.arange.start_step, *steps)
            for steps in ((10, -4, -3), (0.1, 0.7, 0.1), (0.0, 2.0, 0.3), (1, 2, 0.25))
        ),
        *(made(op, signed(5, 6, 4)) for op in (aten.tril.default, aten.triu.default)),
    ]


def slicing_calls() -> list[Executed]:
    x, image = signed(5, 6, 4), signed(5, 6, 4, 4)
    return [
        made(aten.slice.Tensor, x, 1, 1, 5, 2),
        made(aten.slice.Tensor, x, 0, 0, 9223372036854775807),
        made(aten.slice_backward.default, x, [5, 6, 4], 1, 0, 6, 1),
        made(aten.slice_scatter.default, x, signed(5, 6, 4), 0, 0, 5),
        made(aten.slice_backward.default, signed(5, 2, 4), [5, 6, 4], 1, 1, 5, 2),
        made(aten.slice_scatter.default, x, signed(5, 2, 4), 1, 1, 5, 2),
        made(aten.select.int, x, 1, -2),
        made(aten.select_backward.default, signed(5, 4), [5, 6, 4], 1, 3),
        made(aten.select_scatter.default, x, signed(5, 4), 1, 3),
        *(made(aten.constant_pad_nd.default, x, [1, 0, 0, 0, 0, 2], value) for value in (0, 1.5)),
        made(aten.flip.default, x, [0, -1]),
        made(aten.roll.default, x, [2], [1]),
        made(aten.roll.default, x, [2]),
        *(made(op, image, [1, 2, 1, 0]) for op in (aten.reflection_pad2d.default, aten.replication_pad2d.default)),
        *(
            made(op, signed(5, 6, 5, 7), image, [1, 2, 1, 0])
            for op in (aten.reflection_pad2d_backward.default, aten.replication_pad2d_backward.default)
        ),
        *_stretches(),
    ]


def _stretches() -> list[Executed]:
    calls = []
    for name, dims, extra in [
        *(("nearest1d", 1, ()), ("nearest2d", 2, ()), ("nearest3d", 3, ()), ("linear1d", 1, (False,))),
        *(("bilinear2d", 2, (False,)), ("bicubic2d", 2, (True,)), ("trilinear3d", 3, (False,))),
    ]:
        small, large = (5, 6, *[2] * dims), (5, 6, *[4] * dims)
        calls.append(made(getattr(aten, f"upsample_{name}").default, signed(*small), [4] * dims, *extra))
        backward = getattr(aten, f"upsample_{name}_backward").default
        calls.append(made(backward, signed(*large), [4] * dims, list(small), *extra))
    return calls


def heavy_calls() -> list[Executed]:
    """Matrix products, sorting and scattering that no sample has."""
    index = ints(5, 6) - 1
    return [
        made(aten.mm.default, signed(5, 6), signed(6, 7)),
        made(aten.addmm.default, signed(7), signed(5, 6), signed(6, 7)),
        made(aten.bmm.default, signed(4, 5, 6), signed(4, 6, 7)),
        made(aten.baddbmm.default, signed(4, 5, 7), signed(4, 5, 6), signed(4, 6, 7)),
        made(aten.mv.default, signed(5, 6), signed(6)),
        made(aten.dot.default, signed(7), signed(7)),
        made(aten.sort.default, signed(5, 6), 1),
        made(aten.topk.default, signed(5, 6), 2, 1),
        made(aten.scatter.value, signed(5, 6), 0, index, 2.0),
    ]


FAMILIES = {
    "pointwise": pointwise_calls,
    "broadcast": broadcast_calls,
    "view": view_calls,
    "reduce": reduce_calls,
    "create": create_calls,
    "slicing": slicing_calls,
    "heavy": heavy_calls,
}
