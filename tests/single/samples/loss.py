"""Samples of ``ops.loss``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand
from torch import Tensor

from oneflow import array, nn

LOGITS = rand(6, 5)
LABELS = ints(6, high=5)
WILD = np.array([[300, 0, -300], [0, 200, 0]], np.float32)
SOFT = np.random.default_rng(0).dirichlet(np.ones(5), 6).astype(np.float32)
X, Y = rand(4, 3), rand(4, 3, seed=1)
P, Q = rand(4, 3, low=0.1, high=0.9), rand(4, 3, seed=1, low=0.1, high=0.9)
SIGNS = np.where(rand(4, 3, seed=2) > 0, 1, -1).astype(np.float32)


def picked(labels: Tensor, logits: Tensor) -> Tensor:
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    return -(torch.nn.functional.one_hot(labels.long(), logits.shape[-1]) * p.log()).sum(-1)


def capped(labels: Tensor, logits: Tensor) -> Tensor:
    """The value is cut at -log(1e-20), the gradient is that of the loss that is not cut."""
    logp = torch.log_softmax(logits, -1)
    free = -logp[torch.arange(len(labels)), labels.long()]
    return free.detach().clamp(max=46.051702) + (free - free.detach())


def soft(labels: Tensor, logits: Tensor) -> Tensor:
    """The labels get no gradient."""
    return -(labels.detach() * torch.log_softmax(logits, -1)).sum(-1)


def soft_wild(labels: Tensor, logits: Tensor) -> Tensor:
    logp = torch.log_softmax(logits, -1)
    free = -(labels.detach() * logp).sum(-1)
    return -(labels * logp.clamp(min=-46.051702)).sum(-1).detach() + (free - free.detach())


def sigmoid_ce(z: Tensor, x: Tensor) -> Tensor:
    p = 1 / (1 + (-x).exp())
    return -z * p.log() - (1 - z) * (1 - p).log()


def smooth(x: Tensor, y: Tensor, beta: float) -> Tensor:
    d = (x - y).abs()
    return torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b + 1e-6).square().sum(-1).sqrt()


def one(x: Tensor) -> Tensor:
    return x.reshape(1)


SAMPLES = [
    Sample(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda y, x: nn.sparse_softmax_cross_entropy_with_logits(y, x),
        (LABELS, LOGITS),
        picked,
    ),
    Sample(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda y, x: nn.sparse_softmax_cross_entropy_with_logits(y, x),
        (LABELS.astype(np.int8)[:, None], LOGITS),
        lambda y, x: picked(y[:, 0], x),
    ),
    Sample(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda y, x: nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
        (ints(2, 3, high=4, dtype=np.int64), rand(2, 3, 4)),
        picked,
    ),
    Sample(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda y, x: nn.sparse_softmax_cross_entropy_with_logits(y, x),
        (np.array([2, 1], np.int32), WILD),
        capped,
    ),
    Sample(
        "nn.sparse_cross_entropy",
        lambda y, p: nn.sparse_cross_entropy(y, p),
        (LABELS, SOFT),
        lambda y, p: -p[torch.arange(6), y.long()].log(),
    ),
    Sample(
        "nn.sparse_cross_entropy",
        lambda y, p: nn.sparse_cross_entropy(y, p),
        (np.array([0, 0], np.int32), np.array([[0, 1], [0.5, 0.5]], np.float32)),
        lambda y, p: torch.tensor([46.051702, 0.6931472]),
        gradient=False,
    ),
    Sample(
        "nn.softmax_cross_entropy_with_logits",
        lambda y, x: nn.softmax_cross_entropy_with_logits(y, x),
        (SOFT, LOGITS),
        soft,
    ),
    Sample(
        "nn.softmax_cross_entropy_with_logits",
        lambda y, x: nn.softmax_cross_entropy_with_logits(y, x),
        (np.array([[0.25, 0.25, 0.5], [0.5, 0.5, 0]], np.float32), WILD),
        soft_wild,
    ),
    Sample(
        "nn.sigmoid_cross_entropy_with_logits",
        lambda y, x: nn.sigmoid_cross_entropy_with_logits(y, x),
        (P, X),
        lambda y, x: sigmoid_ce(y.detach(), x),
    ),
    Sample(
        "nn.sigmoid_cross_entropy_with_logits",
        lambda y, x: nn.sigmoid_cross_entropy_with_logits(y, x),
        (ints(4, 3, high=2), X),
        lambda y, x: sigmoid_ce(y.float(), x),
    ),
    Sample("smooth_l1_loss", lambda x, y: nn.smooth_l1_loss(x, y), (X, Y), lambda x, y: smooth(x, y, 1.0)),
    Sample("smooth_l1_loss", lambda x, y: nn.smooth_l1_loss(x, y, beta=0.3), (X, Y), lambda x, y: smooth(x, y, 0.3)),
    Sample("nn.l1_loss", lambda x, y: nn.L1Loss(x, y), (X, Y), lambda x, y: one((x - y).abs().mean())),
    Sample("nn.mse_loss", lambda x, y: nn.MSELoss(x, y, "sum"), (X, Y), lambda x, y: one(((x - y) ** 2).sum())),
    Sample("nn.mse_loss", lambda x, y: nn.MSELoss(x, y, reduction="none"), (X, Y), lambda x, y: (x - y) ** 2),
    Sample(
        "nn.bce_loss",
        lambda x, y, w: nn.BCELoss(x, y, w),
        (P, Q, Q),
        lambda x, y, w: one((-w.detach() * (y * x.log() + (1 - y) * (1 - x).log())).mean()),
    ),
    Sample(
        "nn.bce_with_logits_loss",
        lambda x, y: nn.BCEWithLogitsLoss(x, y),
        (X, P),
        lambda x, y: one(sigmoid_ce(y, x).mean()),
    ),
    Sample(
        "nn.bce_with_logits_loss",
        lambda x, y, w: nn.BCEWithLogitsLoss(x, y, pos_weight=w, reduction="none"),
        (X, P, rand(3, low=0.5, high=2)),
        lambda x, y, w: -w.detach() * y * torch.sigmoid(x).log() - (1 - y) * (1 - torch.sigmoid(x)).log(),
        rtol=1e-4,
    ),
    Sample("nn.kl_div_loss", lambda x, y: nn.KLDivLoss(x, y), (X, P), lambda x, y: one((y * (y.log() - x)).mean())),
    Sample(
        "nn.kl_div_loss",
        lambda x, y: nn.KLDivLoss(x, y, True, "sum"),
        (X, Y),
        lambda x, y: one((y.exp() * (y - x)).sum()),
        rtol=1e-4,
    ),
    Sample(
        "nn.margin_ranking_loss",
        lambda a, b, y: nn.MarginRankingLoss(a, b, y, margin=0.5),
        (X, Y, SIGNS),
        lambda a, b, y: one((-y * (a - b) + 0.5).clamp(min=0).mean()),
    ),
    Sample(
        "nn.triplet_margin_loss",
        lambda a, p, n: nn.TripletMarginLoss(a, p, n, reduction="none"),
        (X, Y, rand(4, 3, seed=5)),
        lambda a, p, n: (distance(a, p) - distance(a, n) + 1).clamp(min=0),
        rtol=1e-4,
    ),
    Sample(
        "combined_margin_loss",
        lambda x, t: array.combined_margin_loss(x, t, 0.9, 0.4, 0.15),
        (rand(4, 6, low=-0.9, high=0.9), ints(4, high=6)),
        lambda x, t: torch.stack(
            [
                torch.where(torch.arange(6) == c, torch.cos(0.9 * torch.acos(row) + 0.4) - 0.15, row)
                for row, c in zip(x, t)
            ]
        ),
    ),
    Sample(
        "nn.margin_ranking_loss",
        lambda x, y, t: nn.MarginRankingLoss(x, y, t, 0.3, "none"),
        (rand(3, 4), rand(4, seed=1), np.float32([[1], [-1], [1]])),
        lambda x, y, t: (0.3 - t * (x - y)).clamp(min=0),
    ),
]
