"""Calls of the names of ``oneflow._C``: those that the root has too are the same function, the others are compared with
formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from called import gives, same, shaped

import oneflow as flow
from name_calls.root import CALLS as ROOT
from name_calls.root import CUBE, SQ, B, X, Y, b, cube, sq, v, w, x, y
from oneflow import _C
from oneflow.engine.core.errors import ArgumentError


def _as_root(name):
    """Asserts that a name is the root's, and calls that."""

    def asserted():
        here, there = getattr(_C, name), getattr(flow, name)
        assert here is getattr(there, "of_tensors", there), name
        ROOT[f"oneflow.{name}"]()

    return asserted


OTHER = {
    "conv1d",
    "conv2d",
    "conv3d",
    "dropout",
    "gather",
    "matmul",
    "relu",
    "selu",
    "slice",
    "slice_update",
    "threshold",
}  # with arguments of their own
CALLS = {
    f"oneflow._C.{n}": _as_root(n)
    for n in _C.__all__
    if n in flow.__all__ and f"oneflow.{n}" in ROOT and n not in OTHER
}


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(a):
    return a * (1 + np.vectorize(math.erf)(a / math.sqrt(2))) / 2


def fast(a):
    return a / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


pic = flow.arange(32.0).reshape(1, 2, 4, 4)
PIC = pic.numpy()
label = flow.tensor([2, 0], dtype=flow.int32)
LOGP = np.log(softmax(X))
PICKED = np.array([LOGP[0, 2], LOGP[1, 0]])
prob = flow.tensor(softmax(X))
target = flow.tensor(B.astype(np.float32))
T_ = B.astype(np.float32)
CE = np.maximum(X, 0) - X * T_ + np.log1p(np.exp(-abs(X)))
MASK = np.tril(np.ones((3, 3), bool))
scores = flow.tensor(np.arange(9.0, dtype=np.float32).reshape(1, 3, 3) / 4)
SCORES = scores.numpy()
CAUSAL = softmax(np.where(MASK, SCORES * 0.5, -1e4))
box = lambda *n: [flow.tensor([float(k)]) for k in n]  # noqa: E731

TABLE = {
    "BFloat16Tensor": (lambda: _C.BFloat16Tensor([1]).dtype, torch.bfloat16),
    "T": (lambda: _C.T(cube), CUBE.transpose(2, 1, 0)),
    "adaptive_max_pool1d": (lambda: _C.adaptive_max_pool1d(cube, 1), CUBE.max(-1, keepdims=True)),
    "adaptive_max_pool2d": (lambda: _C.adaptive_max_pool2d(pic, 1), PIC.max((2, 3), keepdims=True)),
    "adaptive_max_pool3d": (lambda: _C.adaptive_max_pool3d(pic[None], 1), PIC.max().reshape(1, 1, 1, 1, 1)),
    "addcdiv_": (lambda: _C.addcdiv_(x.clone(), y, y, value=2), X + 2),
    "addcmul_": (lambda: _C.addcmul_(x.clone(), y, y, value=2), X + 2 * Y * Y),
    "affine_grid": (lambda: _C.affine_grid(flow.eye(2, 3)[None], (1, 1, 2, 2), True)[0, 0, 0], [-1, -1]),
    "arg_sort": (lambda: _C.arg_sort(x, "DESCENDING"), (-X).argsort(1)),
    "avg_pool1d": (lambda: _C.avg_pool1d(cube, 2), CUBE.reshape(2, 3, 2, 2).mean(-1)),
    "avg_pool2d": (lambda: _C.avg_pool2d(pic, 2), PIC.reshape(1, 2, 2, 2, 2, 2).mean((3, 5))),
    "avg_pool2d_nhwc": (
        lambda: _C.avg_pool2d_nhwc(pic.movedim(1, -1), 2).movedim(-1, 1),
        PIC.reshape(1, 2, 2, 2, 2, 2).mean((3, 5)),
    ),
    "avg_pool3d": (lambda: _C.avg_pool3d(pic[None], 2), PIC[None].reshape(1, 1, 1, 2, 2, 2, 2, 2).mean((3, 5, 7))),
    "batch_matmul": (lambda: _C.batch_matmul(sq[None], sq[None], transpose_b=True), (SQ @ SQ.T)[None]),
    "bernoulli_": (lambda: _C.bernoulli_(flow.empty(4), 1.0), [1] * 4),
    "bias_add": (lambda: _C.bias_add(cube, v, axis=1), CUBE + np.array([1, 2, 3])[:, None]),
    "binary_cross_entropy_loss": (lambda: _C.binary_cross_entropy_loss(x.sigmoid(), target, reduction="none"), CE),
    "binary_cross_entropy_with_logits_loss": (lambda: _C.binary_cross_entropy_with_logits_loss(x, target), CE.mean()),
    "binary_cross_entropy_with_logits_loss_grad": (
        lambda: _C.binary_cross_entropy_with_logits_loss_grad(y, x, target, weight=y, pos_weight=flow.full((3,), 2.0)),
        Y * Y * (sigmoid(X) * (1 - T_) - 2 * T_ * (1 - sigmoid(X))),
    ),
    "broadcast_equal": (lambda: _C.broadcast_equal(v, w - 3), [True] * 3),
    "celu": (lambda: _C.celu(x), np.maximum(X, 0) + np.minimum(0, np.expm1(X))),
    "combined_margin_loss": (
        lambda: _C.combined_margin_loss(x, label, 1.0, 0.5, 0.1),
        [[0.5, -0.25, math.cos(math.acos(0.75) + 0.5) - 0.1], [math.cos(math.acos(1.0) + 0.5) - 0.1, 0.125, -0.5]],
    ),
    "constant": (lambda: _C.constant((2,), 3, dtype=flow.int32), [3, 3]),
    "contiguous_": (lambda: _C.contiguous_(x.clone().t()).stride(), (2, 1)),
    "copy": (lambda: _C.copy(x, "cpu", 0), X),
    "cosh_grad": (lambda: _C.cosh_grad(x, y), Y * np.sinh(X)),
    "cosine_similarity": (lambda: _C.cosine_similarity(v, w, 0), 32 / math.sqrt(14 * 77)),
    "cross_entropy": (lambda: _C.cross_entropy(x, label), -PICKED.mean()),
    "ctc_loss": (
        lambda: _C.ctc_loss(
            flow.tensor(LOGP)[:1, None], flow.tensor([[1]]), flow.tensor([1]), flow.tensor([1]), 1, 0, False, "sum"
        ),
        -LOGP[0, 1],
    ),
    "dim_gather": (lambda: _C.dim_gather(x, 1, label[:, None]), [[0.75], [1.0]]),
    "elu": (lambda: _C.elu(x, 2.0), np.where(X > 0, X, 2 * np.expm1(X))),
    "embedding": (lambda: _C.embedding(x, flow.tensor([1, 0], dtype=flow.int32)), X[[1, 0]]),
    "embedding_renorm_": (
        lambda: _C.embedding_renorm_(y.clone(), flow.tensor([0, 1]), 1.0, 2.0),
        Y / np.linalg.norm(Y, axis=1, keepdims=True),
    ),
    "exponential_": (lambda: (_C.exponential_(flow.empty(9)) >= 0).all(), True),
    "expand_dims": (lambda: _C.expand_dims(v, 0), [[1, 2, 3]]),
    "eye_": (lambda: _C.eye_(flow.empty(2, 2)), np.eye(2)),
    "fast_gelu": (lambda: _C.fast_gelu(x), fast(X)),
    "fill_": (lambda: _C.fill_(v.clone(), 2), [2, 2, 2]),
    "fold": (lambda: _C.fold(_C.unfold(pic, 2, stride=2), (4, 4), 2, stride=2), PIC),
    "fused_bias_add_dropout": (lambda: _C.fused_bias_add_dropout(x, v, p=0.0, axis=1), X + [1, 2, 3]),
    "fused_bias_add_gelu": (lambda: _C.fused_bias_add_gelu(x, v, axis=1), gelu(X + np.array([1, 2, 3], np.float32))),
    "fused_bias_add_scale_mask_softmax_dropout": (
        lambda: _C.fused_bias_add_scale_mask_softmax_dropout(
            scores, flow.ones(3), flow.tensor(MASK), fill_value=-1e4, scale=0.5, p=0.0
        )[0],
        softmax(np.where(MASK, (SCORES + 1) * 0.5, -1e4)),
    ),
    "fused_cross_feature_interaction": (
        lambda: (
            _C.fused_cross_feature_interaction(sq, sq[:1], sq + 1, v[:2], "vector"),
            _C.fused_cross_feature_interaction(sq, sq, sq + 1, v[:2], "matrix"),
        ),
        ((SQ + 1) * (SQ @ SQ[:1].T) + [1, 2] + SQ, (SQ + 1) * (SQ @ SQ.T + [1, 2]) + SQ),
    ),
    "fused_dot_feature_interaction": (
        lambda: (
            _C.fused_dot_feature_interaction([cube[:, :1], cube[:, 1:]], flow.ones(2, 1), output_padding=1),
            _C.fused_dot_feature_interaction([cube], pooling="sum"),
        ),
        (
            [[1, *(CUBE[n, i] @ CUBE[n, j] for i in range(3) for j in range(i)), 0] for n in range(2)],
            [sum(CUBE[n, i] * CUBE[n, j] for i in range(3) for j in range(i)) for n in range(2)],
        ),
    ),
    "fused_fast_gelu_mul": (lambda: _C.fused_fast_gelu_mul(x, y), fast(X) * Y),
    "fused_get_boundding_boxes_coord": (
        lambda: _C.fused_get_boundding_boxes_coord(*box(2, 3, 2, 4, 1, 1, 2, 2)),
        [[n] for n in (1, 3, 1, 5, 0, 2, 0, 2)],
    ),
    "fused_get_center_dist": (lambda: _C.fused_get_center_dist(*box(0, 2, 3, 5, 0, 2, 4, 6)), [9 + 16]),
    "fused_get_ciou_diagonal_angle": (
        lambda: _C.fused_get_ciou_diagonal_angle(*box(1, 1, 1, 2), 0.0),
        [4 / math.pi**2 * (math.atan(0.5) - math.atan(1)) ** 2],
    ),
    "fused_get_ciou_result": (
        lambda: _C.fused_get_ciou_result(*box(0.5, 0.25, 1, 4), 0.0),
        [[0.25 - (0.25 + 0.5 * 0.4)], [0.4]],
    ),
    "fused_get_convex_diagonal_squared": (
        lambda: _C.fused_get_convex_diagonal_squared(*box(0, 2, 1, 4, 0, 2, 1, 3), 0.5),
        [16 + 9 + 0.5],
    ),
    "fused_get_intersection_area": (lambda: _C.fused_get_intersection_area(*box(0, 2, 1, 4, 0, 3, 1, 3)), [2]),
    "fused_get_iou": (lambda: _C.fused_get_iou(*box(2, 3, 3, 2, 2), 0.0), [0.2]),
    "fused_glu": (
        lambda: (
            _C.fused_glu(sq, flow.cat([sq, sq + 1]), activation="silu"),
            _C.fused_glu(sq, sq, v[:2], sq, v[:2], "sigmoid"),
        ),
        (
            (SQ @ SQ.T) * (SQ @ (SQ + 1).T) * sigmoid(SQ @ (SQ + 1).T),
            (SQ @ SQ.T + [1, 2]) * sigmoid(SQ @ SQ.T + [1, 2]),
        ),
    ),
    "fused_matmul_bias": (lambda: _C.fused_matmul_bias(sq, sq, v[:2], sq, 2.0, 3.0), 2 * SQ @ SQ.T + [1, 2] + 3 * SQ),
    "fused_matmul_bias_add_relu_dropout": (
        lambda: _C.fused_matmul_bias_add_relu_dropout(
            sq, [-sq, sq], [v[:2], v[:2]], skip_final_activation=True, dropout_rate_list=[0.0, 0.0]
        ),
        np.maximum(-SQ @ SQ.T + [1, 2], 0) @ SQ.T + [1, 2],
    ),
    "fused_mlp": (
        lambda: _C.fused_mlp(sq, [sq, -sq], [v[:2], v[:2]]),
        np.maximum((SQ @ SQ.T + [1, 2]) @ -SQ.T + [1, 2], 0),
    ),
    "fused_multi_head_attention_inference": (
        lambda: _C.fused_multi_head_attention_inference(cube, cube, cube, 2, True),
        np.concatenate(
            [
                softmax(np.where(MASK, h @ h.transpose(0, 2, 1) / math.sqrt(2), -np.inf)) @ h
                for h in (CUBE[..., :2], CUBE[..., 2:])
            ],
            -1,
        ),
    ),
    "fused_scale_mask_softmax": (lambda: _C.fused_scale_mask_softmax(scores, flow.tensor(MASK), -1e4, 0.5), CAUSAL),
    "fused_scale_mask_softmax_dropout": (
        lambda: _C.fused_scale_mask_softmax_dropout(
            scores, flow.tensor(MASK), fill_value=-1e4, scale=0.5, p=0.9, training=False
        ),
        (CAUSAL, CAUSAL),
    ),
    "fused_scale_tril": (lambda: _C.fused_scale_tril(scores, 0, 7, 2), np.where(MASK, SCORES * 2, 7)),
    "fused_scale_tril_softmax_mask_scale": (
        lambda: _C.fused_scale_tril_softmax_mask_scale(
            scores, p=0.0, diagonal=0, tril_scale_value=0.5, tril_fill_value=-math.inf
        )[0],
        CAUSAL,
    ),
    "fused_self_attention": (
        lambda: _C.fused_self_attention(flow.arange(24.0).reshape(2, 1, 12), head_size=2, alpha=0.5),
        (
            [
                [
                    [
                        [0.5 * float(np.dot(q, k)) for k in ([s + 2 + h, s + 3 + h] for s in (0, 12))]
                        for q in ([s + h, s + 1 + h] for s in (0, 12))
                    ]
                    for h in (0, 6)
                ]
            ],
            [[[[s + 4 + h, s + 5 + h] for s in (0, 12)] for h in (0, 6)]],
        ),
    ),
    "fused_weighted_sum": (lambda: _C.fused_weighted_sum([v, w], [1.0, 2.0], alpha=0.5), [4.5, 6, 7.5]),
    "gather": (lambda: _C.gather(x, flow.tensor([[1, 0]], dtype=flow.int32), axis=0), X[[[1, 0]]]),
    "gelu_with_approximate": (
        lambda: (_C.gelu_with_approximate(x, "tanh"), _C.gelu_with_approximate(x)),
        (fast(X), gelu(X)),
    ),
    "glu": (lambda: _C.glu(sq), SQ[:, :1] * sigmoid(SQ[:, 1:])),
    "grid_sample": (
        lambda: _C.grid_sample(pic, flow.zeros(1, 1, 1, 2), "bilinear", "zeros", False),
        PIC[:, :, 1:3, 1:3].mean((2, 3), keepdims=True),
    ),
    "group_norm": (
        lambda: _C.group_norm(pic, v[:2], w[:2], True, 2, 0.0),
        (PIC - PIC.mean((2, 3), keepdims=True)) / PIC.std((2, 3), keepdims=True) * np.array([1, 2]).reshape(1, 2, 1, 1)
        + np.array([4, 5]).reshape(1, 2, 1, 1),
    ),
    "grouped_matmul": (lambda: _C.grouped_matmul([sq, sq], [sq, -sq]), (SQ @ SQ.T, -SQ @ SQ.T)),
    "grouped_matmul_bias": (lambda: _C.grouped_matmul_bias([sq], [sq], [v[:2]]), [SQ @ SQ.T + [1, 2]]),
    "gumbel_softmax": (lambda: _C.gumbel_softmax(x, 1, 1.0, True).sum(1), [1, 1]),
    "hardshrink": (lambda: _C.hardshrink(x), np.where(abs(X) > 0.5, X, 0)),
    "hardsigmoid": (lambda: _C.hardsigmoid(x), (X + 3) / 6),
    "hardswish": (lambda: _C.hardswish(x), X * (X + 3) / 6),
    "hardtanh": (lambda: _C.hardtanh(x, -0.3, 0.3), X.clip(-0.3, 0.3)),
    "identity": (lambda: _C.identity(x), X),
    "inv": (lambda: _C.inv(sq), np.linalg.inv(SQ)),
    "kl_div_loss": (lambda: _C.kl_div_loss(x, prob), (softmax(X) * (LOGP - X)).mean()),
    "l1_loss": (lambda: _C.l1_loss(x, y, "sum"), abs(X - Y).sum()),
    "layer_norm": (lambda: _C.layer_norm(x, 1, 1, 0.0), (X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True)),
    "layer_norm_affine": (
        lambda: _C.layer_norm_affine(x, v, w, 1, 1, 0.0),
        (X - X.mean(1, keepdims=True)) / X.std(1, keepdims=True) * [1, 2, 3] + [4, 5, 6],
    ),
    "leaky_relu": (lambda: _C.leaky_relu(x, alpha=0.1), np.where(X > 0, X, 0.1 * X)),
    "less": (lambda: _C.less(x, y), X < Y),
    "less_equal": (lambda: _C.less_equal(x, y), X <= Y),
    "linalg_cross": (lambda: _C.linalg_cross(v, w), np.cross([1, 2, 3], [4, 5, 6])),
    "logsigmoid": (lambda: _C.logsigmoid(x), np.log(sigmoid(X))),
    "margin_ranking_loss": (lambda: _C.margin_ranking_loss(v, w, flow.ones(3)), 3),
    "matmul": (lambda: _C.matmul(sq, sq, transpose_b=True, alpha=2.0), 2 * SQ @ SQ.T),
    "matrix_norm": (lambda: _C.matrix_norm(sq), np.linalg.norm(SQ)),
    "matrix_vector_product": (lambda: _C.matrix_vector_product(sq, v[:2]), SQ @ [1, 2]),
    "max_pool1d": (lambda: _C.max_pool1d(cube, 2), (CUBE[..., 1::2], np.broadcast_to([1, 3], (2, 3, 2)))),
    "max_pool2d": (
        lambda: _C.max_pool2d(pic.movedim(1, -1), 2, data_format="channels_last")[0].movedim(-1, 1),
        PIC[..., 1::2, 1::2],
    ),
    "max_pool3d": (lambda: _C.max_pool3d(pic[None], 2)[0], PIC[None][:, :, 1:, 1::2, 1::2]),
    "max_unpool1d": (lambda: _C.max_unpool1d(*_C.max_pool1d(cube, 2), 2), CUBE * [0, 1, 0, 1]),
    "max_unpool2d": (lambda: _C.max_unpool2d(*_C.max_pool2d(pic, 2), 2)[..., 1::2, 1::2], PIC[..., 1::2, 1::2]),
    "max_unpool3d": (
        lambda: _C.max_unpool3d(*_C.max_pool3d(pic[None], 2), 2)[:, :, 1:, 1::2, 1::2],
        PIC[None][:, :, 1:, 1::2, 1::2],
    ),
    "mse_loss": (lambda: _C.mse_loss(x, y, "none"), (X - Y) ** 2),
    "mul_": (lambda: _C.mul_(x.clone(), y), X * Y),
    "nll_loss": (lambda: _C.nll_loss(flow.tensor(LOGP), label), -PICKED.mean()),
    "normalize": (lambda: _C.normalize(x, 2.0, 0, 1e-12), X / np.linalg.norm(X, axis=0)),
    "one_hot": (
        lambda: (_C.one_hot(label, 3), _C.one_hot(label, 3, 0.9, 0.1)),
        (np.eye(3)[[2, 0]], np.eye(3)[[2, 0]] * 0.8 + 0.1),
    ),
    "pack_padded_sequence": (lambda: _C.pack_padded_sequence(sq, flow.tensor([2, 1])), ([4, 1, 2], [2, 1])),
    "pairwise_distance": (lambda: _C.pairwise_distance(x, y), np.linalg.norm(X - Y + 1e-6, axis=1)),
    "pixel_shuffle": (
        lambda: (_C.pixel_shuffle(pic.reshape(1, 8, 2, 2), 2, 2), _C.pixel_shuffle(pic, 2, 1)),
        (
            lambda p=pic: (
                F.pixel_shuffle(p.reshape(1, 8, 2, 2), 2),
                PIC.reshape(1, 1, 2, 4, 4).transpose(0, 1, 3, 2, 4).reshape(1, 1, 8, 4),
            )
        )(),
    ),
    "prelu": (lambda: _C.prelu(x, flow.tensor([0.1])), np.where(X > 0, X, 0.1 * X)),
    "reciprocal_no_nan": (lambda: _C.reciprocal_no_nan(flow.tensor([0.0, 2.0])), [0, 0.5]),
    "reduce_all": (lambda: _C.reduce_all(b, [1]), B.all(1)),
    "reduce_any": (lambda: _C.reduce_any(b, [1], True), B.any(1, keepdims=True)),
    "reduce_max": (lambda: _C.reduce_max(x), X.max()),
    "reduce_mean": (lambda: _C.reduce_mean(x, [0, 1]), X.mean()),
    "reduce_min": (lambda: _C.reduce_min(x, 1), X.min(1)),
    "reduce_nansum": (lambda: _C.reduce_nansum(flow.tensor([1.0, math.nan])), 1),
    "reduce_prod": (lambda: _C.reduce_prod(cube + 1, [0, 2], True), (CUBE + 1).prod((0, 2), keepdims=True)),
    "reduce_sum": (lambda: _C.reduce_sum(cube, [0, 2]), CUBE.sum((0, 2))),
    "reduce_sum_like": (lambda: _C.reduce_sum_like(cube, flow.zeros(1, 3, 1), [0, 2]), CUBE.sum((0, 2), keepdims=True)),
    "relu": (lambda: _C.relu(x.clone(), inplace=True), np.maximum(X, 0)),
    "reshape_like": (lambda: _C.reshape_like(x, flow.zeros(3, 2)), X.reshape(3, 2)),
    "rint": (lambda: _C.rint(x * 3), np.rint(X * 3)),
    "rms_layer_norm": (
        lambda: _C.rms_layer_norm(x, v, 1e-6),
        X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * [1, 2, 3],
    ),
    "rms_norm": (lambda: _C.rms_norm(x, v, (3,), 1e-6), X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * [1, 2, 3]),
    "scatternd": (lambda: _C.scatternd(flow.tensor([[1], [1]]), v[:2], (3,)), [0, 3, 0]),
    "scatterndlike": (lambda: _C.scatterndlike(w, flow.tensor([[1], [1]]), v[:2]), [0, 3, 0]),
    "select_top_n": (lambda: _C.select_top_n([v, w], 1), [[1, 2, 3]]),
    "selu": (lambda: _C.selu(x), 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X))),
    "sigmoid_grad": (lambda: _C.sigmoid_grad(x.sigmoid(), y), Y * sigmoid(X) * (1 - sigmoid(X))),
    "slice": (lambda: _C.slice(x, [0, 0], [2, 3], [1, 2]), X[:, ::2]),
    "slice_update": (lambda: _C.slice_update(v, w[:1], [1], [2], [1]), [1, 4, 3]),
    "slice_view_1d_contiguous": (lambda: _C.slice_view_1d_contiguous(v, 1, 3), [2, 3]),
    "smooth_l1_loss": (lambda: _C.smooth_l1_loss(flow.tensor([0.5, 3.0]), flow.zeros(2), 1.0, "none"), [0.125, 2.5]),
    "softmax_cross_entropy": (lambda: _C.softmax_cross_entropy(x, prob), -(softmax(X) * LOGP).sum(1)),
    "softmax_cross_entropy_grad": (
        lambda: _C.softmax_cross_entropy_grad(v[:2], target, prob),
        np.array([[1], [2]]) * (softmax(X) - T_),
    ),
    "sparse_cross_entropy": (lambda: _C.sparse_cross_entropy(prob, label, 3), -PICKED),
    "sparse_softmax_cross_entropy": (lambda: _C.sparse_softmax_cross_entropy(x, label), -PICKED),
    "split_like": (lambda: _C.split_like(v, [w[:1], w[:2]]), [[1], [2, 3]]),
    "sqrt_square_sum": (lambda: _C.sqrt_square_sum(x), np.linalg.norm(X)),
    "tan_grad": (lambda: _C.tan_grad(x, y), Y / np.cos(X) ** 2),
    "tanh_grad": (lambda: _C.tanh_grad(x, y), Y * (1 - np.tanh(X) ** 2)),
    "tensor_constant": (lambda: _C.tensor_constant((2,), flow.tensor(3.0), dtype=flow.int32), [3, 3]),
    "threshold": (lambda: _C.threshold(v, 1.5, 0), [0, 2, 3]),
    "to": (lambda: _C.to(v, flow.int32).dtype, torch.int32),
    "triplet_margin_loss": (
        lambda: _C.triplet_margin_loss(x, x, y, margin=20.0),
        20 - np.linalg.norm(X - Y, axis=1).mean(),
    ),
    "triu_": (lambda: _C.triu_(sq.clone()), np.triu(SQ)),
    "trunc_divide": (lambda: _C.trunc_divide(y, 3), np.trunc(Y / 3)),
    "unfold": (lambda: _C.unfold(pic, 2, stride=2)[0, :4, 0], [0, 1, 4, 5]),
    "unfold_tensor": (lambda: _C.unfold_tensor(v, 0, 2, 1), [[1, 2], [2, 3]]),
    "unsorted_segment_sum": (
        lambda: _C.unsorted_segment_sum(x, flow.tensor([1, 1, 0]), 1, 2),
        np.stack([X[:, 2], X[:, 0] + X[:, 1]], 1),
    ),
    "upsample": (lambda: _C.upsample(pic, 2.0, 2.0), PIC.repeat(2, 2).repeat(2, 3)),
    "upsample_bicubic_2d": (lambda: _C.upsample_bicubic_2d(pic, output_size=(4, 4), align_corners=True), PIC),
    "upsample_bilinear_2d": (
        lambda: _C.upsample_bilinear_2d(pic, 0.5, 0.5),
        PIC.reshape(1, 2, 2, 2, 2, 2).mean((3, 5)),
    ),
    "upsample_linear_1d": (lambda: _C.upsample_linear_1d(cube, 0.5), CUBE.reshape(2, 3, 2, 2).mean(-1)),
    "upsample_nearest_1d": (lambda: _C.upsample_nearest_1d(cube, 2.0), CUBE.repeat(2, 2)),
    "upsample_nearest_2d": (lambda: _C.upsample_nearest_2d(pic, output_size=(8, 8)), PIC.repeat(2, 2).repeat(2, 3)),
    "upsample_nearest_3d": (
        lambda: _C.upsample_nearest_3d(pic[None], 1.0, 2.0, 2.0),
        PIC[None].repeat(2, 3).repeat(2, 4),
    ),
    "upsample_trilinear_3d": (
        lambda: _C.upsample_trilinear_3d(pic[None], 1.0, 0.5, 0.5),
        PIC[None].reshape(1, 1, 2, 2, 2, 2, 2).mean((4, 6)),
    ),
    "vector_norm": (lambda: _C.vector_norm(v), math.sqrt(14)),
}
CALLS |= {f"oneflow._C.{name}": gives(call, expected) for name, (call, expected) in TABLE.items()}


def _precisions():
    assert _C.amp_white_identity(x) is x and _C.amp_black_identity(x) is x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (
            _C.amp_white_identity(x).dtype is torch.bfloat16
            and _C.amp_black_identity(x.bfloat16()).dtype is torch.float32
        )


def _assigned():
    leaf = flow.zeros(3, requires_grad=True)
    _C.assign_local_tensor(leaf, v)
    same(leaf, [1, 2, 3])
    item = v.clone()
    _C.tensor_setitem(item, 0, 9)
    same(item, [9, 2, 3])


def _batch_stats():
    torch.manual_seed(0)
    parts = [torch.randn(3, 2, 2), torch.randn(5, 2, 2)]
    whole = torch.cat(parts).requires_grad_()
    weight, bias = flow.tensor([1.5, -2.0]), flow.tensor([0.5, 1.0])
    stats = [_C.batch_norm_stats(part, 1e-5) for part in parts]
    counts = flow.tensor([6, 10])
    running, spread = flow.zeros(2), flow.ones(2)
    means, inverses = (torch.stack([one[k] for one in stats]) for k in (0, 1))
    mean, inverse = _C.batch_norm_gather_stats_with_counts(whole, means, inverses, running, spread, 0.1, 1e-5, counts)
    kept = [flow.zeros(2), flow.ones(2)]
    expected = F.batch_norm(whole, *kept, weight, bias, True, 0.1, 1e-5)
    same(_C.batch_norm_elemt(whole, weight, bias, mean, inverse, 1e-5), expected.detach())
    same((running, spread), kept)
    grad = torch.randn(8, 2, 2)
    expected.backward(grad)
    sums, products, weight_grad, bias_grad = _C.batch_norm_backward_reduce(grad, whole.detach(), mean, inverse, weight)
    normal = (whole.detach() - mean[:, None]) * inverse[:, None]
    same((weight_grad, bias_grad), ((grad * normal).sum((0, 2)), grad.sum((0, 2))))
    same(_C.batch_norm_backward_elemt(grad, whole.detach(), mean, inverse, weight, sums, products, counts), whole.grad)


def _convolutions():
    torch.manual_seed(0)
    for dims in (1, 2, 3):
        image, weight, bias = torch.randn(2, 4, *[5] * dims), torch.randn(6, 2, *[3] * dims), torch.randn(6)
        conv, deconv = getattr(_C, f"conv{dims}d"), getattr(_C, f"deconv{dims}d")
        expected = getattr(F, f"conv{dims}d")(image, weight, bias, 2, 1, 1, 2)
        same(conv(image, weight, bias, stride=2, padding=1, groups=2), expected)
        last = conv(image.movedim(1, -1), weight.movedim(1, -1), bias, 2, 1, 1, 2, channel_pos="channels_last")
        same(last.movedim(-1, 1), expected)
        back = getattr(F, f"conv_transpose{dims}d")(image, weight[:4], None, 2, 1, 1)
        same(deconv(image, weight[:4], None, 2, padding=1, output_padding=1, strides=2), back)
    with pytest.raises(ArgumentError, match='channels stand "channels_first" or "channels_last", got \'NHWC\''):
        _C.conv1d(torch.randn(1, 2, 5), torch.randn(1, 2, 3), channel_pos="NHWC")


def _ctc():
    logits = np.log(np.array([[0.1, 0.7, 0.2], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6], [0.8, 0.1, 0.1]], np.float32))[:, None]
    steps = flow.tensor([4])
    same(_C.ctc_greedy_decoder(flow.tensor(logits), steps), ([[1, 2, 0, 0]], [[-logits.max(2).sum()]]))
    same(_C.ctc_greedy_decoder(flow.tensor(logits), steps, False)[0], [[1, 1, 2, 0]])


def _dropouts():
    ones = flow.ones(4, 50, 6)
    same(_C.dropout(ones, 0.5, False, addend=ones), np.full((4, 50, 6), 2))
    first, again = (_C.dropout(ones, 0.5, generator=flow.Generator().manual_seed(3)) for _ in range(2))
    same(first, again)
    assert set(first.unique().tolist()) == {0.0, 2.0} and 0.4 < float((first == 0).float().mean()) < 0.6
    same(_C.dropout(ones.clone(), 0.5, inplace=True, generator=flow.Generator().manual_seed(3)), first)
    for name, shape in (("dropout1d", (4, 50, 6)), ("dropout2d", (4, 50, 2, 3)), ("dropout3d", (4, 50, 1, 2, 3))):
        found = getattr(_C, name)(flow.ones(shape), 0.5, True).flatten(2)
        assert set(found.sum(2).unique().tolist()) == {0.0, 12.0}  # whole channels


def _fused_errors():
    with pytest.raises(ArgumentError, match="fused_glu's activation is one of .* got 'tanh'"):
        _C.fused_glu(sq, sq, activation="tanh")
    with pytest.raises(ArgumentError, match='interaction_mode is "vector" or "matrix", got \'both\''):
        _C.fused_cross_feature_interaction(sq, sq, sq, v[:2], "both")


def _recurrent():
    torch.manual_seed(0)
    inputs, hidden = torch.randn(3, 2, 4), torch.zeros(1, 2, 5)
    for name, module in (
        ("rnn_tanh", torch.nn.RNN(4, 5)),
        ("rnn_relu", torch.nn.RNN(4, 5, nonlinearity="relu")),
        ("gru", torch.nn.GRU(4, 5)),
    ):
        flat = list(module.parameters())
        same(getattr(_C, name)(inputs, hidden, flat, True, 1, 0.0, False, False, False)[0], module(inputs)[0])
        same(getattr(_C, f"{name}_cell")(inputs[0], hidden[0], *flat), module(inputs[:1])[0][0])
    module = torch.nn.LSTM(4, 5)
    flat = list(module.parameters())
    same(_C.lstm(inputs, (hidden, hidden), flat, True, 1, 0.0, False, False, False)[0], module(inputs)[0])
    same(_C.lstm_cell(inputs[0], (hidden[0], hidden[0]), *flat)[0], module(inputs[:1])[0][0])


def _pinned():
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            _C.pin_memory(x)


GROUPS = {
    _precisions: ["amp_white_identity", "amp_black_identity"],
    _assigned: ["assign_local_tensor", "tensor_setitem"],
    _batch_stats: [
        *("batch_norm_stats", "batch_norm_elemt", "batch_norm_gather_stats_with_counts", "batch_norm_backward_reduce"),
        "batch_norm_backward_elemt",
    ],
    _convolutions: ["conv1d", "conv2d", "conv3d", "deconv1d", "deconv2d", "deconv3d"],
    _ctc: ["ctc_greedy_decoder"],
    _dropouts: ["dropout", "dropout1d", "dropout2d", "dropout3d"],
    _recurrent: ["rnn_tanh", "rnn_relu", "gru", "lstm", "rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell"],
    _pinned: ["pin_memory"],
}
CALLS |= {f"oneflow._C.{name}": call for call, names in GROUPS.items() for name in names}
CALLS["oneflow._C.uniform_"] = shaped(lambda: _C.uniform_(flow.empty(9), 1, 2), (9,), 1, 2)
CALLS["oneflow._C.refusals"] = _fused_errors
