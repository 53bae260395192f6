"""Weak scaling: two workers of one thread each, on a batch twice as large, against one of one thread; and torch's DDP on the same work. Two
processes that each do the work of one, unconnected, show what the machine itself allows.

LeNet is fed from numpy, AlexNet reads a batch made beforehand. All take turns in one run. Also a tiny job to two workers and back, the start
of two workers, and a plan for 1024 devices. ``python benchmarks/scaling.py [--rounds N]``
"""

from __future__ import annotations

import argparse
import functools
import socket
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from apart import Apart
from measure import Timing, alternate, machine
from train_step import LeNet, digits, lenet_job

import oneflow as flow
from oneflow.job.function import default_session
from oneflow.plan import plan_job

BATCH = {"lenet": 100, "alexnet": 16}


def config() -> flow.FunctionConfig:
    made = flow.function_config()
    made.train.primary_lr(0.001)
    made.train.model_update_conf({"naive_conf": {}})
    return made


def alexnet_job(batch: int) -> Callable[[], object]:
    @flow.global_function(config())
    def alexnet():
        he = flow.variance_scaling_initializer(2.0, "fan_in", "random_normal")
        x = flow.data.decode_random((3, 227, 227), flow.float32, batch, name="images")
        labels = flow.data.decode_random((), flow.int32, batch, flow.random_uniform_initializer(0, 1000, flow.int32), name="labels")
        for number, (filters, kernel, strides, padding, pooled) in enumerate(ALEXNET):
            x = flow.layers.conv2d(x, filters, kernel, strides, padding, use_bias=False, kernel_initializer=he, name=f"conv{number}")
            x = flow.nn.relu(x)
            x = flow.nn.avg_pool2d(x, 3, 2, "VALID") if pooled else x
        x = flow.reshape(x, (batch, -1))
        for number, units in enumerate((4096, 4096)):
            x = flow.layers.dense(x, units, flow.nn.relu, use_bias=False, kernel_initializer=he, name=f"fc{number}")
            x = flow.nn.dropout(x, rate=0.5)
        logits = flow.layers.dense(x, 1001, use_bias=False, kernel_initializer=he, name="fc2")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.losses.add_loss(loss)
        return loss

    return lambda: alexnet().get()


ALEXNET = [(64, 11, 4, "VALID", True), (192, 5, 1, "SAME", True), (384, 3, 1, "SAME", False), (384, 3, 1, "SAME", False), (256, 3, 1, "SAME", True)]
JOBS = {"lenet": lenet_job, "alexnet": alexnet_job}


def torch_alexnet() -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    channels = 3
    for filters, kernel, strides, padding, pooled in ALEXNET:
        layers += [torch.nn.Conv2d(channels, filters, kernel, strides, 0 if padding == "VALID" else kernel // 2, bias=False), torch.nn.ReLU()]
        layers += [torch.nn.AvgPool2d(3, 2)] if pooled else []
        channels = filters
    layers += [torch.nn.Flatten(), torch.nn.Linear(9216, 4096, bias=False), torch.nn.ReLU(), torch.nn.Dropout()]
    layers += [torch.nn.Linear(4096, 4096, bias=False), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(4096, 1001, bias=False)]
    return torch.nn.Sequential(*layers)


# ------------------------------------------------------------------ the rival


class DdpStep:
    """A DDP step of one of two processes; both must make theirs at the same time."""

    def __init__(self, rank: int, net: str, port: int) -> None:
        dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, 2, rank == 0), rank=rank, world_size=2)
        model: torch.nn.Module = LeNet() if net == "lenet" else torch_alexnet()
        self._model = torch.nn.parallel.DistributedDataParallel(model.to(memory_format=torch.channels_last), gradient_as_bucket_view=True)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.001, fused=True)
        batch = BATCH[net]
        x = torch.from_numpy(digits(batch)[0]) if net == "lenet" else torch.rand(batch, 3, 227, 227)
        self._x, self._y = x.contiguous(memory_format=torch.channels_last), torch.zeros(batch, dtype=torch.int64)

    def __call__(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self._model(self._x), self._y).backward()
        self._optimizer.step()


def ddp_step(rank: int, net: str, port: int) -> Callable[[], None]:
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


def scaling(net: str, rounds: int, calls: int) -> None:
    flow.clear_default_session()
    flow.config.cpu_device_num(2)
    two = JOBS[net](2 * BATCH[net])
    two()
    one, other = [Apart(1, JOBS[net], BATCH[net]) for _ in range(2)]
    port = free_port()
    ddp = [Apart(1, ddp_step, rank, net, port) for rank in range(2)]
    contenders = {"one": one, "two apart": Pair(one, other), "two": two, "DDP": Pair(*ddp)}
    timings = {t.name: t for t in alternate(contenders, calls, rounds)}
    for each in (one, other, *ddp):
        each.close()
    show(net, timings)


def show(net: str, timings: dict[str, Timing]) -> None:
    print(f"\n{net}, batch {BATCH[net]} a worker")
    for name, t in timings.items():
        print(f"  {name:<10} {1e3 * t.median:9.2f} ms   ({1e3 * t.low:.2f} to {1e3 * t.high:.2f})")
    one, apart, two, ddp = [timings[name].median for name in ("one", "two apart", "two", "DDP")]
    print(f"  two workers do {one / two:.2f} of twice one, where two that are not connected do {one / apart:.2f}; {ddp / two:.2f} of DDP's speed")


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
    print(f"\ntiny job to two workers and back: {1e6 * statistics.median(times):.0f} us; the first call, with their start: {first:.2f} s")


def lenet_plan() -> Callable[[], object]:
    """LeNet anew, planned for 1024 devices."""

    def plan() -> None:
        flow.clear_default_session()
        lenet_job(2048)
        plan_job(default_session().jobs["lenet_train"], (1024,))

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
    print(f"\nLeNet planned for 1024 devices: {statistics.median(later):.2f} s; the first time, with what torch loads for it: {first:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--net", choices=[*JOBS, "dispatch", "planning"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    if args.net in (None, "dispatch"):
        dispatch(args.rounds)
    if args.net in (None, "planning"):
        planning(args.rounds)
    for net, calls in (("lenet", 5), ("alexnet", 1)):
        if args.net in (None, net):
            scaling(net, args.rounds, calls)
    flow.clear_default_session()


if __name__ == "__main__":
    main()
