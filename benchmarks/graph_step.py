"""One training step of an ``nn.Graph`` against the same module in eager PyTorch, and in ``torch.compile``.

The rival is eager PyTorch as a good engineer writes it: fused optimizer, gradients set to None; networks of pictures
also in channels_last, and the better counts; the graph has them in channels_last. Each has a process of its own, all
take turns in one run; all have loaded the same modules, so that memory is that of tensors. The first call of a graph is
timed in a fresh process, with what it loads. ``python benchmarks/graph_step.py [--rounds N] [--compile] [--small]``
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
import torch.nn.functional as F
from apart import Apart
from graph_models import Work, works
from measure import Timing, alternate, machine, parse, report

import oneflow as flow

MB = 2**20


class TrainGraph(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def work_of(title: str, is_small: bool) -> Work:
    return works(is_small)[title]


def graph_step(title: str, is_small: bool) -> Callable[[], object]:
    work = work_of(title, is_small)
    model, (x, y) = work.make(), work.inputs()
    if work.has_images:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    make = (
        flow.optim.AdamW(model.parameters(), lr=1e-4)
        if work.by_adamw
        else flow.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    )
    graph = TrainGraph(model, make)
    return lambda: graph(x, y)


def eager_step(
    title: str, is_small: bool, channels_last: bool = False, is_compiled: bool = False
) -> Callable[[], object]:
    load_tracing()
    work = work_of(title, is_small)
    model, (x, y) = work.make(), work.inputs()
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    params = model.parameters()
    optimizer = (
        torch.optim.AdamW(params, lr=1e-4, fused=True)
        if work.by_adamw
        else torch.optim.SGD(params, lr=1e-3, momentum=0.9, fused=True)
    )
    run = torch.compile(model) if is_compiled else model

    def step() -> torch.Tensor:
        loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def load_tracing() -> None:
    """What a graph's first call loads."""
    import_module("oneflow.engine.graph.compiled")


def first_call(title: str, is_small: bool) -> float:
    """Seconds of a graph's first call, in a process that has imported oneflow and no more."""
    code = f"import time, graph_step; step = graph_step.graph_step({title!r}, {is_small}); start = time.perf_counter(); step(); print(time.perf_counter() - start)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def contenders_of(title: str, work: Work, args: argparse.Namespace) -> dict[str, Apart]:
    threads, small = torch.get_num_threads(), args.small
    found = {
        "nn.Graph": Apart(threads, graph_step, title, small),
        "PyTorch eager": Apart(threads, eager_step, title, small),
    }
    if work.has_images:
        found["PyTorch eager channels_last"] = Apart(threads, eager_step, title, small, True)
    if args.compile:
        found["torch.compile"] = Apart(threads, eager_step, title, small, work.has_images, True)
    return found


def compare(title: str, args: argparse.Namespace) -> None:
    first = first_call(title, args.small)
    contenders = contenders_of(title, work_of(title, args.small), args)
    timings: list[Timing] = alternate(dict(contenders), args.calls, args.rounds)
    report(title, [t for t in timings if t.name != "torch.compile"], "nn.Graph")
    if args.compile:
        of = {t.name: t.median for t in timings}
        print(
            f"  ratio: {of['torch.compile'] / of['nn.Graph']:.2f} of torch.compile, {1e3 * of['torch.compile']:.3f} ms"
        )
    print(f"  first call of the graph: {first:.2f} s")
    print(f"  memory: {', '.join(f'{name} {contender.close() / MB:.0f} MB' for name, contender in contenders.items())}")


def tiny_call() -> None:
    """A graph of one small op, call to result."""
    graph = flow.nn.Graph.trace(lambda x: x + 1)
    x = torch.zeros(4)
    (timing,) = alternate({"graph": lambda: graph(x)}, 1000, 5)
    print(
        f"\nx + 1 on 4 floats, call to result: {1e6 * timing.median:.1f} us ({1e6 * timing.low:.1f} to "
        f"{1e6 * timing.high:.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=5, help="steps of a round")
    parser.add_argument(
        "--compile", action="store_true", help="also against torch.compile, which takes minutes to start"
    )
    parser.add_argument("--only", default="", help="networks whose title begins so")
    args = parse(parser, {"rounds": 1, "calls": 1})
    print(machine())
    for title in works(args.small):
        if title.startswith(args.only):
            compare(title, args)
    tiny_call()


if __name__ == "__main__":
    main()
