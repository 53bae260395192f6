"""Graphs of one rank on inputs and gradients of any strides train as plain torch does on contiguous ones."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import oneflow as flow


class Train(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x: Tensor) -> Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).transpose(2, 3)
        return F.scaled_dot_product_attention(query.contiguous(), x.transpose(2, 3), query)


MODELS = {
    "group norm first": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 3)), (5, 4, 3, 3)),
    "group norm behind a convolution": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 3)),
        (5, 4, 3, 3),
    ),
    "batch norm of one sample": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 3)),
        (1, 4, 3, 3),
    ),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), (5, 3, 4)),
    "attention": (Attended, (2, 3, 4, 6)),
}
ORDERS = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "reversed": lambda x: x.permute(*range(x.dim())[::-1]).contiguous().permute(*range(x.dim())[::-1]),
    "slice": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "unit stride": lambda x: x.movedim(1, -1).flatten(1, -2).contiguous().transpose(1, 2).reshape(x.shape),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_graph_trains_as_plain_torch_does(name: str, order: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(shape, dtype=torch.float64)
    alone = copy.deepcopy(model)
    graph, optimizer = Train(model), torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        loss = alone(x.contiguous()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(graph(ORDERS[order](x)).detach(), loss.detach(), rtol=1e-9, atol=1e-12)
