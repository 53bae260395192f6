"""One training step of a job against plain PyTorch: the quick start's LeNet and a 784-512-512-10 MLP.

The rival is eager PyTorch as a good engineer writes it (fused SGD, gradients set to None), in NCHW and in
channels_last, and with ``--compile`` torch.compile; the best of them counts. Each has a process of its own, with its
memory; all take turns in one run. ``python benchmarks/train_step.py [--rounds N] [--compile] [--small]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from apart import Apart
from jobs import digits, lenet_step, mlp_step
from measure import alternate, machine, parse, report


class LeNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(32, 64, 5, padding=2)
        self.dense1 = torch.nn.Linear(64 * 49, 512)
        self.dense2 = torch.nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


def mlp() -> torch.nn.Module:
    layers = [
        torch.nn.Linear(784, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    ]
    return torch.nn.Sequential(*layers)


def torch_lenet(batch: int, memory_format: torch.memory_format, is_compiled: bool = False) -> Callable[[], object]:
    return torch_step(LeNet(), *digits(batch), memory_format, is_compiled)


def torch_mlp(batch: int) -> Callable[[], object]:
    images, labels = digits(batch)
    return torch_step(mlp(), images.reshape(batch, 784), labels, torch.contiguous_format)


def torch_step(
    model: torch.nn.Module,
    images: np.ndarray,
    labels: np.ndarray,
    memory_format: torch.memory_format,
    is_compiled: bool = False,
) -> Callable[[], object]:
    """A plain training step from numpy arrays to a numpy loss, as the job's is."""
    model = model.to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    run = torch.compile(model) if is_compiled else model

    def step() -> np.ndarray:
        x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
        if x.dim() == 4:
            x = x.contiguous(memory_format=memory_format)
        loss = F.cross_entropy(run(x), y, reduction="none")
        optimizer.zero_grad(set_to_none=True)
        loss.mean().backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lenet", type=int, default=100, help="the batch of LeNet")
    parser.add_argument("--mlp", type=int, default=128, help="the batch of the MLP")
    parser.add_argument("--calls", type=int, default=10, help="steps of LeNet a round; five times as many of the MLP")
    parser.add_argument("--compile", action="store_true", help="LeNet also against torch.compile")
    args = parse(parser, {"rounds": 1, "lenet": 4, "mlp": 4, "calls": 1})
    print(machine())
    contenders = {
        "job": (lenet_step, args.lenet),
        "PyTorch eager NCHW": (torch_lenet, args.lenet, torch.contiguous_format),
        "PyTorch eager channels_last": (torch_lenet, args.lenet, torch.channels_last),
    }
    if args.compile:
        contenders["torch.compile channels_last"] = (torch_lenet, args.lenet, torch.channels_last, True)
    compare(f"LeNet, batch {args.lenet}", contenders, args.calls, args.rounds)
    compare(
        f"MLP 784-512-512-10, batch {args.mlp}",
        {"job": (mlp_step, args.mlp), "PyTorch eager": (torch_mlp, args.mlp)},
        5 * args.calls,
        args.rounds,
    )


def compare(title: str, makers: dict[str, tuple[Any, ...]], calls: int, rounds: int) -> None:
    """Each contender is given by a function that makes its step, and what that takes."""
    contenders = {who: Apart(torch.get_num_threads(), *maker) for who, maker in makers.items()}
    report(title, alternate(dict(contenders), calls, rounds), "job")
    print(
        f"  memory: {', '.join(f'{who} {contender.close() / 2**20:.0f} MB' for who, contender in contenders.items())}"
    )


if __name__ == "__main__":
    main()
