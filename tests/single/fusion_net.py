"""A step of two clusters, one forward and one backward, in a tier of one's choice."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import oneflow as flow
from oneflow import nn
from oneflow.engine.step.running_clusters import RunningClusters

SIZE = 128


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.linear, self.norm = nn.Linear(SIZE, SIZE), nn.LayerNorm(SIZE)

    def forward(self, x):
        return F.gelu(self.norm(x + self.linear(x)))


class Train(nn.Graph):
    def __init__(self, tier=None, net=None):
        super().__init__()
        self.net = Net() if net is None else net
        self.add_optimizer(flow.optim.SGD(self.net.parameters(), lr=0.5, momentum=0.9))
        if tier is not None:
            self.config.set_fusion(tier)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def batch(number: int) -> torch.Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(number))


def clusters(graph: Train) -> RunningClusters:
    (step,) = graph._compiled.values()
    return step.executor.clusters
