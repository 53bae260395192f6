"""Samples of ``oneflow.engine.ops.array``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import array
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.ir.variable import get_variable
from oneflow.initializer import constant_initializer

MASK = (np.arange(12).reshape(3, 4) % 3 == 0).astype(np.int8)
NOT_FINITE = np.array([[1.0, np.inf, -np.inf], [np.nan, 0.0, 3e38]], np.float32)


def _assigned(x):
    return array.assign(get_variable("kept", (3, 4), initializer=constant_initializer(7), trainable=False), x)


SAMPLES = [
    Sample("identity", lambda x: array.identity(x), (rand(3, 4),), lambda x: x),
    Sample("identity", lambda x: array.cast_to_static_shape(x), (rand(3, 4),), lambda x: x),
    Sample("identity", lambda x: array.cast_to_current_logical_view(x), (rand(3, 4),), lambda x: x),
    Sample("layout", lambda x: array.hierarchical_parallel_cast(x, ["S(0)", "B"]), (rand(3, 4),), lambda x: x),
    Sample("amp_white_identity", lambda x: array.amp_white_identity(x), (rand(3, 4),), lambda x: x),
    Sample(
        "cast",
        lambda x: array.cast(x, dtypes.int32),
        (rand(3, 4, low=-9, high=9),),
        lambda x: torch.trunc(x).int(),
        gradient=False,
    ),
    Sample("cast", lambda x: array.cast(x, dtypes.float64), (rand(3, 4),), lambda x: x.double()),
    Sample("cast", lambda x: array.cast(x, dtypes.float16), (rand(3, 4),), lambda x: x.half(), rtol=1e-3, atol=1e-3),
    Sample(
        "cast",
        lambda x: array.cast(x, dtypes.float32),
        (ints(3, 4, dtype=np.uint8),),
        lambda x: x.float(),
        gradient=False,
    ),
    Sample("reshape", lambda x: array.reshape(x, (2, -1)), (rand(3, 4),), lambda x: x.view(2, 6)),
    Sample("reshape", lambda x: array.reshape(x, [12]), (rand(3, 4),), lambda x: x.view(12)),
    Sample(
        "reshape",
        lambda x: array.dynamic_reshape(array.transpose(x, [1, 0]), [2, 6]),
        (rand(3, 4),),
        lambda x: x.T.reshape(2, 6),
    ),
    Sample("reshape_like", lambda x, y: array.reshape_like(x, y), (rand(3, 4), rand(6, 2)), lambda x, y: x.view(6, 2)),
    Sample("flatten", lambda x: array.flatten(x), (rand(2, 3, 4),), lambda x: x.view(24)),
    Sample("flatten", lambda x: array.flatten(x, 1), (rand(2, 3, 4, 5),), lambda x: x.view(2, 60)),
    Sample("flatten", lambda x: array.flatten(x, -3, 2), (rand(2, 3, 4, 5),), lambda x: x.view(2, 12, 5)),
    Sample("expand_dims", lambda x: array.expand_dims(x, 1), (rand(3, 4),), lambda x: x[:, None]),
    Sample("expand_dims", lambda x: array.expand_dims(x, -1), (rand(3, 4),), lambda x: x[..., None]),
    Sample("squeeze", lambda x: array.squeeze(x), (rand(1, 3, 1, 4),), lambda x: x[0, :, 0]),
    Sample("squeeze", lambda x: array.squeeze(x, [0, -2]), (rand(1, 3, 1, 1),), lambda x: x[0, :, 0]),
    Sample("squeeze", lambda x: array.squeeze(x, axis=2), (rand(1, 3, 1),), lambda x: x[:, :, 0]),
    Sample("squeeze", lambda x: array.squeeze(x), (rand(1, 1),), lambda x: x[0, 0]),
    Sample(
        "transpose",
        lambda x: array.transpose(x, perm=[0, 3, 1, 2]),
        (rand(2, 3, 4, 5),),
        lambda x: torch.einsum("nhwc->nchw", x),
    ),
    Sample(
        "transpose", lambda x: array.transpose(x, (-1, 0, 1)), (rand(2, 3, 4),), lambda x: torch.einsum("abc->cab", x)
    ),
    Sample("transpose", lambda x: array.transpose(x), (rand(2, 3, 4),), lambda x: torch.einsum("abc->cba", x)),
    Sample("reverse", lambda x: array.reverse(x, 1), (rand(3, 4),), lambda x: x[:, [3, 2, 1, 0]]),
    Sample("reverse", lambda x: array.reverse(x, [0, -1]), (rand(3, 4),), lambda x: x[[2, 1, 0]][:, [3, 2, 1, 0]]),
    Sample("concat", lambda x, y: array.concat([x, y]), (rand(3, 4), rand(2, 4)), lambda x, y: torch.cat([x, y])),
    Sample(
        "concat",
        lambda x, y: array.concat(values=[x, y, x], axis=-1),
        (rand(3, 4), rand(3, 2)),
        lambda x, y: torch.cat([x, y, x], 1),
    ),
    Sample(
        "concat", lambda x, y: array.concat((x, y), 1, 9), (rand(3, 4), rand(3, 5)), lambda x, y: torch.cat([x, y], 1)
    ),
    Sample(
        "stack",
        lambda x, y: array.stack([x, y]),
        (rand(3, 4), rand(3, 4, seed=1)),
        lambda x, y: torch.cat([x[None], y[None]]),
    ),
    Sample(
        "stack",
        lambda x, y: array.stack([x, y], axis=-1),
        (rand(3), rand(3, seed=1)),
        lambda x, y: torch.cat([x, y]).view(2, 3).T,
    ),
    Sample(
        "pad",
        lambda x: array.pad(x, [(0, 0), (1, 2), (0, 1)], 0.5),
        (rand(2, 3, 4),),
        lambda x: torch.full((2, 6, 5), 0.5).index_put(
            (torch.arange(2)[:, None, None], torch.arange(1, 4)[:, None], torch.arange(4)), x
        ),
    ),
    Sample(
        "pad",
        lambda x: array.pad(x, [[1, 0]], -3),
        (ints(3),),
        lambda x: np.concatenate([np.array([-3], np.int32), x.numpy()]),
        gradient=False,
    ),
    Sample(
        "pad",
        lambda x: array.same_padding(x, "SAME", "NCHW", 3, 2),
        (rand(1, 2, 4, 5),),
        lambda x: torch.nn.functional.pad(x, (1, 1, 1, 0)),
    ),
    Sample(
        "pad",
        lambda x: array.same_padding(x, "same_upper", "NHWC", (3, 2), (2, 1), (1, 3)),
        (rand(1, 4, 5, 2),),
        lambda x: torch.nn.functional.pad(x, (0, 0, 1, 2, 0, 1)),
    ),
    Sample(
        "reflection_pad2d",
        lambda x: array.reflection_pad2d(x, (1, 2, 0, 1)),
        (rand(2, 3, 3, 4),),
        lambda x: x[:, :, [0, 1, 2, 1]][..., [1, 0, 1, 2, 3, 2, 1]],
    ),
    Sample(
        "reflection_pad2d",
        lambda x: array.reflection_pad2d(x, 1),
        (rand(1, 1, 2, 2),),
        lambda x: x.repeat(1, 1, 2, 2).flip(2, 3),
    ),
    Sample(
        "where",
        lambda m, x, y: array.where(m, x, y),
        (MASK, rand(3, 4), rand(3, 4, seed=1)),
        lambda m, x, y: x * (m != 0) + y * (m == 0),
    ),
    Sample(
        "where", lambda m, x: array.where(m, x, -1), (MASK[:1], rand(3, 4)), lambda m, x: x * (m != 0) - 1.0 * (m == 0)
    ),
    Sample(
        "where", lambda x, y: array.where(x > y, x, y), (rand(3, 4), rand(4, seed=1)), lambda x, y: torch.maximum(x, y)
    ),
    Sample(
        "masked_fill",
        lambda x, m: array.masked_fill(x, m, -1e4),
        (rand(3, 4), MASK),
        lambda x, m: x * (m == 0) - 1e4 * (m != 0),
    ),
    Sample(
        "masked_fill",
        lambda x, m: array.masked_fill(x, m, 2),
        (ints(3, 4), MASK[0]),
        lambda x, m: (x * (m == 0) + 2 * (m != 0)).int(),
        gradient=False,
    ),
    Sample(
        "masked_fill",
        lambda x, m: array.masked_fill(x, m, 7.0),
        (rand(4), MASK),
        lambda x, m: x * (m == 0) + 7.0 * (m != 0),
    ),
    Sample("expand", lambda x: array.expand(x, (2, -1, 4)), (rand(3, 1),), lambda x: x.expand(2, 3, 4)),
    Sample("diag", lambda x: array.diag(x, 1), (rand(3),), lambda x: torch.diag(x, 1)),
    Sample("diag", lambda x: array.diag(x, -2), (rand(3),), lambda x: torch.diag(x, -2)),
    Sample("diag", lambda x: array.diag(x, -1), (rand(4, 3),), lambda x: torch.diag(x, -1)),
    Sample("diag", lambda x: array.diag(x), (ints(3, 4),), lambda x: torch.diag(x), gradient=False),
    Sample(
        "replication_pad2d",
        lambda x: array.replication_pad2d(x, (1, 2, 0, 3)),
        (rand(2, 3, 4, 5),),
        lambda x: torch.nn.functional.pad(x, (1, 2, 0, 3), mode="replicate"),
    ),
    Sample(
        "pad",
        lambda x: array.constant_pad2d(x, 2, 3.0),
        (rand(2, 3, 4, 5),),
        lambda x: torch.nn.functional.pad(x, (2, 2, 2, 2), value=3.0),
    ),
    Sample(
        "pad",
        lambda x: array.zero_pad2d(x, (1, 0, 2, 0)),
        (rand(2, 3, 4, 5),),
        lambda x: torch.nn.functional.pad(x, (1, 0, 2, 0)),
    ),
    Sample(
        "broadcast_like",
        lambda x, y: array.broadcast_like(x, y),
        (rand(3, 1), rand(2, 3, 4)),
        lambda x, y: x * torch.ones(2, 3, 4),
    ),
    Sample(
        "broadcast_like",
        lambda x, y: array.broadcast_like(x, y, [1]),
        (rand(3), rand(3, 4)),
        lambda x, y: torch.stack([x] * 4, 1),
    ),
    Sample(
        "broadcast_like",
        lambda x, y: array.broadcast_like(x, y, (0, -1)),
        (rand(1, 3, 1), rand(2, 3, 4)),
        lambda x, y: x * torch.ones(2, 3, 4),
    ),
    Sample(
        "broadcast_to_compatible_with",
        lambda x, y, z: array.broadcast_to_compatible_with(x, [y, z]),
        (rand(3, 1), rand(2, 1, 1), rand(4)),
        lambda x, y, z: x + 0 * y + 0 * z,
    ),
    Sample(
        "count_not_finite", lambda x: array.count_not_finite(x), (NOT_FINITE,), lambda x: np.array([3]), gradient=False
    ),
    Sample("assign", _assigned, (rand(3, 4),), lambda x: x, gradient=False),
    Sample("layout", lambda x: array.parallel_cast(x), (rand(3, 4),), lambda x: x),
]
