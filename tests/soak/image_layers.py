"""Layers of images (batch, channels, height, width) and of volumes (batch, channels, depth, height, width)."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F
from activations import FLAT, KINKED, SMOOTH
from layer import WIDTHS, Combine, Kind, Layer, Shape, Weighted, apply, apply_one_of, by_name, one_group_of, rows
from torch import Tensor, nn


def at_least(extent: int, channels: int = 1) -> dict[str, object]:
    """Returns the condition that images have so many rows and columns, and channels in multiples of a number."""
    return {"fits": lambda shape: min(shape[1:]) >= extent and shape[0] % channels == 0}


TIES = {"makes_ties": True}
SHARP = {"is_sharp": True}
LARGE = at_least(4)
SMALL = {"fits": lambda shape: max(shape[1:]) <= 6}
TO_VECTOR = {"gives": Kind.VECTOR, "shrinks": True}
TO_SEQUENCE = {"gives": Kind.SEQUENCE}


def conv2d(shape: Shape, draw: Random) -> nn.Module:
    groups, kernel = one_group_of(shape[0], draw), draw.choice((1, 2, 3, (3, 1)))
    options = {"stride": draw.choice((1, 1, 2)), "padding": draw.choice((0, 1)), "bias": draw.random() < 0.7}
    return nn.Conv2d(shape[0], groups * draw.choice((2, 3, 4)), kernel, groups=groups, **options)


def conv2d_padded(shape: Shape, draw: Random) -> nn.Module:
    mode = draw.choice(("zeros", "circular", "reflect", "replicate"))
    return nn.Conv2d(shape[0], draw.choice(WIDTHS), 3, padding="same", padding_mode=mode)


def conv2d_transposed(shape: Shape, draw: Random) -> nn.Module:
    groups = one_group_of(shape[0], draw)
    options = {"stride": 2, "padding": draw.choice((0, 1)), "bias": draw.random() < 0.7}
    return nn.ConvTranspose2d(shape[0], 2 * groups, draw.choice((2, 3)), groups=groups, **options)


def max_pool2d(shape: Shape, draw: Random) -> nn.Module:
    return draw.choice(
        (
            nn.MaxPool2d(2),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.MaxPool2d(3, 2, padding=1),
            nn.MaxPool2d(2, 1, dilation=2),
            nn.MaxPool2d((3, 1), (1, 2)),
        )
    )


def avg_pool2d(shape: Shape, draw: Random) -> nn.Module:
    return draw.choice(
        (
            nn.AvgPool2d(2),
            nn.AvgPool2d(2, ceil_mode=True),
            nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
            nn.AvgPool2d(3, 1, padding=1, divisor_override=5),
        )
    )


class Unpool(nn.Module):
    """Max pooling and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        found, places = self.pool(x)
        return self.unpool(found.tanh(), places, output_size=x.shape[2:])


class Inverted(nn.Module):
    """An inverted residual block: a pointwise, a depthwise and a pointwise convolution with batch norms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.SiLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, groups=2 * channels, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.SiLU(),
            nn.Conv2d(2 * channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Bottleneck(nn.Module):
    """A residual block with batch norm and relu."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + x)


def excited(module: nn.Module, x: Tensor) -> Tensor:
    """Squeeze and excitation."""
    return x * module(x.mean((2, 3))).sigmoid()[:, :, None, None]


def warped(module: nn.Module, x: Tensor) -> Tensor:
    """Samples images at places that a module computes from them."""
    turn = module(x.mean((2, 3))).view(-1, 2, 3) * 0.1 + torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1]], dtype=x.dtype)
    return F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), align_corners=False)


IMAGES = rows(
    Kind.IMAGE,
    # convolutions
    ("conv2d", conv2d, at_least(3)),
    ("conv2d_padded", conv2d_padded, at_least(3)),
    ("conv2d_pointwise", lambda s, d: nn.Conv2d(s[0], d.choice(WIDTHS), 1), {"shrinks": True}),
    ("conv2d_depthwise", lambda s, d: nn.Conv2d(s[0], s[0] * d.choice((1, 2)), 3, padding=1, groups=s[0])),
    ("conv2d_dilated", lambda s, d: nn.Conv2d(s[0], 4, 3, padding=2, dilation=2, stride=d.choice((1, 2))), at_least(3)),
    ("conv2d_transposed", conv2d_transposed, SMALL),
    ("conv2d_transposed_dilated", lambda s, d: nn.ConvTranspose2d(s[0], 4, 2, dilation=2, output_padding=0), SMALL),
    ("conv2d_residual", lambda s, d: Combine(nn.Conv2d(s[0], s[0], 3, padding=1), lambda m, x: x + F.silu(m(x)))),
    ("conv2d_twice", lambda s, d: Combine(nn.Conv2d(s[0], s[0], 3, padding=1), lambda m, x: m(m(x).tanh()))),
    ("conv2d_drawn", lambda s, d: Weighted(lambda x, w: F.conv2d(x, w.tanh(), padding=1), 4, s[0], 3, 3)),
    ("inverted", lambda s, d: Inverted(s[0])),
    ("bottleneck", lambda s, d: Bottleneck(s[0]), TIES),
    ("excited", lambda s, d: Combine(nn.Linear(s[0], s[0]), excited)),
    ("warped", lambda s, d: Combine(nn.Linear(s[0], 6), warped), TIES),
    # normalization
    ("batch_norm", lambda s, d: nn.BatchNorm2d(s[0], affine=d.random() < 0.8, momentum=d.choice((0.1, 0.4)))),
    ("batch_norm_relu", lambda s, d: nn.Sequential(nn.BatchNorm2d(s[0]), nn.ReLU()), TIES),
    ("group_norm", lambda s, d: nn.GroupNorm(one_group_of(s[0], d), s[0], affine=d.random() < 0.8)),
    ("instance_norm", lambda s, d: nn.InstanceNorm2d(s[0], affine=True, track_running_stats=d.random() < 0.4), LARGE),
    ("layer_norm", lambda s, d: nn.LayerNorm(d.choice((s, s[1:], s[2:]))), LARGE),
    ("rms_norm", lambda s, d: nn.RMSNorm(s[1:], eps=1e-3)),
    (
        "channel_norm",
        lambda s, d: Combine(nn.LayerNorm(s[0]), lambda m, x: m(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)),
        at_least(1, 2),
    ),
    ("response_norm", lambda s, d: nn.LocalResponseNorm(2)),
    ("softmax", apply_one_of(lambda x: 3 * x.softmax(1), lambda x: x.flatten(2).log_softmax(2).view(x.shape))),
    (
        "normalize",
        apply_one_of(lambda x: F.normalize(x, dim=1), lambda x: x / (x.std((2, 3), keepdim=True) + 0.1)),
        LARGE,
    ),
    # pools and sizes
    ("max_pool2d", max_pool2d, {**SHARP, **LARGE}),
    ("avg_pool2d", avg_pool2d, LARGE),
    ("lp_pool2d", lambda s, d: nn.LPPool2d(2, 2), LARGE),
    ("adaptive_avg_pool2d", lambda s, d: nn.AdaptiveAvgPool2d(d.choice((2, 3, (2, None)))), at_least(2)),
    ("adaptive_max_pool2d", lambda s, d: nn.AdaptiveMaxPool2d(d.choice((2, (3, 2)))), {**SHARP, **at_least(3)}),
    ("unpool", lambda s, d: Unpool(), {"is_sharp": True, "makes_ties": True, **LARGE}),
    (
        "nearest",
        apply_one_of(lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=(5, 3))),
        {**TIES, **SMALL},
    ),
    (
        "bilinear",
        apply_one_of(
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
            lambda x: F.interpolate(x, size=(5, 4), mode="bilinear", align_corners=True),
            lambda x: F.interpolate(x, size=(4, 5), mode="bicubic"),
        ),
        {**TIES, **SMALL},
    ),
    ("area", apply(lambda x: F.interpolate(x, size=3, mode="area")), LARGE),
    ("pixel_shuffle", lambda s, d: nn.PixelShuffle(2), {"fits": lambda s: s[0] % 4 == 0 and max(s[1:]) <= 6}),
    ("pixel_unshuffle", lambda s, d: nn.PixelUnshuffle(2), {"fits": lambda s: s[1] % 2 == s[2] % 2 == 0 and s[0] <= 6}),
    ("unfold", apply(lambda x: F.fold(F.unfold(x, 2) * 0.5, x.shape[2:], 2)), at_least(2)),
    ("constant_pad", apply_one_of(lambda x: F.pad(x, (1, 0, 0, 1)), lambda x: F.pad(x, (1, 1), value=0.3)), TIES),
    (
        "reflect_pad",
        apply_one_of(
            lambda x: F.pad(x, (1, 1, 0, 1), mode="reflect"), lambda x: F.pad(x, (0, 1, 1, 1), mode="replicate")
        ),
        {**TIES, **at_least(2)},
    ),
    (
        "crop",
        apply_one_of(lambda x: x[:, :, 1:-1, 1:], lambda x: F.pad(x, (-1, 0, 0, -1)), lambda x: x[..., ::2]),
        LARGE,
    ),
    # moves
    ("channel_shuffle", lambda s, d: nn.ChannelShuffle(2), at_least(1, 2)),
    ("cat", apply(lambda x: torch.cat([x, x.sigmoid()], 1)), {"fits": lambda s: s[0] <= 4}),
    ("flip", apply_one_of(lambda x: x.flip(2), lambda x: x.flip((2, 3)) + 0.3 * x, lambda x: x.rot90(1, (2, 3)))),
    ("roll", apply(lambda x: x.roll((1, -1), (2, 3)) - 0.4 * x)),
    ("turned", apply_one_of(lambda x: x.mT, lambda x: x.transpose(1, 2), lambda x: x.movedim(3, 1))),
    ("channels_last", apply(lambda x: x.contiguous(memory_format=torch.channels_last))),
    (
        "index",
        apply_one_of(lambda x: x[:, [1, 0]], lambda x: x.index_select(2, torch.tensor([1, 0, 0]))),
        {**TIES, **at_least(2, 2)},
    ),
    ("halves", apply(lambda x: torch.cat([x.chunk(2, 1)[1].tanh(), x.chunk(2, 1)[0]], 1)), at_least(1, 2)),
    ("glu", apply(lambda x: F.glu(x, 1)), at_least(1, 2)),
    ("mixed", lambda s, d: Weighted(lambda x, w: torch.einsum("bchw,cd->bdhw", x, w), s[0], 4)),
    ("columns", lambda s, d: Combine(nn.Linear(s[2], 4), lambda m, x: m(x))),
    # elementwise
    ("smooth", apply_one_of(*SMOOTH)),
    ("kinked", apply_one_of(*KINKED)),
    ("flat", apply_one_of(*FLAT), TIES),
    ("prelu", lambda s, d: nn.PReLU(s[0])),
    ("cumsum", apply_one_of(lambda x: 0.3 * x.cumsum(2), lambda x: 0.2 * x.cumsum(1))),
    ("batch_mean", apply_one_of(lambda x: x - x.mean((0, 2, 3), keepdim=True), lambda x: x - x.mean(0))),
    # other kinds
    ("flatten", apply(lambda x: x.flatten(1)), {"gives": Kind.VECTOR}),
    ("mean", apply_one_of(lambda x: x.mean((2, 3)), lambda x: x.sum((1, 3)) * 0.1), TO_VECTOR),
    ("logsumexp", apply_one_of(lambda x: x.logsumexp((2, 3)), lambda x: x.norm(dim=(2, 3))), TO_VECTOR),
    ("amax", apply_one_of(lambda x: x.amax((2, 3)), lambda x: x.flatten(2).max(2)[0]), {**TO_VECTOR, **SHARP}),
    ("to_sequence", apply_one_of(lambda x: x.flatten(2).mT, lambda x: x.flatten(2)), TO_SEQUENCE),
    ("rows", apply_one_of(lambda x: x.mean(2), lambda x: x[:, :, 0], lambda x: x.amin(3)), {**TO_SEQUENCE, **SHARP}),
    ("to_volume", apply(lambda x: x.unflatten(1, (2, -1))), {"gives": Kind.VOLUME, **at_least(2, 2)}),
)

VOLUMES = rows(
    Kind.VOLUME,
    ("conv3d", lambda s, d: nn.Conv3d(s[0], 4, d.choice((1, 2, (1, 2, 2))), stride=d.choice((1, 2)), padding=1)),
    (
        "conv3d_grouped",
        lambda s, d: nn.Conv3d(s[0], 2 * s[0], 3, padding=1, groups=s[0]),
        {"fits": lambda s: s[0] <= 4},
    ),
    (
        "conv3d_transposed",
        lambda s, d: nn.ConvTranspose3d(s[0], 2, 2, stride=(1, 2, 1)),
        {"fits": lambda s: max(s) <= 6},
    ),
    ("batch_norm", lambda s, d: nn.BatchNorm3d(s[0])),
    ("instance_norm", lambda s, d: nn.InstanceNorm3d(s[0], affine=True), at_least(2)),
    ("group_norm", lambda s, d: nn.GroupNorm(one_group_of(s[0], d), s[0])),
    ("max_pool3d", lambda s, d: nn.MaxPool3d((1, 2, 2), ceil_mode=True), SHARP),
    ("avg_pool3d", lambda s, d: nn.AvgPool3d(2, ceil_mode=True), at_least(2)),
    ("adaptive_avg_pool3d", lambda s, d: nn.AdaptiveAvgPool3d((1, 2, 2)), {"shrinks": True}),
    ("adaptive_max_pool3d", lambda s, d: nn.AdaptiveMaxPool3d((1, 2, 2)), SHARP),
    ("trilinear", apply(lambda x: F.interpolate(x, size=(2, 3, 3), mode="trilinear"))),
    ("smooth", apply_one_of(*SMOOTH)),
    ("turned", apply_one_of(lambda x: x.transpose(2, 3), lambda x: x.permute(0, 1, 4, 2, 3))),
    (
        "to_image",
        apply_one_of(lambda x: x.flatten(1, 2), lambda x: x.mean(2), lambda x: x[:, :, -1]),
        {"gives": Kind.IMAGE},
    ),
    ("flatten", apply(lambda x: x.flatten(1)), {"gives": Kind.VECTOR}),
    ("mean", apply(lambda x: x.mean((2, 3, 4))), TO_VECTOR),
)

LAYERS: dict[str, Layer] = by_name([*IMAGES, *VOLUMES])
