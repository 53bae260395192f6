"""Whole programs for tests of splits: modules whose results are a loss and what else is to be compared, with inputs
that 2, 3 or 4 ranks can share, evenly or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Make = Callable[[], nn.Module]
Inputs = Callable[[torch.Generator], tuple[Tensor, ...]]
PROGRAMS: dict[str, tuple[Make, Inputs]] = {}


class Function(nn.Module):
    """A function of its parameters, of these shapes, and of inputs."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape) * 0.5) for shape in shapes])

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*self.weights, *inputs)


def program(name: str, inputs: Inputs, *shapes: tuple[int, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function of parameters and inputs, which gives a loss and others, to the table."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[name] = lambda: Function(function, *shapes), inputs
        return function

    return add


def normal(*shapes: tuple[int, ...]) -> Inputs:
    return lambda draw: tuple(torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)


def classified(*shape: int, classes: int) -> Inputs:
    """Values, and a class for each of their rows."""
    return lambda draw: (
        torch.randn(shape, generator=draw, dtype=torch.float64),
        torch.randint(classes, (shape[0],), generator=draw),
    )


def tokens(rows: int, length: int, count: int) -> Inputs:
    return lambda draw: (torch.randint(count, (rows, length), generator=draw),)


# ------------------------------------------------------------------ networks


@program("MLP", classified(8, 6, classes=5), (6, 12), (12,), (12, 5))
def mlp(a: Tensor, bias: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Any:
    hidden = F.gelu(torch.addmm(bias, x, a))
    scores = hidden @ b
    return F.cross_entropy(scores, y), scores, hidden.argmax(1)


@program("convolutions", classified(7, 4, 8, 8, classes=4), (8, 4, 3, 3), (8,), (8, 1, 3, 3), (6, 8, 1, 1), (6 * 4, 4))
def convolutions(a: Tensor, bias: Tensor, b: Tensor, c: Tensor, d: Tensor, x: Tensor, y: Tensor) -> Any:
    h = F.relu(F.conv2d(x, a, bias, padding=1))
    h = F.max_pool2d(F.conv2d(h, b, padding=1, groups=8), 2)
    h = F.avg_pool2d(F.silu(F.conv2d(h, c)), 2)
    scores = h.flatten(1) @ d
    return F.cross_entropy(scores, y, label_smoothing=0.1), scores


@program("transposed and grouped convolutions", normal((6, 8, 5, 5)), (8, 2, 2, 2), (8, 4, 3, 3), (8,))
def transposed(a: Tensor, b: Tensor, bias: Tensor, x: Tensor) -> Any:
    h = F.conv_transpose2d(x, a, stride=2, groups=4)
    h = F.leaky_relu(F.conv2d(h, b, bias, groups=2, stride=2, dilation=2))
    h = F.adaptive_avg_pool2d(F.interpolate(h, scale_factor=2, mode="bilinear"), 3)
    return h.square().mean(), h


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.batch = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.group, self.instance = nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)
        self.rows, self.layer, self.head = nn.BatchNorm1d(32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        h = F.relu(self.batch(self.conv(x)))
        h = h + self.group(h)
        h = F.max_pool2d(self.instance(h), 2, stride=1, padding=1)
        h = F.adaptive_max_pool2d(h, 2).flatten(1)
        scores = self.head(self.layer(self.rows(h)))
        return F.cross_entropy(scores, y), scores


PROGRAMS["batch, group, instance and layer norm"] = Norms, classified(8, 4, 6, 6, classes=4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, 8), nn.Parameter(torch.randn(6, 8))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, ids: Tensor) -> Any:
        b, t = ids.shape
        x = self.tokens(ids) + self.places
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-1, -2)) / 2**0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, 8))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        scores = x @ self.tokens.weight.t()
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), scores


PROGRAMS["transformer block"] = Block, tokens(6, 6, 12)


@program("attention of torch", normal((4, 4, 6, 4)), (4, 4), (4, 4))
def attention(a: Tensor, b: Tensor, x: Tensor) -> Any:
    made = F.scaled_dot_product_attention(x @ a, x @ b, x, is_causal=True)
    return made.square().sum(), made


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.body = kind(5, 4, batch_first=True, **options)

    def forward(self, x: Tensor) -> Any:
        made = self.body(x)[0]
        return made.square().mean(), made


PROGRAMS["LSTM"] = lambda: Recurrent(nn.LSTM, bidirectional=True), normal((6, 4, 5))
PROGRAMS["GRU"] = lambda: Recurrent(nn.GRU, num_layers=2), normal((6, 4, 5))


# ------------------------------------------------------------------ indices, orders, shapes


@program("gathers and scatters", tokens(6, 8, 10), (10, 8), (8, 5))
def gathers(table: Tensor, w: Tensor, ids: Tensor) -> Any:
    rows = F.embedding(ids, table, padding_idx=3)
    mixed = torch.gather(rows, 2, ids.unsqueeze(2).expand(-1, -1, 4) % 8)
    added = torch.zeros(6, 10, 4, dtype=torch.float64).scatter_add(1, ids.unsqueeze(2).expand(-1, -1, 4), mixed)
    chosen = table[ids[:, 0]] + table.index_select(0, ids[:, 1]) + table.index_add(0, ids[0], rows[0])[:6]
    loss = (added.square().sum() + (chosen @ w).tanh().sum()) / 10
    return loss, added, chosen, F.one_hot(ids, 10)


@program("sorts", normal((8, 8)), (8, 8))
def sorts(w: Tensor, x: Tensor) -> Any:
    h = x @ w
    ordered, order = torch.sort(h, 1, descending=True)
    top, places = h.topk(3, 0)
    running, product = h.cumsum(0), (h * 0.1).cumprod(1)
    largest, where = h.max(1)
    median = h.median(0).values
    loss = (ordered * x).mean() + top.sum() + running.mean() + product.sum() + largest.sum() + median.sum()
    return (
        loss + h.logcumsumexp(1).mean() + h.kthvalue(2, 1).values.sum(),
        order,
        places,
        where,
        h.argmin(0),
        h.argsort(0),
    )


@program("reductions", normal((6, 8, 4)), (6, 8, 4))
def reductions(w: Tensor, x: Tensor) -> Any:
    h = x * w
    parts = [
        h.sum((0, 2)).square().sum(),
        h.mean(1).prod(),
        h.var(0, correction=1).sum(),
        h.std(2).sum(),
        h.logsumexp(1).sum(),
        h.amax((0, 1)).sum(),
        h.amin(2).prod(),
        h.norm(dim=1).sum(),
        torch.linalg.vector_norm(h, 3),
        h.abs().max(),
        h.softmax(0).max(),
        h.log_softmax(2)[1].sum(),
        h.prod(1).sum(),
        F.normalize(h, dim=0).sum(),
        h.nansum(1).sum(),
        torch.cdist(h, x).sum(),
    ]
    counts = (h > 0).sum(0), (h > 0).any(1), (h > 0).all(2), h.argmax(), torch.count_nonzero(h, 1)
    return torch.stack(parts).sum(), torch.stack(parts), *counts


@program("shapes", normal((6, 8, 4)), (8, 4), (4, 6))
def shapes(a: Tensor, b: Tensor, x: Tensor) -> Any:
    h = torch.cat([x, a.expand(6, 8, 4)[:, :4] * 2], 1).transpose(0, 2)
    h = torch.stack([h, h.flip(1)], 1).reshape(8, 12, 6)[:, 1::2]
    h = F.pad(h.roll((1, 2), (0, 1)), (1, 0, 0, 2), value=0.5).unfold(2, 3, 2).flatten(2)
    left, right = h.chunk(2, 2) if h.shape[2] % 2 == 0 else (h, h)
    h = torch.where(left > 0, left, right * 0.3) + torch.tril(left[..., :8]).sum()
    h = h.unsqueeze(1).repeat(1, 2, 1, 1).squeeze().movedim(1, -1).contiguous()
    made = torch.einsum("bij,jk->bik", x.permute(0, 2, 1) @ a, b) + x.diagonal(dim1=1, dim2=2).sum()
    return (
        h.square().mean() + made.tanh().sum(),
        h,
        made,
        torch.repeat_interleave(made, 2, 0),
        torch.outer(made[0, 0], a[0]),
    )


@program("masks and windows", normal((6, 6)), (6, 6))
def masks(w: Tensor, x: Tensor) -> Any:
    h = x @ w
    mask = h > 0.1
    kept = h.masked_fill(mask, 0.5).clamp(-1, 1) + torch.triu(h, 1) + h.masked_fill(~mask, 0).tril(-1)
    kept = kept + torch.eye(6, dtype=torch.float64) * h + torch.arange(6, dtype=torch.float64)
    kept = kept.index_put((torch.tensor([0, 5]), torch.tensor([1, 3])), h[0, :2], accumulate=True)
    kept = torch.maximum(kept, h.t()) - torch.minimum(kept.sign(), h) + torch.lerp(h, kept, 0.3) + h.fmod(0.7)
    return kept.square().mean() + torch.bmm(h.view(2, 3, 6), h.view(2, 6, 3)).sum(), kept


# ------------------------------------------------------------------ losses


@program("losses of classes", classified(9, 6, classes=4), (6, 4), (4,))
def class_losses(w: Tensor, weights: Tensor, x: Tensor, y: Tensor) -> Any:
    scores = x @ w
    chances = scores.log_softmax(1)
    ignored = torch.where(y == 3, -100, y)
    parts = [
        F.cross_entropy(scores, y),
        F.cross_entropy(scores, ignored, weight=weights.detach().abs() + 0.1),
        F.nll_loss(chances, ignored, reduction="sum"),
        F.cross_entropy(scores, scores.softmax(1).detach() * 0.5, label_smoothing=0.2),
        F.cross_entropy(scores, y, reduction="none").square().sum(),
        F.multi_margin_loss(scores, y),
        F.multilabel_soft_margin_loss(scores, F.one_hot(y, 4).double()),
        F.kl_div(chances, scores.detach().softmax(1), reduction="batchmean"),
        F.nll_loss(chances, y, weight=weights.detach().abs() + 0.1),
    ]
    return torch.stack(parts).sum() + weights.sum(), torch.stack(parts)


@program("losses of values", normal((9, 6), (9, 4)), (6, 4))
def value_losses(w: Tensor, x: Tensor, y: Tensor) -> Any:
    h = x @ w
    sign = y.sign()
    parts = [
        F.mse_loss(h, y),
        F.l1_loss(h, y, reduction="sum"),
        F.smooth_l1_loss(h, y, beta=0.5),
        F.huber_loss(h, y, reduction="none").max(),
        F.binary_cross_entropy_with_logits(h, y.sigmoid(), pos_weight=y[0].abs()),
        F.binary_cross_entropy(h.sigmoid(), y.sigmoid()),
        F.hinge_embedding_loss(h, sign),
        F.soft_margin_loss(h, sign),
        F.poisson_nll_loss(h, y.abs()),
        F.cosine_embedding_loss(h, y, sign[:, 0]),
        F.margin_ranking_loss(h[:, 0], y[:, 0], sign[:, 1]),
        F.triplet_margin_loss(h, y, y.flip(0)),
        F.cosine_similarity(h, y, 0).sum(),
        F.pairwise_distance(h, y).mean(),
    ]
    return torch.stack(parts).sum(), torch.stack(parts)


@program("activations", normal((8, 9)), (9, 6), (6,))
def activations(w: Tensor, slope: Tensor, x: Tensor) -> Any:
    h = x @ w
    made = [
        F.prelu(h, slope),
        F.elu(h),
        F.selu(h),
        F.celu(h, 0.5),
        F.softplus(h),
        F.softsign(h),
        F.mish(h),
        F.hardswish(h * 3),
        F.hardsigmoid(h * 3),
        F.glu(h, 0),
        F.glu(h, 1),
        F.logsigmoid(h),
        F.tanhshrink(h),
        F.softshrink(h, 0.2),
        F.hardshrink(h, 0.2),
        F.threshold(h, 0.1, 2.0),
        F.relu6(h * 4),
        F.rrelu(h, 0.2, 0.2),
        F.softmin(h, 1),
        h.erf(),
        h.sinh(),
        h.atan2(h + 2),
        h.pow(3),
        (h.abs() + 0.1).sqrt(),
        (h.abs() + 0.5).rsqrt(),
        torch.logaddexp(h, h * 2),
    ]
    return sum(one.mean() for one in made), torch.cat([one.flatten() for one in made])
