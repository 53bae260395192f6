"""The models of the matrix: small ones of every kind, each with batches, and with what its layers are in tensor
parallelism and in a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from graph_laws import GPT, MLP, Attention, Block, ConvNet
from torch import Tensor, nn

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """A model that gives scores of classes. ``columns`` are the layers that tensor parallelism splits by their outputs,
    ``rows`` those it splits by their inputs, ``last`` those of the second stage of a pipeline (by the ends and
    beginnings of their paths), ``regions`` the modules to checkpoint."""

    make: Callable[[], nn.Module]
    batch: Draw
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    last: tuple[str, ...]
    regions: str
    is_transposed: bool = False
    """Whether weights of layers are (inputs, outputs)."""

    def is_last(self, path: str) -> bool:
        return path.startswith(self.last)


class ViT(nn.Module):
    """A class token, learned positions, patches by a convolution."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.patches, self.drop = nn.Conv2d(2, 16, 3, stride=3), nn.Dropout(p)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16))
        self.blocks = nn.ModuleList([Block(16, 4, p) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.drop(torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class CrossAttention(Attention):
    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        b, t, c = x.shape
        memory = x if memory is None else memory
        q = self.query(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (
            layer(memory).view(b, memory.shape[1], self.heads, -1).transpose(1, 2) for layer in (self.key, self.value)
        )
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))


class Decoder(Block):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__(width, heads, p)
        self.norm3, self.cross = nn.LayerNorm(width), CrossAttention(width, heads)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
        x = x + self.attention(self.norm1(x))
        x = x + self.cross(self.norm3(x), memory)
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Encoder(Block):
    def __init__(self, width: int, heads: int, p: float) -> None:
        super().__init__(width, heads, p)
        self.attention = CrossAttention(width, heads)


class T5(nn.Module):
    """An encoder and a decoder of shared embeddings: what the encoder gives goes to every layer of the decoder."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.tokens, self.drop = nn.Embedding(12, 16), nn.Dropout(p)
        self.encoder, self.decoder = Encoder(16, 4, p), nn.ModuleList([Decoder(16, 4, p) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 12, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        memory = self.encoder(self.drop(self.tokens(ids[:, :5])))
        x = self.drop(self.tokens(ids[:, 5:]))
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.norm(x)).flatten(0, 1)


class Window(nn.Module):
    """Attention inside windows of four, which are shifted by two: rolls, and views across every dim."""

    def __init__(self, width: int, shift: int, p: float) -> None:
        super().__init__()
        self.norm, self.attention, self.shift = nn.LayerNorm(width), CrossAttention(width, 2), shift
        self.norm2, self.up, self.down, self.drop = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
            nn.Dropout(p),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y = self.attention(y).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Swin(nn.Module):
    """Windows, shifted windows, patches merged between two stages."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, 8, 2, stride=2)
        self.blocks = nn.ModuleList([Window(8, 0, p), Window(8, 2, p)])
        self.merge, self.after, self.head = nn.Linear(32, 16, bias=False), Window(16, 0, p), nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        x = self.merge(torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1))
        return self.head(self.after(x).mean((1, 2)))


class Scores(nn.Module):
    """What a model of ``transformers`` gives as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids).logits.flatten(0, -2)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    special = {"bos_token_id": 0, "eos_token_id": 0}
    return Scores(
        GPT2LMHeadModel(
            GPT2Config(vocab_size=16, n_positions=6, n_embd=16, n_layer=2, n_head=4, use_cache=False, **special)
        ).train()
    )


def bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    small = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "max_position_embeddings": 6,
    }
    return Scores(BertForMaskedLM(BertConfig(vocab_size=16, **small)).train())


def pictures(extent: int) -> Draw:
    return lambda draw: (torch.randn(8, 2, extent, extent, generator=draw), torch.randint(6, (8,), generator=draw))


def words(vocabulary: int, length: int, answers: int) -> Draw:
    return lambda draw: (
        torch.randint(vocabulary, (8, length), generator=draw),
        torch.randint(vocabulary, (8 * answers,), generator=draw),
    )


_COLUMNS, _ROWS = ("query", "key", "value", "up"), ("out", "down")
CASES: dict[str, Case] = {
    "MLP": Case(
        MLP,
        lambda draw: (torch.randn(8, 8, generator=draw), torch.randint(6, (8,), generator=draw)),
        ("layers.0",),
        ("layers.3",),
        ("layers.3",),
        "layers",
    ),
    "conv net": Case(ConvNet, pictures(6), ("conv",), (), ("head",), "norm"),
    "GPT": Case(GPT, words(12, 6, 6), _COLUMNS, _ROWS, ("blocks.1", "norm", "head"), "blocks.1"),
    "ViT": Case(ViT, pictures(6), _COLUMNS, _ROWS, ("blocks.1", "norm", "head"), "blocks.1"),
    "T5": Case(T5, words(12, 9, 4), _COLUMNS, _ROWS, ("decoder", "norm", "head"), "decoder.1"),
    "Swin": Case(Swin, pictures(16), _COLUMNS, _ROWS, ("merge", "after", "head"), "after"),
}
if find_spec("transformers") is not None:
    CASES |= {
        "GPT-2": Case(
            gpt2,
            words(16, 6, 6),
            ("c_attn", "c_fc"),
            ("c_proj",),
            ("model.transformer.h.1", "model.transformer.ln_f", "model.lm_head"),
            "model.transformer.h.1",
            True,
        ),
        "BERT": Case(
            bert,
            words(16, 6, 6),
            ("query", "key", "value", "intermediate.dense"),
            ("attention.output.dense", "layer.0.output.dense", "layer.1.output.dense"),
            ("model.bert.encoder.layer.1", "model.cls"),
            "model.bert.encoder.layer.1",
        ),
    }


def made(name: str, with_dropout: bool = True) -> nn.Module:
    """A model with the first values that it always has."""
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of importing transformers
        model = CASES[name].make()
    if not with_dropout:
        for module in model.modules():
            for rate in (
                key for key in ("p", "attn_dropout", "dropout_prob") if isinstance(vars(module).get(key), float)
            ):
                setattr(module, rate, 0.0)
    return model


def batches(name: str, count: int) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(7)
    return [CASES[name].batch(draw) for _ in range(count)]


def module_at(proxy: Any, path: str) -> Any:
    """A module of a graph's by its path."""
    for part in path.split("."):
        proxy = proxy[int(part)] if part.isdigit() else getattr(proxy, part)
    return proxy
