"""``oneflow.nn.functional``: every function is called once, under OneFlow's parameter names where they differ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as wanted

from oneflow.nn import functional as F


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(given: Any, expected: Any) -> None:
    torch.testing.assert_close(given, expected)


X1, X2, X3, FLAT = drawn(2, 4, 8), drawn(2, 4, 6, 8), drawn(2, 4, 4, 6, 8), drawn(3, 4)
OTHER = drawn(3, 4, seed=1)
SHARES = OTHER.softmax(1)
LABELS = torch.tensor([1, 0, 3])


def as_torch(name: str, *args: Any, **kwargs: Any) -> None:
    """The call means the same in both."""
    torch.manual_seed(2)
    given = getattr(F, name)(*args, **kwargs)
    torch.manual_seed(2)
    same(given, getattr(wanted, name)(*args, **kwargs))


def by_x(name: str) -> None:
    """The parameter that torch calls input is called x."""
    same(getattr(F, name)(x=FLAT), getattr(wanted, name)(FLAT))
    same(getattr(F, name)(input=FLAT), getattr(wanted, name)(FLAT))


def unpooled(dims: int, x: torch.Tensor) -> None:
    largest, places = getattr(wanted, f"max_pool{dims}d")(x, 2, return_indices=True)
    found = getattr(F, f"max_unpool{dims}d")(largest, places, 2)
    same(found.sum(), largest.sum())


def max_pool(dims: int, x: torch.Tensor) -> None:
    pool, reference = getattr(F, f"max_pool{dims}d"), getattr(wanted, f"max_pool{dims}d")
    same(pool(x=x, kernel_size=2, stride=1), reference(x, 2, 1))
    last = pool(x.movedim(1, -1), 3, 2, 1, 1, False, True, "channels_last")  # return_indices before ceil_mode
    same(last, reference(x, 3, 2, 1, 1, ceil_mode=True).movedim(1, -1))


def affine_grid() -> None:
    same(F.affine_grid(drawn(1, 2, 3), (1, 1, 2, 3)), wanted.affine_grid(drawn(1, 2, 3), [1, 1, 2, 3], False))


def grid_sample() -> None:
    places = drawn(2, 3, 3, 2).tanh()
    same(F.grid_sample(X2, places), wanted.grid_sample(X2, places, align_corners=False))


def upsample() -> None:
    same(F.upsample(X2, scale_factor=2), X2.repeat_interleave(2, 2).repeat_interleave(2, 3))


def losses_by_position() -> None:
    same(F.l1_loss(FLAT, OTHER, "sum"), (FLAT - OTHER).abs().sum())
    same(F.mse_loss(FLAT, OTHER, "none"), (FLAT - OTHER).square())


def binary_cross_entropy() -> None:
    p, weight = FLAT.sigmoid(), OTHER.exp()
    full = -(SHARES * p.log() + (1 - SHARES) * (1 - p).log()) * weight
    same(F.binary_cross_entropy(p, SHARES, weight, "sum"), full.sum())
    same(F.binary_cross_entropy_with_logits(FLAT, SHARES, weight, "mean"), full.mean())


def cross_entropy() -> None:
    full = -FLAT.log_softmax(1)[torch.arange(3), LABELS]
    same(F.cross_entropy(FLAT, LABELS.int()), full.mean())
    same(F.cross_entropy(FLAT, LABELS.int(), None, 3, "none"), full * torch.tensor([1.0, 1.0, 0.0]))


def kl_div() -> None:
    p = FLAT.log_softmax(1)
    same(F.kl_div(p, SHARES), (SHARES * (SHARES.log() - p)).mean())
    same(F.kl_div(p, SHARES.log(), "sum", True), (SHARES * (SHARES.log() - p)).sum())


def sparse_softmax_cross_entropy() -> None:
    same(F.sparse_softmax_cross_entropy(LABELS.int(), FLAT), -FLAT.log_softmax(1)[torch.arange(3), LABELS])


def dropout() -> None:
    same(F.dropout(x=FLAT, p=0.5, training=False, addend=OTHER), FLAT + OTHER)
    kept = F.dropout(FLAT, 0.5, True, torch.Generator().manual_seed(1))
    assert ((kept == 0) | (kept == 2 * FLAT)).all() and 0 < int((kept == 0).sum()) < 12
    same(kept, F.dropout(FLAT, 0.5, generator=torch.Generator().manual_seed(1)))


def gumbel_softmax() -> None:
    torch.manual_seed(3)
    given = F.gumbel_softmax(FLAT, 0, 0.5)
    torch.manual_seed(3)
    same(given, wanted.gumbel_softmax(FLAT, tau=0.5, dim=0))


def normalize() -> None:
    same(F.normalize(FLAT), FLAT / FLAT.norm(dim=0))
    same(F.normalize(FLAT, 1.0, 1, epsilon=100.0), FLAT / 100)


def softmax() -> None:
    same(F.softmax(X1), X1.exp() / X1.exp().sum(2, keepdim=True))
    same(F.softmax(x=X1, dim=1), X1.softmax(1))


def log_softmax() -> None:
    same(F.log_softmax(X1), X1.softmax(2).log())
    same(F.log_softmax(x=X1, dim=1), X1.log_softmax(1))


def leaky_relu() -> None:
    same(F.leaky_relu(x=FLAT, alpha=0.3), torch.where(FLAT > 0, FLAT, 0.3 * FLAT))
    same(F.leaky_relu(FLAT, negative_slope=0.3), F.leaky_relu(FLAT, 0.3))


def quick_gelu() -> None:
    same(F.quick_gelu(x=FLAT), FLAT / (1 + (-1.702 * FLAT).exp()))


def one_hot() -> None:
    assert F.one_hot(LABELS.int(), 4).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]


def ctc_greedy_decoder() -> None:
    best = torch.tensor([[1, 2], [1, 0], [0, 2], [1, 2]])  # (time, batch); 0 is the blank
    scores = wanted.one_hot(best, 3).float().log().clamp(min=-9.0) - 0.5
    decoded, negated = F.ctc_greedy_decoder(scores, torch.tensor([4, 3]))
    assert decoded.tolist() == [[1, 1, 0, 0], [2, 2, 0, 0]] and negated.tolist() == [[2.0], [1.5]]


def deform_conv2d() -> None:
    weight = drawn(3, 4, 2, 3, seed=1)
    found = F.deform_conv2d(X2, torch.zeros(2, 12, 6, 3), weight, stride=(1, 2), padding=(1, 0), dilation=(2, 1))
    same(found, wanted.conv2d(X2, weight, stride=(1, 2), padding=(1, 0), dilation=(2, 1)))


BY_X = ("celu", "elu", "hardsigmoid", "hardswish", "mish", "selu", "silu", "softsign", "tanh")

CALLS: dict[str, Callable[[], None]] = {
    f"oneflow.nn.functional.{name}": call
    for name, call in {
        **{
            name: partial(as_torch, name, *args)
            for name, *args in [
                ("adaptive_avg_pool1d", X1, 3), ("adaptive_avg_pool2d", X2, 3), ("adaptive_avg_pool3d", X3, 3),
                ("adaptive_max_pool1d", X1, 3, True), ("adaptive_max_pool2d", X2, 3), ("adaptive_max_pool3d", X3, 3),
                ("avg_pool1d", X1, 2), ("avg_pool2d", X2, 2, 1, 1), ("avg_pool3d", X3, 2),
                ("batch_norm", X2, torch.zeros(4), torch.ones(4)), ("layer_norm", X2, (8,)),
                ("conv1d", X1, drawn(3, 4, 2)), ("conv2d", X2, drawn(3, 4, 2, 2)), ("conv3d", X3, drawn(3, 4, 2, 2, 2)),
                ("conv_transpose1d", X1, drawn(4, 3, 2)), ("conv_transpose2d", X2, drawn(4, 3, 2, 2)), ("conv_transpose3d", X3, drawn(4, 3, 2, 2, 2)),
                ("cosine_similarity", FLAT, OTHER), ("pairwise_distance", FLAT, OTHER), ("embedding", LABELS % 3, FLAT),
                ("fold", drawn(1, 12, 12), (4, 5), 2), ("unfold", X2, 2), ("gelu", FLAT), ("glu", FLAT), ("hardshrink", FLAT), ("linear", FLAT, OTHER),
                ("logsigmoid", FLAT), ("pad", X2, (1, 2, 0, 1), "reflect"), ("prelu", FLAT, torch.tensor([0.2])), ("relu", FLAT), ("relu6", FLAT),
                ("sigmoid", FLAT), ("smooth_l1_loss", FLAT, OTHER), ("softplus", FLAT), ("softshrink", FLAT), ("hardtanh", FLAT, -0.5, 0.5),
                ("threshold", FLAT, 0.1, 20.0), ("triplet_margin_loss", FLAT, OTHER, FLAT + 1), ("interpolate", X2, None, 2.0, "bilinear"),
                ("dropout1d", X1, 0.3), ("dropout2d", X2, 0.3), ("dropout3d", X3, 0.3),
            ]
        },
        **{name: partial(by_x, name) for name in BY_X},
        **{f"max_unpool{dims}d": partial(unpooled, dims, x) for dims, x in ((1, X1), (2, X2), (3, X3))},
        **{f"max_pool{dims}d": partial(max_pool, dims, x) for dims, x in ((1, X1), (2, X2), (3, X3))},
        "affine_grid": affine_grid,
        "grid_sample": grid_sample,
        "upsample": upsample,
        "l1_loss": losses_by_position,
        "mse_loss": losses_by_position,
        "binary_cross_entropy": binary_cross_entropy,
        "binary_cross_entropy_with_logits": binary_cross_entropy,
        "cross_entropy": cross_entropy,
        "kl_div": kl_div,
        "sparse_softmax_cross_entropy": sparse_softmax_cross_entropy,
        "dropout": dropout,
        "gumbel_softmax": gumbel_softmax,
        "normalize": normalize,
        "softmax": softmax,
        "log_softmax": log_softmax,
        "leaky_relu": leaky_relu,
        "quick_gelu": quick_gelu,
        "one_hot": one_hot,
        "ctc_greedy_decoder": ctc_greedy_decoder,
        "deform_conv2d": deform_conv2d,
    }.items()
}  # fmt: skip
