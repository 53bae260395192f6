"""Small models, and a step of each written twice: as an eager loop and as an ``nn.Graph``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F

Batch = tuple[Tensor, ...]


class MLP(nn.Module):
    def __init__(self, width: int = 16, classes: int = 4, p: float = 0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, classes))

    def forward(self, x):
        return self.layers(x)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5, padding=2), nn.Conv2d(4, 8, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.hidden, self.head = nn.Linear(8 * 3 * 3, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.head(F.relu(self.hidden(x.flatten(1))))


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.down = (
            None
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        short = x if self.down is None else self.down(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += short
        return self.relu(out)


class ResNet18(nn.Module):
    """All 18 layers, eight times narrower."""

    def __init__(self, width: int = 8, classes: int = 4):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
        self.stages = nn.ModuleList(
            [nn.Sequential(BasicBlock(a, b, stride), BasicBlock(b, b, 1)) for a, b, stride in sizes]
        )
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(self.pool(x).flatten(1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        if self.is_causal:
            scores = scores.masked_fill(~flow.ones(t, t, dtype=flow.bool).tril(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool, p: float = 0.0):
        super().__init__()
        self.norm1, self.attention, self.norm2 = (
            nn.LayerNorm(width),
            Attention(width, heads, is_causal),
            nn.LayerNorm(width),
        )
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(p))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tied embeddings, causal attention."""

    def __init__(self, vocabulary: int = 12, width: int = 16, layers: int = 2, length: int = 8, p: float = 0.0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 2, True, p) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(flow.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class ViT(nn.Module):
    def __init__(self, width: int = 16, layers: int = 2, classes: int = 4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.first, self.places = nn.Parameter(flow.zeros(1, 1, width)), nn.Parameter(flow.randn(1, 5, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, 2, False) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = flow.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class LSTM(nn.Module):
    def __init__(self, classes: int = 4):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 12, num_layers=2, batch_first=True), nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


@dataclass(frozen=True)
class Case:
    """A model and the shape of its inputs; of ids where they are below ``ids``."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    ids: int = 0

    def batches(self, count: int) -> Iterator[Batch]:
        draw = torch.Generator().manual_seed(7)
        for _ in range(count):
            if self.ids:
                ids = torch.randint(self.ids, self.shape, generator=draw)
                yield ids, ids.roll(1, 1).flatten()
            else:
                yield torch.randn(self.shape, generator=draw), torch.randint(4, self.shape[:1], generator=draw)


MODELS: dict[str, Case] = {
    "MLP": Case(MLP, (6, 8)),
    "LeNet": Case(LeNet, (4, 1, 12, 12)),
    "ResNet-18": Case(ResNet18, (4, 3, 48, 48)),
    "GPT": Case(GPT, (3, 8), ids=12),
    "ViT": Case(ViT, (3, 3, 8, 8)),
    "LSTM": Case(LSTM, (3, 5, 8)),
}


def seeded(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same model every time."""
    torch.manual_seed(0)
    return make(*args, **kwargs)


class TrainGraph(nn.Graph):
    """Cross entropy; ``settings(graph)`` is called in ``__init__``."""

    def __init__(self, model, optimizer, lr_sch=None, settings: Callable[[Any], None] = lambda graph: None):
        super().__init__()
        self.model = model
        self.loss_fn = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch=lr_sch)
        settings(self)

    def build(self, x, y):
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        return loss


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, *inputs):
        return self.model(*inputs)


def sgd(model: nn.Module, lr: float = 0.02) -> Any:
    return flow.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def eager_losses(
    model: nn.Module, optimizer: Any, batches: Iterator[Batch], scheduler: Any = None, clips: bool = False
) -> list[float]:
    """The loss of every batch of a loop written out."""
    loss_fn, losses = nn.CrossEntropyLoss(), []
    for x, y in batches:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if clips:
            optimizer.clip_grad()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def same_state(one: nn.Module, two: nn.Module, tolerance: float = 0.0) -> None:
    """Parameters and buffers of two modules agree."""
    a, b = one.state_dict(), two.state_dict()
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(
            a[name], b[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
