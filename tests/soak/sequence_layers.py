"""Layers of sequences (batch, length, features)."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F
from activations import FLAT, KINKED, SMOOTH
from layer import Apply, Combine, Kind, Shape, Weighted, apply, apply_one_of, by_name, one_group_of, rows
from torch import Tensor, nn

TIES = {"makes_ties": True}
SHARP = {"is_sharp": True}
EVEN = {"fits": lambda shape: shape[1] % 2 == 0}
LONG = {"fits": lambda shape: shape[0] >= 4}
WIDE = {"fits": lambda shape: shape[1] >= 4}
TO_VECTOR = {"gives": Kind.VECTOR, "shrinks": True}
TO_IMAGE = {"gives": Kind.IMAGE}


class Attention(nn.Module):
    """Multi-head self-attention by ``scaled_dot_product_attention``, with a causal mask, a bias as the mask or none."""

    def __init__(self, width: int, mask: str) -> None:
        super().__init__()
        self.mask = mask
        self.query_key, self.value = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key = self.query_key(x).chunk(2, -1)
        query, key, value = (part.view(batch, length, 2, -1).transpose(1, 2) for part in (query, key, self.value(x)))
        bias = None
        if self.mask == "bias":
            bias = -torch.arange(length, dtype=x.dtype).sub(torch.arange(length)[:, None]).abs() * 0.3
        if self.mask == "bool":
            bias = torch.ones(length, length, dtype=torch.bool).tril(1)
        found = F.scaled_dot_product_attention(query, key, value, bias, is_causal=self.mask == "causal")
        return found.transpose(1, 2).reshape(batch, length, width)


class Cell(nn.Module):
    """Runs a cell of a recurrent network over a sequence."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, 1)


class Decoder(nn.Module):
    """A decoder layer whose memory is the sequence backwards."""

    def __init__(self, width: int, norm_first: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(width, 2, 8, 0.0, "gelu", batch_first=True, norm_first=norm_first)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x.flip(1))


class Positions(nn.Module):
    """Adds a learned embedding of positions, behind a token that is learned too."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.places, self.token = nn.Embedding(length + 1, width), nn.Parameter(torch.randn(1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return x + self.places(torch.arange(x.shape[1]))


def recurrent(kind: type[nn.RNNBase]) -> object:
    """Returns the ``make`` of a recurrent network that may have two directions and two layers."""

    def make(shape: Shape, draw: Random) -> nn.Module:
        options = {
            "num_layers": draw.choice((1, 1, 2)),
            "bidirectional": draw.random() < 0.3,
            "bias": draw.random() < 0.8,
        }
        return Combine(kind(shape[1], 5, batch_first=True, **options), lambda module, x: module(x)[0])

    return make


def conv1d(shape: Shape, draw: Random) -> nn.Module:
    groups = one_group_of(shape[0], draw)
    padding_mode = draw.choice(("zeros", "zeros", "circular", "replicate"))
    return nn.Conv1d(shape[0], 2 * groups, 3, padding=1, groups=groups, padding_mode=padding_mode)


def attention(shape: Shape, draw: Random) -> nn.Module:
    module = nn.MultiheadAttention(shape[1], 2, batch_first=True, bias=draw.random() < 0.7)
    if draw.random() < 0.5:
        return Combine(module, lambda m, x: m(x, x, x, need_weights=False)[0])
    return Combine(module, lambda m, x: _attended(m, x))


def _attended(module: nn.Module, x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    found, weights = module(x, x.flip(1), x.tanh(), attn_mask=mask)
    return found + weights.mean((1, 2))[:, None, None]


def encoder(shape: Shape, draw: Random) -> nn.Module:
    options = {"norm_first": draw.random() < 0.5, "activation": draw.choice(("relu", "gelu"))}
    return nn.TransformerEncoderLayer(shape[1], 2, 8, 0.0, batch_first=True, **options)


LAYERS = by_name(
    rows(
        Kind.SEQUENCE,
        # products
        ("linear", lambda s, d: nn.Linear(s[1], d.choice((4, 6, 8)), d.random() < 0.7)),
        ("mixed", lambda s, d: Weighted(lambda x, w: torch.einsum("btd,ts->bsd", x, w), s[0], 4)),
        ("bmm", lambda s, d: Weighted(lambda x, w: torch.baddbmm(x, x @ x.mT, w.expand_as(x), beta=0.5), 1, *s)),
        ("einsum_attention", lambda s, d: Combine(nn.Linear(s[1], s[1]), _einsum_attention)),
        ("attention", lambda s, d: Attention(s[1], d.choice(("none", "causal", "bias", "bool"))), EVEN),
        ("multihead_attention", attention, EVEN),
        ("encoder_layer", encoder, {"makes_ties": True, **EVEN}),
        ("decoder_layer", lambda s, d: Decoder(s[1], d.random() < 0.5), EVEN),
        ("positions", lambda s, d: Positions(*s), TIES),
        ("feed_forward", lambda s, d: _feed_forward(s[1])),
        # recurrent networks
        ("lstm", recurrent(nn.LSTM)),
        ("gru", recurrent(nn.GRU)),
        ("rnn", recurrent(nn.RNN)),
        ("lstm_cell", lambda s, d: Cell(nn.LSTMCell(s[1], 5)), {"fits": lambda shape: shape[0] <= 8}),
        ("gru_cell", lambda s, d: Cell(nn.GRUCell(s[1], 5)), {"fits": lambda shape: shape[0] <= 8}),
        ("rnn_cell", lambda s, d: Cell(nn.RNNCell(s[1], 5)), {"fits": lambda shape: shape[0] <= 8}),
        # convolutions and pools along the features
        ("conv1d", conv1d, WIDE),
        ("conv1d_dilated", lambda s, d: nn.Conv1d(s[0], 6, 2, dilation=2, padding=2, stride=d.choice((1, 2))), WIDE),
        ("conv1d_depthwise", lambda s, d: nn.Conv1d(s[0], 2 * s[0], 3, padding="same", groups=s[0]), WIDE),
        ("conv1d_transposed", lambda s, d: nn.ConvTranspose1d(s[0], 4, 3, stride=2, padding=1, output_padding=1)),
        ("conv1d_turned", lambda s, d: Combine(nn.Conv1d(s[1], s[1], 3, padding=1), lambda m, x: m(x.mT).mT)),
        ("max_pool1d", lambda s, d: nn.MaxPool1d(2, d.choice((1, 2)), ceil_mode=d.random() < 0.5), {**SHARP, **WIDE}),
        ("avg_pool1d", lambda s, d: nn.AvgPool1d(3, 2, padding=1, count_include_pad=d.random() < 0.5), WIDE),
        ("adaptive_max_pool1d", lambda s, d: nn.AdaptiveMaxPool1d(3), SHARP),
        ("adaptive_avg_pool1d", lambda s, d: nn.AdaptiveAvgPool1d(d.choice((3, 4)))),
        ("lp_pool1d", lambda s, d: nn.LPPool1d(2, 2), WIDE),
        ("interpolate", apply(lambda x: F.interpolate(x, size=5, mode="linear"))),
        # normalization
        ("layer_norm", lambda s, d: nn.LayerNorm(d.choice((s, s[1:]))), WIDE),
        ("rms_norm", lambda s, d: nn.RMSNorm(s[1], eps=1e-3)),
        ("batch_norm", lambda s, d: nn.BatchNorm1d(s[0]), WIDE),
        (
            "instance_norm",
            lambda s, d: nn.InstanceNorm1d(s[0], affine=True, track_running_stats=d.random() < 0.4),
            WIDE,
        ),
        ("group_norm", lambda s, d: nn.GroupNorm(one_group_of(s[0], d), s[0]), WIDE),
        ("softmax", apply_one_of(lambda x: 3 * x.softmax(-1), lambda x: 3 * x.softmax(1), lambda x: x.log_softmax(1))),
        (
            "normalize",
            apply_one_of(lambda x: F.normalize(x, dim=-1), lambda x: x / (x.norm(dim=(1, 2), keepdim=True) + 0.1)),
        ),
        # indexing and moves
        (
            "sort",
            apply_one_of(lambda x: x.sort(1)[0], lambda x: x.sort(dim=2, stable=True)[0], lambda x: x.msort()),
            SHARP,
        ),
        ("topk", apply_one_of(lambda x: x.topk(3, 1)[0], lambda x: x.topk(3, 1, largest=False)[0]), {**SHARP, **LONG}),
        ("gather", apply(lambda x: x.gather(1, x.argsort(1)) * 0.7), SHARP),
        ("take_along", apply(lambda x: x + x.take_along_dim(x.argmax(1, True), 1)), SHARP),
        ("scatter", apply(lambda x: x.scatter(2, x.argmax(2, True), 0.3)), {**SHARP, **TIES}),
        ("scatter_add", apply(lambda x: x.scatter_add(1, x.argsort(1), x.sin())), SHARP),
        ("index", lambda s, d: _indexed(d.sample(range(s[0]), s[0] // 2)), LONG),
        (
            "slices",
            apply_one_of(lambda x: x[:, ::2], lambda x: x[:, 1:-1], lambda x: x[:, :-1] - x[:, 1:].tanh()),
            LONG,
        ),
        (
            "embedding",
            lambda s, d: Combine(nn.Embedding(s[1], 5), lambda m, x: torch.cat([x, m(x.argmax(2))], 2)),
            SHARP,
        ),
        ("one_hot", apply(lambda x: x + F.one_hot(x.argmax(2), x.shape[2]) * x.amax(2, True)), SHARP),
        ("chunks", apply(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)), LONG),
        ("split", apply(lambda x: torch.cat([part * (i + 1) for i, part in enumerate(x.split(2, 2))], 2) * 0.5)),
        ("flip", apply_one_of(lambda x: x + 0.1 * x.flip(1), lambda x: x - 0.2 * x.flip((1, 2)))),
        ("roll", apply_one_of(lambda x: x.roll(1, 1) - 0.5 * x, lambda x: x.roll((1, -1), (1, 2)))),
        (
            "turned",
            apply_one_of(lambda x: x.mT, lambda x: x.transpose(1, 2).contiguous(), lambda x: x.permute(0, 2, 1)),
        ),
        ("diff", apply(lambda x: x.diff(dim=1)), LONG),
        ("pad", apply_one_of(lambda x: F.pad(x, (0, 0, 1, 1)), lambda x: F.pad(x, (1, 0), mode="circular")), TIES),
        (
            "repeat",
            apply_one_of(lambda x: x.repeat(1, 2, 1), lambda x: x.repeat_interleave(2, 1)),
            {**TIES, "fits": lambda s: s[0] <= 6},
        ),
        ("unfold", apply(lambda x: x.unfold(1, 2, 1).flatten(2)), {"fits": lambda s: 2 < s[0] and s[1] <= 8, **TIES}),
        ("triangle", apply(lambda x: x.tril() + 0.5 * x.triu(1))),
        ("masked", lambda s, d: _masked([d.random() < 0.7 for _ in range(s[0])])),
        ("stack_amax", apply(lambda x: torch.stack([x, x.sigmoid() - 0.2], 1).amax(1))),
        ("unbind", apply(lambda x: torch.stack([part * 0.3 * (i + 1) for i, part in enumerate(x.unbind(1))], 2)), LONG),
        # elementwise and reductions
        ("smooth", apply_one_of(*SMOOTH)),
        ("kinked", apply_one_of(*KINKED)),
        ("flat", apply_one_of(*FLAT), TIES),
        ("prelu", lambda s, d: nn.PReLU(s[0])),
        ("cumsum", apply_one_of(lambda x: 0.3 * x.cumsum(1), lambda x: x.cumsum(2) * 0.2, lambda x: x.logcumsumexp(1))),
        ("cummax", apply(lambda x: x + 0.5 * x.cummax(1)[0]), SHARP),
        ("glu", apply(lambda x: F.glu(x, -1)), EVEN),
        ("batch_mean", apply_one_of(lambda x: x - x.mean((0, 1)), lambda x: x - 0.1 * x.logsumexp((0, 2), True))),
        # other kinds
        ("flatten", apply(lambda x: x.flatten(1)), {"gives": Kind.VECTOR}),
        ("mean", apply_one_of(lambda x: x.mean(1), lambda x: x.sum(2) * 0.2), TO_VECTOR),
        (
            "std",
            apply_one_of(lambda x: x.var(1) + x.mean(1), lambda x: x.std(1, unbiased=False)),
            {**TO_VECTOR, **LONG},
        ),
        ("logsumexp", apply_one_of(lambda x: x.logsumexp(1), lambda x: x.norm(dim=1)), TO_VECTOR),
        ("amax", apply_one_of(lambda x: x.amax(1), lambda x: x.max(1)[0] - x.min(1)[0]), {**TO_VECTOR, **SHARP}),
        ("last", apply_one_of(lambda x: x[:, -1], lambda x: x.select(1, 0)), TO_VECTOR),
        ("to_image", apply(lambda x: x.unsqueeze(1) * torch.tensor([1.0, 0.5, 0.3, 0.2])[:, None, None]), TO_IMAGE),
        (
            "to_channels",
            apply(lambda x: x.mT.unflatten(2, (-1, 2))),
            {"gives": Kind.IMAGE, "fits": lambda s: s[0] % 2 == 0},
        ),
    )
)


def _einsum_attention(module: nn.Module, x: Tensor) -> Tensor:
    return torch.einsum("btd,bsd->bts", x, module(x)).softmax(-1) @ x


def _feed_forward(width: int) -> nn.Module:
    layers = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))
    return Combine(layers, lambda module, x: x + module(x))


def _indexed(places: list[int]) -> nn.Module:
    return Apply(lambda x: x[:, places] + 0.1 * x.index_select(1, torch.tensor(places)))


def _masked(keeps: list[bool]) -> nn.Module:
    return Apply(lambda x: x.masked_fill(torch.tensor(keeps)[:, None], 0.0) * 0.5 + x)
