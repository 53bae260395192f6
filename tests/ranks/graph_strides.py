"""Laws of graphs and global tensors on ranks whose parts have other strides than the whole: they train as a loop of plain
torch does. The kernels of some backward ops misread such operands."""

from __future__ import annotations

import copy
from typing import Any

import torch
from global_rank import SIZE, B, S, spread
from graph_laws import ALL, Train, close, copies, plain_losses, whole
from torch import Tensor, nn
from torch.nn import functional as F

import oneflow as flow

CHANNELS_LAST = torch.channels_last


class Attention(nn.Module):
    """The gradient of the layer norm is split along dim 1 of a broadcast value."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.attention(x, x, x, need_weights=False)[0])
        return self.head(torch.where(z > 0, z, z.exp() - 1).flatten(1))


class Transposed(nn.Module):
    """The gradient of the batch norm has its channels innermost, on a rank that holds one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.inner, self.head = nn.Linear(4, 3), nn.Linear(768, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.norm(self.conv(x)).flatten(2).transpose(1, 2)).tanh().flatten(1))


class Groups(nn.Module):
    """The input of the group norm is in channels-last memory, and its gradient is contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.GroupNorm(2, 4), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x).flatten(1))


class Convolved(Groups):
    """As above, with a gradient of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.conv(x).contiguous(memory_format=CHANNELS_LAST))


def trains_as_plain_torch(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, layout: Any, images_last: bool = False
) -> None:
    torch.manual_seed(5)
    model = model.to(dtype)
    data = [(torch.randn(shape, dtype=dtype), torch.randint(5, shape[:1])) for _ in range(4)]
    expected = plain_losses(copy.deepcopy(model), data)
    copies(model)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    found = []
    for x, y in data:
        images = spread(x, ALL, layout)
        images = images.contiguous(memory_format=CHANNELS_LAST) if images_last else images
        found.append(whole(graph(images, spread(y, ALL, layout))))
    close(found, expected, 1e-4 if dtype is torch.float32 else 1e-10)


def law_attention_and_layer_norm_of_broadcast_values_train_as_plain_torch_does() -> None:
    for batch in (48, 12):
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(3)
            trains_as_plain_torch(Attention(), (batch, 8, 8), dtype, B)


def law_a_batch_norm_of_one_sample_per_rank_trains_as_plain_torch_does() -> None:
    for batch in (SIZE, 7):
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(3)
            trains_as_plain_torch(Transposed(), (batch, 4, 16, 16), dtype, S(0))


def law_group_norms_of_channels_last_images_train_as_plain_torch_does() -> None:
    for model in (Groups, Convolved):
        for layout in (S(0), B):
            torch.manual_seed(3)
            trains_as_plain_torch(model(), (4, 4, 4, 4), torch.float32, layout, images_last=True)


def law_eager_gradients_of_transposed_parts_are_those_of_whole_tensors() -> None:
    """The kernels get the parts of global tensors as they are."""
    torch.manual_seed(3)
    for function, shape in (
        (lambda x: F.layer_norm(x.transpose(0, 1), [8]), (6, SIZE, 8)),
        (lambda x: F.batch_norm(x, None, None, training=True).flatten(2).transpose(1, 2), (SIZE, 4, 3, 3)),
        (lambda x: F.group_norm(x, 2).flatten(2).transpose(1, 2), (SIZE, 4, 3, 3)),
        (lambda x: F.scaled_dot_product_attention(*[x.transpose(2, 3)] * 3), (SIZE, 2, 4, 6)),
    ):
        value = torch.randn(shape, dtype=torch.float64)
        factor = torch.randn(function(value).shape, dtype=torch.float64)
        for dim in range(2):
            alone, parts = value.clone().requires_grad_(), spread(value, ALL, S(dim)).requires_grad_()
            if value.shape[dim] < SIZE:
                continue
            (function(alone) * factor).sum().backward()
            (function(parts) * spread(factor, ALL, B)).sum().backward()
            close([whole(parts.grad)], [alone.grad], 1e-10)
