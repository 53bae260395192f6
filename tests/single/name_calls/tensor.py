"""Calls of the methods and properties of ``oneflow.Tensor``."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from called import gives, same, shaped

import oneflow as flow
from name_calls.root import BINARY, CUBE, SQ, UNARY, B, X, Y, b, cube, i, sq, v, w, x, y
from oneflow.engine.core.errors import ArgumentError, LocalTensorError

_METHODS = {
    n: a
    for n, a in UNARY.items()
    if n not in ("softshrink", "quick_gelu", "isfinite", "lgamma", "log_softmax", "softmax")
}
CALLS = {
    **{
        f"oneflow.Tensor.{n}": gives(lambda n=n, a=a: getattr(a, n)(), lambda f=f, a=a: f(a.numpy()))
        for n, (a, f) in _METHODS.items()
    },
    **{f"oneflow.Tensor.{n}": gives(lambda n=n: getattr(x, n)(y), lambda f=f: f(X, Y)) for n, f in BINARY.items()},
}
z = lambda: x.clone()  # noqa: E731
TABLE = {
    "T": (lambda: x.T, X.T),
    "add_": (lambda: z().add_(y), X + Y),
    "addcdiv": (lambda: x.addcdiv(y, y), X + 1),
    "addcdiv_": (lambda: z().addcdiv_(y, y), X + 1),
    "addcmul": (lambda: x.addcmul(y, y), X + Y * Y),
    "addcmul_": (lambda: z().addcmul_(y, y), X + Y * Y),
    "addmm": (lambda: sq.addmm(sq, sq), SQ + SQ @ SQ),
    "all": (lambda: b.all(), False),
    "allclose": (lambda: x.allclose(x), True),
    "amax": (lambda: x.amax(1), X.max(1)),
    "amin": (lambda: x.amin(1), X.min(1)),
    "any": (lambda: b.any(), True),
    "argmax": (lambda: x.argmax(1), X.argmax(1)),
    "argmin": (lambda: x.argmin(1), X.argmin(1)),
    "argsort": (lambda: x.argsort(1), X.argsort(1)),
    "argwhere": (lambda: b.argwhere(), np.argwhere(B)),
    "as_strided": (lambda: v.as_strided((2, 2), (1, 1)), [[1, 2], [2, 3]]),
    "bfloat16": (lambda: v.bfloat16().dtype, torch.bfloat16),
    "bincount": (lambda: flow.tensor([0, 2, 2]).bincount(), [1, 0, 2]),
    "bmm": (lambda: sq[None].bmm(sq[None]), (SQ @ SQ)[None]),
    "bool": (lambda: v.bool(), [True] * 3),
    "broadcast_to": (lambda: v.broadcast_to((2, 3)), [[1, 2, 3]] * 2),
    "byte": (lambda: v.byte().dtype, torch.uint8),
    "cast": (lambda: (y / 3).cast(flow.int32), (Y / 3).astype(np.int32)),
    "chunk": (lambda: v.chunk(3), [[1], [2], [3]]),
    "clamp": (lambda: y.clamp(0, 3), Y.clip(0, 3)),
    "clamp_": (lambda: y.clone().clamp_(0, 3), Y.clip(0, 3)),
    "clamp_max": (lambda: y.clamp_max(3), Y.clip(None, 3)),
    "clamp_max_": (lambda: y.clone().clamp_max_(3), Y.clip(None, 3)),
    "clamp_min": (lambda: y.clamp_min(0), Y.clip(0, None)),
    "clamp_min_": (lambda: y.clone().clamp_min_(0), Y.clip(0, None)),
    "clip": (lambda: y.clip(0, 3), Y.clip(0, 3)),
    "clip_": (lambda: y.clone().clip_(0, 3), Y.clip(0, 3)),
    "clone": (lambda: x.clone(), X),
    "contiguous": (lambda: x.t().contiguous().stride(), (2, 1)),
    "contiguous_": (lambda: z().t().contiguous_().stride(), (2, 1)),
    "copy_": (lambda: z().copy_(y), Y),
    "cpu": (lambda: x.cpu(), X),
    "cross": (lambda: v.cross(w, dim=0), np.cross([1, 2, 3], [4, 5, 6])),
    "cumprod": (lambda: v.cumprod(0), [1, 2, 6]),
    "cumsum": (lambda: v.cumsum(0), [1, 3, 6]),
    "data": (lambda: x.data, X),
    "detach": (lambda: x.detach(), X),
    "device": (lambda: x.device.type, "cpu"),
    "diag": (lambda: sq.diag(), [4, 3]),
    "diagonal": (lambda: sq.diagonal(), [4, 3]),
    "dim": (lambda: x.dim(), 2),
    "div_": (lambda: z().div_(y), X / Y),
    "dot": (lambda: v.dot(w), 32),
    "double": (lambda: v.double().dtype, torch.float64),
    "dtype": (lambda: v.dtype, torch.float32),
    "element_size": (lambda: v.element_size(), 4),
    "equal": (lambda: v.equal(v), True),
    "erfinv": (lambda: (x / 2).erfinv().erf(), X / 2),
    "erfinv_": (lambda: (x / 2).erfinv_().erf(), X / 2),
    "expand": (lambda: v.expand(2, 3), [[1, 2, 3]] * 2),
    "expand_as": (lambda: v.expand_as(x), [[1, 2, 3]] * 2),
    "fill_": (lambda: z().fill_(2), np.full((2, 3), 2)),
    "flatten": (lambda: cube.flatten(1), CUBE.reshape(2, 12)),
    "flip": (lambda: v.flip(0), [3, 2, 1]),
    "float": (lambda: i.float().dtype, torch.float32),
    "floor_": (lambda: z().floor_(), np.floor(X)),
    "gather": (lambda: x.gather(1, flow.tensor([[2], [0]])), [[0.75], [1.0]]),
    "get_device": (lambda: x.get_device(), -1),
    "half": (lambda: v.half().dtype, torch.float16),
    "in_top_k": (lambda: flow.tensor([3, 1]).in_top_k(flow.tensor([[0.0, 9, 1, 2], [1, 2, 3, 4]]), 2), [True, False]),
    "index_add": (lambda: v.index_add(0, flow.tensor([0, 0]), w[:2]), [10, 2, 3]),
    "index_add_": (lambda: v.clone().index_add_(0, flow.tensor([0, 0]), w[:2]), [10, 2, 3]),
    "index_select": (lambda: v.index_select(0, flow.tensor([2, 0])), [3, 1]),
    "int": (lambda: v.int().dtype, torch.int32),
    "inverse": (lambda: sq.inverse(), np.linalg.inv(SQ)),
    "is_contiguous": (lambda: x.t().is_contiguous(), False),
    "is_cuda": (lambda: x.is_cuda, False),
    "is_eager": (lambda: x.is_eager, True),
    "is_floating_point": (lambda: i.is_floating_point(), False),
    "is_global": (lambda: x.is_global, False),
    "is_lazy": (lambda: x.is_lazy, False),
    "is_leaf": (lambda: x.is_leaf, True),
    "is_local": (lambda: x.is_local, True),
    "is_pinned": (lambda: x.is_pinned(), False),
    "isclose": (lambda: v.isclose(v + 1), [False] * 3),
    "item": (lambda: v[1].item(), 2.0),
    "log_softmax": (lambda: x.log_softmax(-1), X - np.log(np.exp(X).sum(-1, keepdims=True))),
    "logical_and": (lambda: b.logical_and(~b), B & ~B),
    "logical_or": (lambda: b.logical_or(~b), B | ~B),
    "logical_xor": (lambda: b.logical_xor(b), B ^ B),
    "logsumexp": (lambda: x.logsumexp(1), np.log(np.exp(X).sum(1))),
    "long": (lambda: v.long().dtype, torch.int64),
    "masked_fill": (lambda: x.masked_fill(b, 9), np.where(B, 9, X)),
    "masked_fill_": (lambda: z().masked_fill_(b, 9), np.where(B, 9, X)),
    "masked_select": (lambda: x.masked_select(b), X[B]),
    "matmul": (lambda: sq.matmul(sq), SQ @ SQ),
    "max": (lambda: x.max(), X.max()),
    "mean": (lambda: x.mean(1), X.mean(1)),
    "median": (lambda: v.median(), 2),
    "min": (lambda: x.min(), X.min()),
    "mm": (lambda: sq.mm(sq), SQ @ SQ),
    "mul_": (lambda: z().mul_(y), X * Y),
    "mv": (lambda: sq.mv(v[:2]), SQ @ [1, 2]),
    "nansum": (lambda: flow.tensor([1.0, math.nan]).nansum(), 1),
    "narrow": (lambda: v.narrow(0, 1, 2), [2, 3]),
    "ndim": (lambda: x.ndim, 2),
    "ndimension": (lambda: x.ndimension(), 2),
    "nelement": (lambda: x.nelement(), 6),
    "new_empty": (lambda: v.new_empty((2,)).shape, flow.Size([2])),
    "new_full": (lambda: v.new_full((2,), 5), [5, 5]),
    "new_ones": (lambda: v.new_ones((2,)), [1, 1]),
    "new_tensor": (lambda: v.new_tensor([5]), [5]),
    "new_zeros": (lambda: v.new_zeros((2,)), [0, 0]),
    "nms": (lambda: flow.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9]]).nms(flow.tensor([0.5, 0.9]), 0.5), [1]),
    "nonzero": (lambda: b.nonzero(), np.argwhere(B)),
    "norm": (lambda: x.norm(), np.linalg.norm(X)),
    "numel": (lambda: x.numel(), 6),
    "permute": (lambda: cube.permute(2, 0, 1), CUBE.transpose(2, 0, 1)),
    "pow": (lambda: v.pow(2), [1, 4, 9]),
    "prod": (lambda: v.prod(), 6),
    "relu_": (lambda: z().relu_(), np.maximum(X, 0)),
    "repeat": (lambda: v.repeat(2, 1), [[1, 2, 3]] * 2),
    "repeat_interleave": (lambda: v.repeat_interleave(2), [1, 1, 2, 2, 3, 3]),
    "reshape": (lambda: x.reshape(3, 2), X.reshape(3, 2)),
    "reshape_as": (lambda: x.reshape_as(y.t()), X.reshape(3, 2)),
    "roll": (lambda: v.roll(1), [3, 1, 2]),
    "scatter": (lambda: v.scatter(0, flow.tensor([2]), w[:1]), [1, 2, 4]),
    "scatter_": (lambda: v.clone().scatter_(0, flow.tensor([2]), w[:1]), [1, 2, 4]),
    "scatter_add": (lambda: v.scatter_add(0, flow.tensor([2]), w[:1]), [1, 2, 7]),
    "scatter_add_": (lambda: v.clone().scatter_add_(0, flow.tensor([2]), w[:1]), [1, 2, 7]),
    "shape": (lambda: x.shape, flow.Size([2, 3])),
    "sin_": (lambda: z().sin_(), np.sin(X)),
    "size": (lambda: x.size(1), 3),
    "softmax": (lambda: x.softmax(-1), np.exp(X) / np.exp(X).sum(-1, keepdims=True)),
    "sort": (lambda: x.sort(1)[0], np.sort(X, 1)),
    "split": (lambda: v.split(2), [[1, 2], [3]]),
    "squeeze": (lambda: v[None].squeeze(), [1, 2, 3]),
    "std": (lambda: x.std(1), X.std(1, ddof=1)),
    "storage_offset": (lambda: x[1].storage_offset(), 3),
    "stride": (lambda: x.stride(), (3, 1)),
    "sub_": (lambda: z().sub_(y), X - Y),
    "sum": (lambda: x.sum(1), X.sum(1)),
    "swapaxes": (lambda: x.swapaxes(0, 1), X.T),
    "swapdims": (lambda: x.swapdims(0, 1), X.T),
    "t": (lambda: x.t(), X.T),
    "tile": (lambda: v.tile(2), [1, 2, 3, 1, 2, 3]),
    "to": (lambda: v.to(flow.int32).dtype, torch.int32),
    "to_numpy": (lambda: np.array_equal(x.clone().requires_grad_().to_numpy(), X), True),
    "tolist": (lambda: v.tolist(), [1, 2, 3]),
    "topk": (lambda: v.topk(2)[0], [3, 2]),
    "transpose": (lambda: x.transpose(0, 1), X.T),
    "tril": (lambda: sq.tril(), np.tril(SQ)),
    "triu": (lambda: sq.triu(), np.triu(SQ)),
    "triu_": (lambda: sq.clone().triu_(), np.triu(SQ)),
    "type": (lambda: v.type(flow.int32).dtype, torch.int32),
    "type_as": (lambda: v.type_as(i).dtype, torch.int64),
    "unbind": (lambda: v.unbind(), [1, 2, 3]),
    "unfold": (lambda: v.unfold(0, 2, 1), [[1, 2], [2, 3]]),
    "unique": (lambda: flow.tensor([3, 1, 3]).unique(), [1, 3]),
    "unsqueeze": (lambda: v.unsqueeze(0), [[1, 2, 3]]),
    "var": (lambda: x.var(1), X.var(1, ddof=1)),
    "view": (lambda: x.view(3, 2), X.reshape(3, 2)),
    "view_as": (lambda: x.view_as(flow.zeros(3, 2)), X.reshape(3, 2)),
    "where": (lambda: x.where(b, y), np.where(B, X, Y)),
    "zero_": (lambda: z().zero_(), np.zeros((2, 3))),
}
CALLS |= {f"oneflow.Tensor.{name}": gives(call, expected) for name, (call, expected) in TABLE.items()}
big = lambda: flow.empty(40, 30)  # noqa: E731
DRAWS = {
    "bernoulli": (lambda: flow.full((9,), 0.5).bernoulli(), (9,), 0, 1),
    "bernoulli_": (lambda: flow.empty(9).bernoulli_(0.5), (9,), 0, 1),
    "exponential_": (lambda: flow.empty(9).exponential_(), (9,), 0, 90),
    "kaiming_uniform_": (lambda: big().kaiming_uniform_(a=1), (40, 30), -math.sqrt(3 / 30), math.sqrt(3 / 30)),
    "normal_": (lambda: flow.empty(9).normal_(), (9,), -9, 9),
    "trunc_normal_": (lambda: big().trunc_normal_(a=-1.0, b=0.5), (40, 30), -1, 0.5),
    "uniform_": (lambda: flow.empty(9).uniform_(1, 2), (9,), 1, 2),
    "xavier_uniform_": (lambda: big().xavier_uniform_(), (40, 30), -math.sqrt(6 / 70), math.sqrt(6 / 70)),
}
CALLS |= {f"oneflow.Tensor.{name}": shaped(*row) for name, row in DRAWS.items()}


def _normals():
    torch.manual_seed(0)
    for found, std in (
        (big().kaiming_normal_(a=1), math.sqrt(1 / 30)),
        (big().xavier_normal_(gain=2), 2 * math.sqrt(2 / 70)),
    ):
        assert abs(float(found.std()) / std - 1) < 0.1
    channels_last = flow.empty(16, 3, 3, 8).kaiming_normal_(data_format="NHWC")  # a fan of 8 * 3 * 3
    assert abs(float(channels_last.std()) / math.sqrt(2 / 72) - 1) < 0.1
    with pytest.raises(ArgumentError, match=r"data_format is one of \['NCHW', 'NHWC'\], got 'HWC'"):
        big().kaiming_normal_(data_format="HWC")
    rows = big().orthogonal_()
    same(rows.t() @ rows, np.eye(30))
    leaf = big().requires_grad_()
    assert leaf.kaiming_uniform_() is leaf and leaf.is_leaf


def _gradients():
    leaf = flow.tensor([1.0, 2.0]).requires_grad_()
    assert leaf.requires_grad and leaf.grad is None
    square = leaf * leaf
    square.retain_grad()
    seen = []
    square.register_hook(seen.append)
    assert square.grad_fn is not None
    square.backward(gradient=flow.ones(2), retain_graph=False, create_graph=False)
    same(leaf.grad, [2, 4])
    same(square.grad, [1, 1])
    same(seen[0], [1, 1])


def _layouts():
    with pytest.raises(
        LocalTensorError, match=r"local tensor \(2, 3\) has no placement, it lies on cpu; read its .device"
    ):
        x.placement  # noqa: B018
    with pytest.raises(RuntimeError, match=r"local tensor \(2, 3\) has no sbp"):
        x.sbp  # noqa: B018


def _devices():
    for move in (x.cuda, x.pin_memory):
        if not torch.cuda.is_available():
            with pytest.raises((RuntimeError, AssertionError)):
                move()
        else:
            same(move().cpu(), X)


GROUPS = {
    _normals: ["kaiming_normal_", "xavier_normal_", "orthogonal_"],
    _gradients: ["requires_grad", "requires_grad_", "grad", "grad_fn", "backward", "retain_grad", "register_hook"],
    _layouts: ["placement", "sbp"],
    _devices: ["cuda", "pin_memory"],
}
CALLS |= {f"oneflow.Tensor.{name}": call for call, names in GROUPS.items() for name in names}
