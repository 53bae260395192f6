"""The same training by torch's own data parallelism: what each of the processes of a cluster does. No code of ours
computes here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

Weights = dict[str, np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]


class LeNet(nn.Module):
    """The network ``nets.lenet`` in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 10, 5, padding=2)
        self.dense1, self.dense2 = nn.Linear(90, 30), nn.Linear(30, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


class Oracle:
    """Trains its rank's share of every batch."""

    def __init__(self, context: object) -> None:
        self._rank: int = context.rank  # type: ignore[attr-defined]

    def ddp(self, weights: Weights, batches: list[Batch]) -> tuple[list[np.ndarray], Weights]:
        """Gradients averaged over ranks while the backward pass runs."""
        return self._train(weights, batches, DistributedDataParallel)

    def fsdp(self, weights: Weights, batches: list[Batch]) -> tuple[list[np.ndarray], Weights]:
        """Weights, gradients and optimizer state shared out, a layer at a time."""

        def shard(model: nn.Module) -> nn.Module:
            mesh = init_device_mesh("cpu", (2,))
            for layer in model.children():
                fully_shard(layer, mesh=mesh)
            return fully_shard(model, mesh=mesh)

        return self._train(weights, batches, shard)

    def _train(
        self, weights: Weights, batches: list[Batch], wrap: Callable[[nn.Module], nn.Module]
    ) -> tuple[list[np.ndarray], Weights]:
        inner = LeNet()
        inner.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        model = wrap(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        losses = [self._step(model, optimizer, *batch) for batch in batches]
        return losses, {name: _whole(value) for name, value in inner.state_dict().items()}

    def _step(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, images: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        half = len(images) // 2
        mine = slice(self._rank * half, (self._rank + 1) * half)
        optimizer.zero_grad()
        losses = F.cross_entropy(model(torch.tensor(images[mine])), torch.tensor(labels[mine]).long(), reduction="none")
        losses.mean().backward()
        optimizer.step()
        return losses.detach().numpy()


def _whole(value: Tensor) -> np.ndarray:
    value = value.detach()
    return (value.full_tensor() if isinstance(value, DTensor) else value).numpy()
