"""Layers of vectors (batch, features). Several of them compute along the batch, which ranks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from activations import FLAT, KINKED, SMOOTH
from layer import Apply, Combine, Kind, Weighted, apply, apply_one_of, by_name, rows
from torch import Tensor, nn

TIES = {"makes_ties": True}
SHARP = {"is_sharp": True}
WIDE = {"fits": lambda shape: shape[0] >= 4}
EVEN = {"fits": lambda shape: shape[0] % 2 == 0}
SMALL = {"fits": lambda shape: shape[0] <= 12}


class Tied(nn.Module):
    """A linear layer and its transpose, which share one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.down(x)) @ self.down.weight


class ClassMeans(nn.Module):
    """Sums the rows of each class in one table and reads the table again."""

    def forward(self, x: Tensor) -> Tensor:
        classes = x.detach().argmax(1)
        table = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype).index_add(0, classes, x)
        return x + 0.2 * table[classes]


class Scaled(nn.Module):
    """Has a buffer that each training step updates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale = 0.9 * self.scale + 0.1 * x.detach().abs().mean(0)
        return x / (self.scale + 0.1)


LAYERS = by_name(
    rows(
        Kind.VECTOR,
        # products
        ("linear", lambda s, d: nn.Linear(s[0], d.choice((5, 8, 12, 16)), d.random() < 0.7), {"shrinks": True}),
        ("tied", lambda s, d: Tied(s[0])),
        ("bilinear", lambda s, d: Combine(nn.Bilinear(s[0], s[0], 6), lambda m, x: m(x, x.tanh())), SMALL),
        ("residual", lambda s, d: Combine(nn.Linear(s[0], s[0]), lambda m, x: x + F.gelu(m(x)))),
        ("twice", lambda s, d: Combine(nn.Linear(s[0], s[0]), lambda m, x: m(torch.tanh(m(x))))),
        ("gram", apply(lambda x: (x @ x.t()).softmax(1) @ x)),
        ("addmm", lambda s, d: Weighted(lambda x, w: torch.addmm(x, x.tanh(), w, beta=0.5, alpha=0.3), s[0], s[0])),
        ("weighted_sum", lambda s, d: Weighted(lambda x, w: torch.einsum("bi,ijk->bjk", x, w).sum(2), s[0], 6, 2)),
        ("outer", apply(lambda x: x[:, :, None] * x.tanh()[:, None, :4]), {"gives": Kind.SEQUENCE, **SMALL}),
        # normalization
        ("batch_norm", lambda s, d: nn.BatchNorm1d(s[0], momentum=d.choice((0.1, 0.5)), affine=d.random() < 0.8)),
        ("batch_norm_untracked", lambda s, d: nn.BatchNorm1d(s[0], track_running_stats=False)),
        ("layer_norm", lambda s, d: nn.LayerNorm(s[0], elementwise_affine=d.random() < 0.8), WIDE),
        ("rms_norm", lambda s, d: nn.RMSNorm(s[0], eps=1e-3)),
        ("group_norm", lambda s, d: nn.GroupNorm(s[0] // 4, s[0]), {"fits": lambda shape: shape[0] % 4 == 0}),
        ("normalize", apply_one_of(lambda x: F.normalize(x, dim=1), lambda x: 2 * F.normalize(x, p=1, dim=0))),
        ("moving_scale", lambda s, d: Scaled(s[0])),
        # along the batch
        ("minus_mean", apply(lambda x: x - x.mean(0, keepdim=True))),
        ("over_std", apply(lambda x: x / (x.std(0, keepdim=True) + 0.1))),
        ("over_all", apply_one_of(lambda x: x / (x.norm() + 0.1), lambda x: x / (x.std() + 0.1))),
        ("var_mean", apply(lambda x: (x - torch.var_mean(x, 0)[1]) / (torch.var_mean(x, 0)[0] + 0.2))),
        ("batch_softmax", apply_one_of(lambda x: x + x.softmax(0), lambda x: 0.2 * x.log_softmax(0))),
        ("batch_logsumexp", apply_one_of(lambda x: x - x.logsumexp(0), lambda x: x - 0.1 * x.logsumexp((0, 1)))),
        ("batch_amax", apply_one_of(lambda x: x - 0.3 * x.amax(0), lambda x: x - 0.3 * x.amin(0, True)), SHARP),
        ("batch_cumsum", apply_one_of(lambda x: 0.3 * x.cumsum(0), lambda x: x.logcumsumexp(0))),
        ("batch_roll", apply_one_of(lambda x: x - 0.5 * x.roll(1, 0), lambda x: x + 0.3 * x.flip(0))),
        ("batch_sort", apply_one_of(lambda x: x.sort(0)[0], lambda x: x.sort(0, descending=True)[0] + x), SHARP),
        ("batch_topk", apply(lambda x: x + x.topk(1, 0)[0]), SHARP),
        ("batch_gather", apply(lambda x: x.gather(0, x.detach().argsort(0)) + 0.2 * x), SHARP),
        ("batch_select", apply(lambda x: x + 0.3 * x[x.detach().argmax(0)].mean(0)), SHARP),
        ("cosine", apply(lambda x: x * F.cosine_similarity(x, x.roll(1, 0), dim=1)[:, None])),
        ("class_means", lambda s, d: ClassMeans(), SHARP),
        ("batch_halves", apply(lambda x: torch.cat([x[: len(x) // 2] * 0.5, x[len(x) // 2 :].tanh()]))),
        ("batch_slices", apply(lambda x: x + F.pad(x[1:] - 0.5 * x[:-1], (0, 0, 1, 0)))),
        ("batch_stack", apply(lambda x: torch.stack([row * 1.1 for row in x.unbind(0)]))),
        # indexing
        ("embedding", lambda s, d: Combine(nn.Embedding(s[0], s[0]), lambda m, x: x + m(x.argmax(1))), SHARP),
        (
            "embedding_bag",
            lambda s, d: Combine(
                nn.EmbeddingBag(s[0], 6, mode=d.choice(("sum", "mean"))), lambda m, x: m(x.argsort(1))
            ),
            SHARP,
        ),
        ("one_hot", apply(lambda x: x + F.one_hot(x.argmax(1), x.shape[1]) * x), SHARP),
        ("bucketize", lambda s, d: Combine(nn.Embedding(4, 3), _bucketed)),
        ("sort", apply_one_of(lambda x: x.sort(1)[0], lambda x: x + x.argsort(1) * 0.1), SHARP),
        ("topk", apply(lambda x: torch.cat([x, x.topk(3, 1)[0]], 1)), {"is_sharp": True, **WIDE}),
        ("median", apply_one_of(lambda x: x - x.median(1, True)[0], lambda x: x - x.kthvalue(2, 1, True)[0]), SHARP),
        ("gather", apply(lambda x: x.gather(1, x.argsort(1)) * 0.7), SHARP),
        ("scatter_add", apply(lambda x: x.scatter_add(1, x.argsort(1), x.tanh())), SHARP),
        ("scatter_reduce", apply(lambda x: x.scatter_reduce(1, x.argsort(1), x * 0.5, "sum")), SHARP),
        ("index_add", apply(lambda x: x.index_add(1, torch.tensor([1, 0, 1]), x[:, :3] * 0.3)), WIDE),
        ("index_put", apply(lambda x: x.index_put((torch.tensor([0]),), x.new_tensor(0.3), accumulate=True))),
        ("columns", lambda s, d: _columns(d.sample(range(s[0]), s[0]))),
        ("repeated", apply(lambda x: torch.cat([x, x.tanh()], 1)), SMALL),
        ("masked", lambda s, d: _masked([d.random() < 0.7 for _ in range(s[0])])),
        # elementwise and reductions
        ("smooth", apply_one_of(*SMOOTH)),
        ("kinked", apply_one_of(*KINKED)),
        ("flat", apply_one_of(*FLAT), TIES),
        ("prelu", lambda s, d: nn.PReLU(d.choice((1, s[0])))),
        (
            "softmax",
            apply_one_of(lambda x: 3 * x.softmax(1), lambda x: 0.3 * x.log_softmax(1), lambda x: F.softmin(x, 1)),
        ),
        ("glu", apply(lambda x: F.glu(torch.cat([x, x * 0.5], 1), 1))),
        ("cumsum", apply_one_of(lambda x: 0.3 * x.cumsum(1), lambda x: (x.tanh() + 1.5).cumprod(1) * 0.01), SMALL),
        ("reduced", apply_one_of(lambda x: x - x.mean(1, True), lambda x: x / (x.std(1, keepdim=True) + 0.2)), WIDE),
        ("norms", apply_one_of(lambda x: x / (x.norm(dim=1, keepdim=True) + 0.1), lambda x: x / (1 + x.norm(3)))),
        ("detached", apply(lambda x: x * 0.5 + x.detach() * x)),
        ("in_place", apply(lambda x: (x * 1.0).add_(0.1).mul_(0.9))),
        ("ramp", apply(lambda x: x * torch.linspace(0.5, 1.5, x.shape[1], dtype=x.dtype))),
        # other kinds
        ("to_sequence", apply(lambda x: x.reshape(len(x), -1, 2)), {"gives": Kind.SEQUENCE, **EVEN}),
        ("to_sequence_turned", apply(lambda x: x.reshape(len(x), 2, -1).mT), {"gives": Kind.SEQUENCE, **EVEN}),
        (
            "to_image",
            apply(lambda x: x.reshape(len(x), -1, 2, 2)),
            {"gives": Kind.IMAGE, "fits": lambda shape: shape[0] % 4 == 0},
        ),
        ("expand", apply(lambda x: x[:, None, :].expand(-1, 3, -1)), {"gives": Kind.SEQUENCE, "makes_ties": True}),
        (
            "one_channel",
            apply(lambda x: x[:, None, None, :] * x[:, None, :4, None].sin()),
            {"gives": Kind.IMAGE, **SMALL},
        ),
    )
)


def _bucketed(embedding: nn.Module, x: Tensor) -> Tensor:
    places = torch.bucketize(x.detach().mean(1), torch.tensor([-0.3, 0.01, 0.3], dtype=x.dtype))
    return torch.cat([x, embedding(places)], 1)


def _columns(order: list[int]) -> nn.Module:
    return Apply(lambda x: x[:, order] + 0.1 * x.index_select(1, torch.tensor(order)))


def _masked(keeps: list[bool]) -> nn.Module:
    return Apply(lambda x: torch.where(torch.tensor(keeps), x, x.sin() * 0.5))
