"""The networks of ``graph_step.py``, in plain PyTorch: what a graph and its rivals train is the same module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A transformer layer with normalising first."""

    def __init__(self, width: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 32), True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class ViT(nn.Module):
    def __init__(self, size: int, patch: int, width: int, layers: int, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 64), False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class BasicBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        return F.relu(y + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        plan = [
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        ]
        self.blocks = nn.Sequential(*(BasicBlock(*one) for one in plan))
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


@dataclass(frozen=True)
class Work:
    """A network, a batch for it, and whether it is trained by AdamW or by SGD with momentum."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, Tensor]]
    by_adamw: bool = True
    has_images: bool = False


def works(is_small: bool) -> dict[str, Work]:
    """All networks with their batches, by title."""
    mlp_batch, batch, size = (4, 2, 32) if is_small else (128, 16, 112)
    layers, width, length, tokens, vocabulary = (1, 32, 16, 2, 100) if is_small else (6, 256, 128, 8, 5000)
    vit_width, vit_size = (64, 32) if is_small else (192, 224)
    return {
        f"MLP 784-512-512-10, batch {mlp_batch}": Work(
            mlp, lambda: (torch.randn(mlp_batch, 784), torch.randint(0, 10, (mlp_batch,))), by_adamw=False
        ),
        f"ResNet-18, batch {batch}, {size} px": Work(
            ResNet18,
            lambda: (torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))),
            by_adamw=False,
            has_images=True,
        ),
        f"GPT, {layers} layers, {width} wide, {tokens} x {length} tokens": Work(
            lambda: GPT(vocabulary, width, layers, length),
            lambda: (torch.randint(0, vocabulary, (tokens, length)), torch.randint(0, vocabulary, (tokens * length,))),
        ),
        f"ViT, {layers} layers, {vit_width} wide, batch {batch}": Work(
            lambda: ViT(vit_size, 16, vit_width, layers),
            lambda: (torch.randn(batch, 3, vit_size, vit_size), torch.randint(0, 1000, (batch,))),
            has_images=True,
        ),
    }
