"""Calls of the names of ``oneflow`` itself."""

from __future__ import annotations

import io
import math
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from called import gives, same, shaped

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError

X = np.array([[0.5, -0.25, 0.75], [1.0, 0.125, -0.5]], np.float32)
Y = np.array([[2.0, 4.0, -1.0], [0.5, 2.0, 8.0]], np.float32)
B = X > 0
I = np.array([[5, -3, 7], [2, 9, 4]])
x, y, b, i = (flow.tensor(a) for a in (X, Y, B, I))
v, w = flow.tensor([1.0, 2.0, 3.0]), flow.tensor([4.0, 5.0, 6.0])
sq = flow.tensor([[4.0, 1.0], [2.0, 3.0]])
SQ = sq.numpy()
cube = flow.arange(24.0).reshape(2, 3, 4)
CUBE = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


def _partial_fc():
    """In a job: of six classes the two that occur and one other, with their rows of the weight."""

    @flow.global_function()
    def job(weight=flow.FixedTensorDef((6, 2)), label=flow.FixedTensorDef((2,), dtype=flow.int32)):
        return flow.distributed_partial_fc_sample(weight, label, 3)

    weight = np.arange(12, dtype=np.float32).reshape(6, 2)
    labels, classes, rows = (value.numpy() for value in job(weight, np.int32([4, 1])).get())
    return flow.tensor([len(set(classes)) == 3, (classes[labels] == [4, 1]).all(), (rows == weight[classes]).all()])


def _erf(a):
    return np.vectorize(math.erf)(a)


# name: the argument, numpy's or Python's formula
UNARY = {
    **{
        name: (x, getattr(np, name))
        for name in ("abs", "ceil", "cos", "cosh", "exp", "expm1", "floor", "negative", "sign", "sin", "sinh", "square")
    },
    **{
        name: (x, getattr(np, name))
        for name in (
            "tan",
            "tanh",
            "trunc",
            "reciprocal",
            "isfinite",
            "isinf",
            "isnan",
            "arcsin",
            "arccos",
            "arctan",
            "arcsinh",
        )
    },
    **{name: (abs(x), getattr(np, name)) for name in ("log", "log10", "log1p", "log2", "sqrt")},
    **{name: (y + 10, np.arccosh) for name in ("acosh", "arccosh")},
    **{name: (x / 2, np.arctanh) for name in ("atanh", "arctanh")},
    "acos": (x, np.arccos),
    "asin": (x, np.arcsin),
    "asinh": (x, np.arcsinh),
    "atan": (x, np.arctan),
    "erf": (x, _erf),
    "erfc": (x, lambda a: 1 - _erf(a)),
    "gelu": (x, lambda a: a * (1 + _erf(a / math.sqrt(2))) / 2),
    "lgamma": (y.abs(), lambda a: np.vectorize(math.lgamma)(a)),
    "log_softmax": (x, lambda a: a - np.log(np.exp(a).sum(-1, keepdims=True))),
    "logical_not": (b, np.logical_not),
    "mish": (x, lambda a: a * np.tanh(np.log1p(np.exp(a)))),
    "neg": (x, np.negative),
    "quick_gelu": (x, lambda a: a / (1 + np.exp(-1.702 * a))),
    "relu": (x, lambda a: np.maximum(a, 0)),
    "round": (x * 3, np.round),
    "rsqrt": (abs(x), lambda a: 1 / np.sqrt(a)),
    "selu": (x, lambda a: 1.0507009873554805 * np.where(a > 0, a, 1.6732632423543772 * np.expm1(a))),
    "sigmoid": (x, lambda a: 1 / (1 + np.exp(-a))),
    "silu": (x, lambda a: a / (1 + np.exp(-a))),
    "softmax": (x, lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True)),
    "softplus": (x, lambda a: np.log1p(np.exp(a))),
    "softshrink": (x * 2, lambda a: np.sign(a) * np.maximum(abs(a) - 0.5, 0)),
    "softsign": (x, lambda a: a / (1 + abs(a))),
}
BINARY = {
    **{
        name: getattr(np, name)
        for name in ("greater", "greater_equal", "logaddexp", "maximum", "minimum", "not_equal", "floor_divide", "fmod")
    },
    "add": np.add,
    "atan2": np.arctan2,
    "div": np.divide,
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "mul": np.multiply,
    "ne": np.not_equal,
    "sub": np.subtract,
}
CALLS = {
    **{
        f"oneflow.{n}": gives(lambda n=n, a=a: getattr(flow, n)(a), lambda f=f, a=a: f(a.numpy()))
        for n, (a, f) in UNARY.items()
    },
    **{f"oneflow.{n}": gives(lambda n=n: getattr(flow, n)(x, y), lambda f=f: f(X, Y)) for n, f in BINARY.items()},
}
# name: a call, and what it gives
TABLE = {
    "adaptive_avg_pool1d": (lambda: flow.adaptive_avg_pool1d(cube, 2), CUBE.reshape(2, 3, 2, 2).mean(-1)),
    "adaptive_avg_pool2d": (lambda: flow.adaptive_avg_pool2d(cube, (1, 1)), CUBE.mean((1, 2), keepdims=True)),
    "adaptive_avg_pool3d": (lambda: flow.adaptive_avg_pool3d(cube[None], (1, 1, 1)), CUBE.mean().reshape(1, 1, 1, 1)),
    "addcdiv": (lambda: flow.addcdiv(x, y, y, value=2), X + 2),
    "addcmul": (lambda: flow.addcmul(x, y, y, value=2), X + 2 * Y * Y),
    "addmm": (lambda: flow.addmm(sq, sq, sq), SQ + SQ @ SQ),
    "all": (lambda: flow.all(b, 1), B.all(1)),
    "allclose": (lambda: flow.allclose(x, x + 1e-9), True),
    "amax": (lambda: flow.amax(x, 1), X.max(1)),
    "amin": (lambda: flow.amin(x, 1), X.min(1)),
    "any": (lambda: flow.any(b, 1), B.any(1)),
    "arange": (lambda: flow.arange(1, 7, 2), [1, 3, 5]),
    "argmax": (lambda: flow.argmax(x, 1), X.argmax(1)),
    "argmin": (lambda: flow.argmin(x, 1), X.argmin(1)),
    "argsort": (lambda: flow.argsort(x, 1), X.argsort(1)),
    "argwhere": (lambda: flow.argwhere(b), np.argwhere(B)),
    "as_strided": (lambda: flow.as_strided(v, (2, 2), (1, 1)), [[1, 2], [2, 3]]),
    "as_tensor": (lambda: flow.as_tensor([1.5]), [1.5]),
    "atleast_1d": (lambda: flow.atleast_1d(flow.tensor(1.0)), [1]),
    "atleast_2d": (lambda: flow.atleast_2d(v), [[1, 2, 3]]),
    "atleast_3d": (lambda: flow.atleast_3d(v), [[[1], [2], [3]]]),
    "baddbmm": (lambda: flow.baddbmm(sq[None], sq[None], sq[None]), (SQ + SQ @ SQ)[None]),
    "batch_gather": (
        lambda: flow.batch_gather(x, flow.tensor([[2, 0], [1, 1]], dtype=flow.int32)),
        [[0.75, 0.5], [0.125, 0.125]],
    ),
    "bincount": (lambda: flow.bincount(flow.tensor([0, 2, 2])), [1, 0, 2]),
    "bmm": (lambda: flow.bmm(sq[None], sq[None]), (SQ @ SQ)[None]),
    "broadcast_like": (lambda: flow.broadcast_like(v, x), np.broadcast_to([1, 2, 3], (2, 3))),
    "broadcast_shapes": (lambda: flow.broadcast_shapes((2, 1), (3,)), flow.Size([2, 3])),
    "broadcast_tensors": (lambda: flow.broadcast_tensors(v[:1], v), [[1, 1, 1], [1, 2, 3]]),
    "broadcast_to": (lambda: flow.broadcast_to(v, (2, 3)), [[1, 2, 3]] * 2),
    "cast": (lambda: flow.cast(y / 3, flow.int32), (Y / 3).astype(np.int32)),
    "cat": (lambda: flow.cat([x, y], 1), np.concatenate([X, Y], 1)),
    "chunk": (lambda: flow.chunk(v, 3), [[1], [2], [3]]),
    "clamp": (lambda: flow.clamp(y, 0, 3), Y.clip(0, 3)),
    "clamp_": (lambda: flow.clamp_(y.clone(), 0, 3), Y.clip(0, 3)),
    "clamp_max": (lambda: flow.clamp_max(y, 3), Y.clip(None, 3)),
    "clamp_max_": (lambda: flow.clamp_max_(y.clone(), 3), Y.clip(None, 3)),
    "clamp_min": (lambda: flow.clamp_min(y, 0), Y.clip(0, None)),
    "clamp_min_": (lambda: flow.clamp_min_(y.clone(), 0), Y.clip(0, None)),
    "clip": (lambda: flow.clip(y, 0, 3), Y.clip(0, 3)),
    "clip_": (lambda: flow.clip_(y.clone(), 0, 3), Y.clip(0, 3)),
    "column_stack": (lambda: flow.column_stack([v, w]), [[1, 4], [2, 5], [3, 6]]),
    "concat": (lambda: flow.concat([x, y], dim=0), np.concatenate([X, Y])),
    "contiguous": (lambda: flow.contiguous(x.t()).stride(), (2, 1)),
    "convert_oneflow_dtype_to_numpy_dtype": (
        lambda: flow.convert_oneflow_dtype_to_numpy_dtype(flow.float16) is np.float16,
        True,
    ),
    "cross": (lambda: flow.cross(v[:, None], w[:, None]), np.cross([1, 2, 3], [4, 5, 6])[:, None]),
    "cumprod": (lambda: flow.cumprod(v, 0), [1, 2, 6]),
    "cumsum": (lambda: flow.cumsum(v, 0), [1, 3, 6]),
    "diag": (lambda: flow.diag(sq), [4, 3]),
    "diagonal": (lambda: flow.diagonal(sq), [4, 3]),
    "div_": (lambda: flow.div_(v.clone(), 2), [0.5, 1, 1.5]),
    "dot": (lambda: flow.dot(v, w), 32),
    "dstack": (lambda: flow.dstack([v, w]), np.dstack([[1, 2, 3], [4, 5, 6]])),
    "einsum": (lambda: flow.einsum("ij,jk->ik", sq, sq), SQ @ SQ),
    "equal": (lambda: flow.equal(v, w), False),
    "erfinv": (lambda: flow.erf(flow.erfinv(x / 2)), X / 2),
    "erfinv_": (lambda: flow.erf(flow.erfinv_((x / 2).clone())), X / 2),
    "distributed_partial_fc_sample": (lambda: _partial_fc(), [True] * 3),
    "expand": (lambda: flow.expand(v, 2, -1), [[1, 2, 3]] * 2),
    "eye": (lambda: flow.eye(2), np.eye(2)),
    "flatten": (lambda: flow.flatten(cube, 1), CUBE.reshape(2, 12)),
    "flip": (lambda: flow.flip(v, [0]), [3, 2, 1]),
    "floor_": (lambda: flow.floor_(x.clone()), np.floor(X)),
    "from_numpy": (lambda: flow.from_numpy(X).data_ptr(), X.ctypes.data),
    "from_dlpack": (lambda: flow.from_dlpack(flow.to_dlpack(v)), [1, 2, 3]),
    "full": (lambda: flow.full((2,), 7.0), [7, 7]),
    "full_like": (lambda: flow.full_like(v, 7), [7, 7, 7]),
    "gather": (lambda: flow.gather(x, 1, flow.tensor([[2], [0]])), [[0.75], [1.0]]),
    "gather_nd": (lambda: flow.gather_nd(x, flow.tensor([[0, 2], [1, 0]])), [0.75, 1.0]),
    "hann_window": (lambda: flow.hann_window(4), [0, 0.5, 1, 0.5]),
    "hsplit": (lambda: flow.hsplit(sq, 2), np.hsplit(SQ, 2)),
    "hstack": (lambda: flow.hstack([v, w]), [1, 2, 3, 4, 5, 6]),
    "in_top_k": (
        lambda: flow.in_top_k(flow.tensor([3, 1], dtype=flow.int32), flow.tensor([[0.0, 9, 1, 2], [1, 2, 3, 4]]), 2),
        [True, False],
    ),
    "index_add": (lambda: flow.index_add(v, 0, flow.tensor([0, 0]), w[:2]), [10, 2, 3]),
    "index_add_": (lambda: flow.index_add_(v.clone(), 0, flow.tensor([0, 0]), w[:2], alpha=2), [19, 2, 3]),
    "index_select": (lambda: flow.index_select(v, 0, flow.tensor([2, 0], dtype=flow.int32)), [3, 1]),
    "inverse": (lambda: flow.inverse(sq), np.linalg.inv(SQ)),
    "is_floating_point": (lambda: flow.is_floating_point(v), True),
    "is_nonzero": (lambda: flow.is_nonzero(v[:1]), True),
    "is_tensor": (lambda: flow.is_tensor(X), False),
    "isclose": (lambda: flow.isclose(v, v + 1), [False] * 3),
    "linspace": (lambda: flow.linspace(0, 1, 3), [0, 0.5, 1]),
    "logical_and": (lambda: flow.logical_and(b, ~b), B & ~B),
    "logical_or": (lambda: flow.logical_or(b, ~b), B | ~B),
    "logical_xor": (lambda: flow.logical_xor(b, b), B ^ B),
    "logspace": (lambda: flow.logspace(0, 2, 3), [1, 10, 100]),
    "logsumexp": (lambda: flow.logsumexp(x, 1), np.log(np.exp(X).sum(1))),
    "masked_fill": (lambda: flow.masked_fill(x, b, 9.0), np.where(B, 9, X)),
    "masked_fill_": (lambda: flow.masked_fill_(x.clone(), b, 9.0), np.where(B, 9, X)),
    "masked_select": (lambda: flow.masked_select(x, b), X[B]),
    "matmul": (lambda: flow.matmul(sq, sq), SQ @ SQ),
    "max": (lambda: flow.max(x, 1)[0], X.max(1)),
    "mean": (lambda: flow.mean(x, 1), X.mean(1)),
    "median": (lambda: flow.median(v), 2),
    "meshgrid": (lambda: flow.meshgrid(v, w), np.meshgrid([1, 2, 3], [4, 5, 6], indexing="ij")),
    "min": (lambda: flow.min(x, 1)[0], X.min(1)),
    "mm": (lambda: flow.mm(sq, sq), SQ @ SQ),
    "movedim": (lambda: flow.movedim(cube, 0, 2), np.moveaxis(CUBE, 0, 2)),
    "mv": (lambda: flow.mv(sq, v[:2]), SQ @ [1, 2]),
    "nansum": (lambda: flow.nansum(flow.tensor([1.0, math.nan])), 1),
    "narrow": (lambda: flow.narrow(v, 0, 1, 2), [2, 3]),
    "new_full": (lambda: flow.new_full(v, (2,), 5), [5, 5]),
    "new_ones": (lambda: flow.new_ones(v), [1, 1, 1]),
    "new_zeros": (lambda: flow.new_zeros(v, (2, 2)), np.zeros((2, 2))),
    "nms": (
        lambda: flow.nms(
            flow.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), flow.tensor([0.5, 0.9, 0.1]), 0.5
        ),
        [1, 2],
    ),
    "nonzero": (lambda: flow.nonzero(b), np.argwhere(B)),
    "norm": (lambda: flow.norm(x, 2, 1, False, flow.float64), np.linalg.norm(X, axis=1)),
    "numel": (lambda: flow.numel(x), 6),
    "ones": (lambda: flow.ones(2, 3), np.ones((2, 3))),
    "ones_like": (lambda: flow.ones_like(v), [1, 1, 1]),
    "pad": (lambda: flow.pad(v, (1, 0), value=9), [9, 1, 2, 3]),
    "permute": (lambda: flow.permute(cube, (2, 0, 1)), CUBE.transpose(2, 0, 1)),
    "pow": (lambda: flow.pow(v, 2), [1, 4, 9]),
    "prod": (lambda: flow.prod(v), 6),
    "quantile": (lambda: flow.quantile(v, 0.5), 2),
    "repeat": (lambda: flow.repeat(v, (2, 1)), [[1, 2, 3]] * 2),
    "repeat_interleave": (lambda: flow.repeat_interleave(v, 2), [1, 1, 2, 2, 3, 3]),
    "reshape": (lambda: flow.reshape(x, (3, -1)), X.reshape(3, 2)),
    "roc_auc_score": (
        lambda: flow.roc_auc_score(flow.tensor([0.0, 0, 1, 1]), flow.tensor([0.1, 0.4, 0.35, 0.8])),
        [0.75],
    ),
    "roll": (lambda: flow.roll(v, 1), [3, 1, 2]),
    "row_stack": (lambda: flow.row_stack([v, w]), [[1, 2, 3], [4, 5, 6]]),
    "scatter": (lambda: flow.scatter(v, 0, flow.tensor([2]), w[:1]), [1, 2, 4]),
    "scatter_add": (lambda: flow.scatter_add(v, 0, flow.tensor([2, 2]), w[:2]), [1, 2, 12]),
    "scatter_nd": (lambda: flow.scatter_nd(flow.tensor([[1], [1], [3]]), v, (4,)), [0, 3, 0, 3]),
    "searchsorted": (lambda: flow.searchsorted(v, flow.tensor([2.5])), [2]),
    "select": (lambda: flow.select(x, 0, 1), X[1]),
    "sin_": (lambda: flow.sin_(x.clone()), np.sin(X)),
    "slice": (lambda: flow.slice(cube, [[None, None, None], [0, 3, 2], [3, 0, -2]]), CUBE[:, 0:3:2, 3:0:-2]),
    "sort": (lambda: flow.sort(x, 1)[0], np.sort(X, 1)),
    "split": (lambda: flow.split(v, 2), [[1, 2], [3]]),
    "squeeze": (lambda: flow.squeeze(v[None], 0), [1, 2, 3]),
    "stack": (lambda: flow.stack([v, w]), [[1, 2, 3], [4, 5, 6]]),
    "std": (lambda: flow.std(x, 1), X.std(1, ddof=1)),
    "sum": (lambda: flow.sum(x, 1), X.sum(1)),
    "swapaxes": (lambda: flow.swapaxes(x, 0, 1), X.T),
    "swapdims": (lambda: flow.swapdims(x, 0, 1), X.T),
    "t": (lambda: flow.t(x), X.T),
    "tensor": (lambda: flow.tensor([1, 2]), [1, 2]),
    "tensor_scatter_nd_update": (lambda: flow.tensor_scatter_nd_update(v, flow.tensor([[2]]), w[:1]), [1, 2, 4]),
    "tensor_split": (lambda: flow.tensor_split(v, 2), [[1, 2], [3]]),
    "tensordot": (lambda: flow.tensordot(sq, sq, 1), SQ @ SQ),
    "threshold": (lambda: flow.threshold(v, 1.5, 0), [0, 2, 3]),
    "tile": (lambda: flow.tile(v, (2,)), [1, 2, 3, 1, 2, 3]),
    "topk": (lambda: flow.topk(v, 2)[0], [3, 2]),
    "transpose": (lambda: flow.transpose(x, 0, 1), X.T),
    "tril": (lambda: flow.tril(sq), np.tril(SQ)),
    "triu": (lambda: flow.triu(sq), np.triu(SQ)),
    "unbind": (lambda: flow.unbind(v), [1, 2, 3]),
    "unsqueeze": (lambda: flow.unsqueeze(v, 0), [[1, 2, 3]]),
    "var": (lambda: flow.var(x, 1), X.var(1, ddof=1)),
    "view": (lambda: flow.view(x, 3, 2), X.reshape(3, 2)),
    "vsplit": (lambda: flow.vsplit(sq, 2), np.vsplit(SQ, 2)),
    "vstack": (lambda: flow.vstack([v, w]), [[1, 2, 3], [4, 5, 6]]),
    "where": (lambda: flow.where(flow.tensor([1, 0, 2], dtype=flow.int32), v, w), [1, 5, 3]),
    "zero_": (lambda: flow.zero_(v.clone()), [0, 0, 0]),
    "zeros": (lambda: flow.zeros((2,)), [0, 0]),
    "zeros_like": (lambda: flow.zeros_like(v), [0, 0, 0]),
}
CALLS |= {f"oneflow.{name}": gives(call, expected) for name, (call, expected) in TABLE.items()}

DRAWS = {
    "bernoulli": (lambda: flow.bernoulli(flow.full((9,), 0.5)), (9,), 0, 1),
    "empty": (lambda: flow.empty(2, 3).zero_(), (2, 3), 0, 0),
    "empty_like": (lambda: flow.empty_like(v).zero_(), (3,), 0, 0),
    "multinomial": (lambda: flow.multinomial(v, 2), (2,), 0, 2),
    "new_empty": (lambda: flow.new_empty(v, (2, 2)).zero_(), (2, 2), 0, 0),
    "normal": (lambda: flow.normal(0.0, 1.0, (9,)), (9,), -9, 9),
    "rand": (lambda: flow.rand(2, 3), (2, 3), 0, 1),
    "randint": (lambda: flow.randint(2, 5, (9,)), (9,), 2, 4),
    "randint_like": (lambda: flow.randint_like(v, 2, 5), (3,), 2, 4),
    "randn": (lambda: flow.randn(9), (9,), -9, 9),
    "randn_like": (lambda: flow.randn_like(v), (3,), -9, 9),
    "randperm": (lambda: flow.randperm(9), (9,), 0, 8),
}
CALLS |= {f"oneflow.{name}": shaped(*row) for name, row in DRAWS.items()}

TYPES = {
    **{"BoolTensor": torch.bool, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "DoubleTensor": torch.float64},
    **{"FloatTensor": torch.float32, "HalfTensor": torch.float16, "IntTensor": torch.int32, "LongTensor": torch.int64},
}
CALLS |= {f"oneflow.{name}": gives(lambda n=name: getattr(flow, n)([1]).dtype, dtype) for name, dtype in TYPES.items()}
DTYPES = {
    **{
        "bool": torch.bool,
        "int8": torch.int8,
        "uint8": torch.uint8,
        "int": torch.int32,
        "int32": torch.int32,
        "long": torch.int64,
    },
    **{
        "int64": torch.int64,
        "half": torch.float16,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float": torch.float32,
    },
    **{"float32": torch.float32, "double": torch.float64, "float64": torch.float64},
}
CALLS |= {f"oneflow.{n}": gives(lambda n=n: flow.zeros(1, dtype=getattr(flow, n)).dtype, d) for n, d in DTYPES.items()}


def _tensor():
    assert flow.Tensor is torch.Tensor
    same(flow.Tensor(np.array([1, 2])), [1, 2], torch.float32)


def _unique():
    values, places, counts = flow.unique(flow.tensor([3, 1, 3]), return_inverse=True, return_counts=True)
    same((values, places, counts), [[1, 3], [1, 0, 1], [1, 2]])
    assert values.dtype is torch.int64 and places.dtype is counts.dtype is torch.int32
    same(flow.unique(flow.tensor([3, 1, 3]), return_counts=True, dtype=flow.int64)[1], [1, 2], torch.int64)
    same(flow.unique(flow.tensor([2, 2])), [2])


def _slice_update():
    target = flow.zeros(5)
    found = flow.slice_update(target, v, [[1, 4, 1]])
    assert found is target
    same(target, [0, 1, 2, 3, 0])
    with pytest.raises(ArgumentError, match="takes steps greater than 0, got"):
        flow.slice_update(target, v, [[4, 1, -1]])
    with pytest.raises(ArgumentError, match=r"takes \(start, stop, step\) for at most 1 dims"):
        flow.slice(target, [[0, 1, 1]] * 2)


def _stft():
    signal, window = np.sin(np.arange(32, dtype=np.float32)), np.hanning(9)[:-1].astype(np.float32)
    found = flow.stft(flow.tensor(signal), 8, 4, window=flow.tensor(window), center=False)
    frames = np.stack([np.fft.rfft(signal[s : s + 8] * window) for s in range(0, 25, 4)], 1)
    same(found, np.stack([frames.real, frames.imag], -1).astype(np.float32))
    assert flow.stft(flow.tensor(signal), 8, return_complex=True).is_complex()


def _grad_enabled():
    with flow.set_grad_enabled(False):
        assert not flow.is_grad_enabled()
    with flow.no_grad(), flow.set_grad_enabled():
        assert flow.is_grad_enabled()

    @flow.set_grad_enabled(is_train=False)
    def inside():
        return flow.is_grad_enabled()

    assert flow.is_grad_enabled() and not inside() and flow.is_grad_enabled()


def _modes():
    with flow.no_grad():
        assert not flow.is_grad_enabled()
        with flow.enable_grad():
            assert flow.is_grad_enabled()
    with flow.inference_mode():
        assert flow.ones(1).is_inference()


def _seeds():
    assert isinstance(flow.default_generator, flow.Generator)
    flow.manual_seed(3)
    assert flow.initial_seed() == 3
    state = flow.get_rng_state()
    first = flow.rand(3)
    flow.set_rng_state(state=state)
    same(flow.rand(3), first)
    assert isinstance(flow.seed(), int)
    same(
        flow.rand(2, generator=flow.Generator().manual_seed(1)),
        torch.rand(2, generator=torch.Generator().manual_seed(1)),
    )


def _default_dtype():
    try:
        flow.set_default_dtype(flow.float64)
        assert flow.get_default_dtype() is flow.ones(1).dtype is torch.float64
        for given, dtype in (
            (flow.HalfTensor, torch.float16),
            ("oneflow.DoubleTensor", torch.float64),
            ("torch.FloatTensor", torch.float32),
        ):
            flow.set_default_tensor_type(given)
            assert flow.get_default_dtype() is dtype
        with pytest.raises(
            ArgumentError, match="set_default_tensor_type takes one of .*'FloatTensor'.*got 'oneflow.IntTensor'"
        ):
            flow.set_default_tensor_type("oneflow.IntTensor")
    finally:
        torch.set_default_dtype(torch.float32)


def _autocast():
    with flow.autocast("cpu", dtype=flow.bfloat16):
        assert (sq @ sq).dtype is torch.bfloat16 and flow.is_autocast_cache_enabled()
        flow.clear_autocast_cache()
    made = flow.autocast_decorator(flow.autocast("cpu", dtype=flow.bfloat16), lambda: sq @ sq)
    assert made().dtype is torch.bfloat16
    assert flow.is_autocast_enabled() is False
    flow.set_autocast_enabled(False)
    flow.set_autocast_cache_enabled(True)
    cpu, gpu = flow.get_autocast_cpu_dtype(), flow.get_autocast_gpu_dtype()
    flow.set_autocast_cpu_dtype(flow.float16)
    flow.set_autocast_gpu_dtype(flow.bfloat16)
    assert (flow.get_autocast_cpu_dtype(), flow.get_autocast_gpu_dtype()) == (torch.float16, torch.bfloat16)
    flow.set_autocast_cpu_dtype(cpu)
    flow.set_autocast_gpu_dtype(gpu)


def _deprecated():
    @flow.oneflow_deprecate("old.name")
    def old(a):
        return a + 1

    with pytest.warns(DeprecationWarning, match="old.name is deprecated"):
        assert old(1) == 2
    assert flow.is_deprecated(old) and not flow.is_deprecated(_deprecated)


def _scripts():
    def function(a):
        return a

    assert (
        flow.script(function) is function
        and flow.ignore(function) is function
        and flow.ignore(drop=True)(function) is function
    )


def _printing():
    try:
        flow.set_printoptions(precision=2)
        with redirect_stdout(io.StringIO()) as out:
            print(flow.tensor([1.23456]))
        assert out.getvalue() == "tensor([1.23])\n"
    finally:
        torch.set_printoptions(profile="default")


def _threads():
    before = torch.get_num_threads()
    flow.set_num_threads(1)
    assert torch.get_num_threads() == 1
    flow.set_num_threads(before)


def _configs():
    assert flow.function_config is flow.FunctionConfig and isinstance(flow.FunctionConfig(), flow.function_config)


def _finfo():
    assert (flow.finfo(flow.float32).max, flow.iinfo(flow.int8).max) == (np.finfo(np.float32).max, 127)


def _vision():
    from vision_loops import deformed, roi_means

    generator = torch.Generator().manual_seed(0)
    maps = torch.rand(2, 4, 6, 5, generator=generator)
    rois = flow.tensor([[0, 0.5, 1.0, 4.0, 5.0], [1, 1.0, 0.0, 9.0, 3.0]])
    for ratio, aligned in ((2, True), (-1, False)):
        same(
            flow.roi_align(maps, rois, 0.5, 2, 3, ratio, aligned),
            roi_means(maps.numpy(), rois.numpy(), 0.5, (2, 3), ratio, aligned),
        )
    weight, bias = torch.rand(6, 2, 3, 2, generator=generator), torch.rand(6, generator=generator)
    offset = torch.rand(2, 2 * 3 * 2 * 2, 4, 3, generator=generator) * 4 - 2
    mask = torch.rand(2, 2 * 3 * 2, 4, 3, generator=generator)
    args = (2, 2, 1, 1, 1, 2)
    offset, mask = offset[:, :, :3, :], mask[:, :, :3, :]
    found = flow.deform_conv2d(maps, weight, offset, mask, bias, *args, 2, 2, True)
    same(found, deformed(*(t.numpy() for t in (maps, weight, offset, mask, bias)), *args, 2, 2))
    with pytest.raises(ArgumentError, match=r"roi_align takes rois of shape \(boxes, 5\)"):
        flow.roi_align(maps, rois[:, :4], 1.0, 2, 2)


def _plain():
    assert flow.device("cpu") == x.device and isinstance(flow.float32, flow.dtype) and x.shape == flow.Size([2, 3])
    assert flow.dtypes()[:3] == [torch.bool, torch.float32, torch.float64]
    assert (Path(flow.oneflow_python_base_dir) / "oneflow" / "__init__.py").exists()


GROUPS = {
    _tensor: ["Tensor"],
    _unique: ["unique"],
    _slice_update: ["slice_update"],
    _stft: ["stft"],
    _grad_enabled: ["set_grad_enabled", "is_grad_enabled"],
    _modes: ["no_grad", "enable_grad", "inference_mode"],
    _seeds: ["manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "default_generator", "Generator"],
    _default_dtype: ["set_default_dtype", "get_default_dtype", "set_default_tensor_type"],
    _autocast: [
        *(
            "autocast",
            "autocast_decorator",
            "clear_autocast_cache",
            "is_autocast_enabled",
            "is_autocast_cache_enabled",
            "set_autocast_enabled",
        ),
        *(
            "set_autocast_cache_enabled",
            "get_autocast_cpu_dtype",
            "get_autocast_gpu_dtype",
            "set_autocast_cpu_dtype",
            "set_autocast_gpu_dtype",
        ),
    ],
    _deprecated: ["oneflow_deprecate", "is_deprecated"],
    _scripts: ["script", "ignore"],
    _printing: ["set_printoptions"],
    _threads: ["set_num_threads"],
    _configs: ["FunctionConfig", "function_config"],
    _finfo: ["finfo", "iinfo"],
    _vision: ["roi_align", "deform_conv2d"],
    _plain: ["device", "dtype", "Size", "dtypes", "oneflow_python_base_dir"],
}
CALLS |= {f"oneflow.{name}": call for call, names in GROUPS.items() for name in names}
CALLS["oneflow.to_dlpack"] = CALLS["oneflow.from_dlpack"]
