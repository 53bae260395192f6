"""Weak scaling: two workers of one thread each, on a batch twice as large, against one of one thread; and torch's DDP
on the same work. Two processes that each do the work of one, unconnected, show what the machine itself allows.

LeNet is fed from numpy, AlexNet reads a batch made beforehand. All take turns in one run. Also a tiny job to two
workers and back, the start of two workers, and a plan for 1024 devices. ``python benchmarks/scaling.py [--rounds N]
[--net lenet|alexnet|dispatch|planning] [--small]``
"""

from __future__ import annotations

import argparse
import functools
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from apart import Apart
from jobs import ALEXNET, alexnet_step, digits, lenet, lenet_step
from measure import Timing, alternate, machine, parse
from train_step import LeNet

import oneflow as flow


@dataclass(frozen=True)
class Net:
    """How much of a network a worker gets, the width of its dense layers, and how many steps are one turn."""

    name: str
    batch: int
    pixels: int
    units: int
    calls: int

    def step(self, workers: int = 1) -> Callable[[], object]:
        """A step on the batch of so many workers."""
        return (
            lenet_step(workers * self.batch)
            if self.name == "lenet"
            else alexnet_step(workers * self.batch, self.pixels, self.units)
        )


def torch_alexnet(pixels: int, units: int) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    channels = 3
    for filters, kernel, strides, padding, pooled in ALEXNET:
        layers += [
            torch.nn.Conv2d(channels, filters, kernel, strides, 0 if padding == "VALID" else kernel // 2, bias=False),
            torch.nn.ReLU(),
        ]
        layers += [torch.nn.AvgPool2d(3, 2)] if pooled else []
        channels = filters
    features = torch.nn.Sequential(*layers)(torch.zeros(1, 3, pixels, pixels)).numel()
    layers += [torch.nn.Flatten(), torch.nn.Linear(features, units, bias=False), torch.nn.ReLU(), torch.nn.Dropout()]
    layers += [
        torch.nn.Linear(units, units, bias=False),
        torch.nn.ReLU(),
        torch.nn.Dropout(),
        torch.nn.Linear(units, 1001, bias=False),
    ]
    return torch.nn.Sequential(*layers)


# ------------------------------------------------------------------ the rival


class DdpStep:
    """A DDP step of one of two processes; both must make theirs at the same time."""

    def __init__(self, rank: int, net: Net, port: int) -> None:
        dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, 2, rank == 0), rank=rank, world_size=2)
        model: torch.nn.Module = LeNet() if net.name == "lenet" else torch_alexnet(net.pixels, net.units)
        self._model = torch.nn.parallel.DistributedDataParallel(
            model.to(memory_format=torch.channels_last), gradient_as_bucket_view=True
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.001, fused=True)
        x = (
            torch.from_numpy(digits(net.batch)[0])
            if net.name == "lenet"
            else torch.rand(net.batch, 3, net.pixels, net.pixels)
        )
        self._x, self._y = x.contiguous(memory_format=torch.channels_last), torch.zeros(net.batch, dtype=torch.int64)

    def __call__(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self._model(self._x), self._y).backward()
        self._optimizer.step()


def ddp_step(rank: int, net: Net, port: int) -> Callable[[], None]:
    """A DDP step that is made when it is first called."""
    made = functools.cache(DdpStep)
    return lambda: made(rank, net, port)()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ------------------------------------------------------------------ the runs


class Pair:
    """Two processes that begin their calls together, and wait for each other only if what they call does."""

    def __init__(self, first: Apart, second: Apart) -> None:
        self._both = first, second

    def __call__(self) -> None:
        for one in self._both:
            one.begin()
        for one in self._both:
            one.end()


def scaling(net: Net, rounds: int) -> None:
    flow.clear_default_session()
    flow.config.cpu_device_num(2)
    two = net.step(workers=2)
    two()
    one, other = [Apart(1, net.step) for _ in range(2)]
    port = free_port()
    ddp = [Apart(1, ddp_step, rank, net, port) for rank in range(2)]
    contenders = {"one": one, "two apart": Pair(one, other), "two": two, "DDP": Pair(*ddp)}
    timings = {t.name: t for t in alternate(contenders, net.calls, rounds)}
    for each in (one, other, *ddp):
        each.close()
    show(net, timings)


def show(net: Net, timings: dict[str, Timing]) -> None:
    print(f"\n{net.name}, batch {net.batch} a worker")
    for name, t in timings.items():
        print(f"  {name:<10} {1e3 * t.median:9.2f} ms   ({1e3 * t.low:.2f} to {1e3 * t.high:.2f})")
    one, apart, two, ddp = [timings[name].median for name in ("one", "two apart", "two", "DDP")]
    print(
        f"  two workers do {one / two:.2f} of twice one, where two that are not connected do {one / apart:.2f}; "
        f"{ddp / two:.2f} of DDP's speed"
    )


def dispatch(rounds: int) -> None:
    """A tiny job to two workers and back."""
    flow.clear_default_session()
    flow.config.cpu_device_num(2)

    @flow.global_function()
    def tiny(x=flow.FixedTensorDef((2, 4))):
        return x + 1.0

    x = np.zeros((2, 4), np.float32)
    began = time.perf_counter()
    tiny(x).get()
    first = time.perf_counter() - began
    times = []
    for _ in range(200 * rounds):
        start = time.perf_counter()
        tiny(x).get()
        times.append(time.perf_counter() - start)
    print(
        f"\ntiny job to two workers and back: {1e6 * statistics.median(times):.0f} us; the first call, with their "
        f"start: {first:.2f} s"
    )


def lenet_plan() -> Callable[[], object]:
    """LeNet anew, planned for 1024 devices."""

    def plan() -> None:
        flow.clear_default_session()
        flow.plan(lenet(2048), devices=1024)

    return plan


def planning(rounds: int) -> None:
    apart = Apart(1, lenet_plan)
    times = []
    for _ in range(1 + rounds):
        start = time.perf_counter()
        apart()
        times.append(time.perf_counter() - start)
    apart.close()
    first, *later = times
    print(
        f"\nLeNet planned for 1024 devices: {statistics.median(later):.2f} s; the first time, with what torch loads "
        f"for it: {first:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--net", choices=["lenet", "alexnet", "dispatch", "planning"])
    parser.add_argument("--lenet", type=int, default=100, help="the batch of LeNet a worker")
    parser.add_argument("--alexnet", type=int, default=16, help="the batch of AlexNet a worker")
    parser.add_argument("--pixels", type=int, default=227, help="the size of AlexNet's pictures")
    parser.add_argument("--units", type=int, default=4096, help="the width of AlexNet's dense layers")
    args = parse(parser, {"rounds": 1, "lenet": 4, "alexnet": 1, "pixels": 67, "units": 32})
    torch.set_num_threads(1)
    print(machine())
    if args.net in (None, "dispatch"):
        dispatch(args.rounds)
    if args.net in (None, "planning"):
        planning(args.rounds)
    for net in (Net("lenet", args.lenet, 28, 512, 5), Net("alexnet", args.alexnet, args.pixels, args.units, 1)):
        if args.net in (None, net.name):
            scaling(net, args.rounds)
    flow.clear_default_session()


if __name__ == "__main__":
    main()
