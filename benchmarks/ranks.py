"""Training steps on two ranks of one thread each, against torch's own ways to do the same, and against one process.

Every contender has two processes of its own; all take turns in one run. ``python benchmarks/ranks.py [--only dp tp zero
pipeline eager] [--rounds N] [--small]``
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rank_steps as steps
import torch
from apart import Apart
from graph_models import works
from measure import Timing, alternate, machine, parse

MB = 2**20


class Two:
    """A contender of two processes that begin their calls together."""

    def __init__(self, first: Apart, second: Apart) -> None:
        self._both = first, second

    def __call__(self) -> None:
        for one in self._both:
            one.begin()
        for one in self._both:
            one.end()

    def close(self) -> int:
        """Ends both; by how much the memory of the larger one grew."""
        return max([one.close() for one in self._both])


def on_two_ranks(make: Callable[..., steps.Step], *arguments: Any) -> Two:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Two(*(Apart(1, make, rank, port, *arguments) for rank in range(2)))


class Run:
    """Contenders that have been measured in turns, and what came out."""

    def __init__(self, title: str, contenders: dict[str, Any], args: argparse.Namespace) -> None:
        self._timings: dict[str, Timing] = {t.name: t for t in alternate(contenders, args.calls, args.rounds)}
        self._memory = {name: contender.close() for name, contender in contenders.items()}
        print(f"\n{title}")
        for name, t in self._timings.items():
            print(
                f"  {name:<26} {1e3 * t.median:9.2f} ms   ({1e3 * t.low:.2f} to {1e3 * t.high:.2f})   "
                f"{self._memory[name] / MB:.0f} MB"
            )

    def ratio(self, rival: str, ours: str) -> float:
        """Above 1: ours is faster."""
        return self._timings[rival].median / self._timings[ours].median

    def memory(self, rival: str, ours: str) -> float:
        """Below 1: ours takes less."""
        return self._memory[ours] / max(1, self._memory[rival])


def data_parallel(args: argparse.Namespace) -> None:
    for title in works(args.small):
        if title.startswith(("GPT", "ResNet")):
            run = Run(
                f"data parallel: {title} a rank",
                {
                    "one process": Apart(1, steps.alone, title, args.small),
                    "two not connected": Two(*(Apart(1, steps.alone, title, args.small) for _ in range(2))),
                    "graph on two ranks": on_two_ranks(steps.data_parallel, title, args.small),
                    "torch DDP": on_two_ranks(steps.ddp, title, args.small),
                },
                args,
            )
            ours = "graph on two ranks"
            print(
                f"  {run.ratio('torch DDP', ours):.2f} of DDP's speed; {run.ratio('one process', ours):.2f} of twice "
                f"one process, where two that are not connected do "
                f"{run.ratio('one process', 'two not connected'):.2f}"
            )


def tensor_parallel(args: argparse.Namespace) -> None:
    contenders = {
        "one process": Apart(1, steps.block_alone, args.small),
        "graph on two ranks": on_two_ranks(steps.tensor_parallel, args.small),
        "parallelize_module": on_two_ranks(steps.torch_tensor_parallel, args.small),
    }
    run = Run("tensor parallel: a transformer block, 512 wide, 8 x 128 tokens", contenders, args)
    print(
        f"  {run.ratio('parallelize_module', 'graph on two ranks'):.2f} of parallelize_module's speed; "
        f"{run.ratio('one process', 'graph on two ranks'):.2f} of one process's"
    )


def zero(args: argparse.Namespace) -> None:
    title = next(title for title in works(args.small) if title.startswith("GPT"))
    for stage, reshards in ((2, False), (3, True)):
        ours, rival = f"ZeRO {stage}", f"FSDP2, {'resharding' if reshards else 'keeping'}"
        contenders = {
            ours: on_two_ranks(steps.data_parallel, title, args.small, stage),
            rival: on_two_ranks(steps.fsdp, title, args.small, reshards),
        }
        run = Run(f"ZeRO stage {stage}: {title} a rank", contenders, args)
        print(f"  {run.ratio(rival, ours):.2f} of FSDP2's speed, {run.memory(rival, ours):.2f} of its memory")


def pipeline(args: argparse.Namespace) -> None:
    contenders = {
        "one process": Apart(1, steps.pipeline_alone, args.small),
        "graph of two stages": on_two_ranks(steps.pipeline, args.small),
        "torch pipelining": on_two_ranks(steps.torch_pipeline, args.small),
    }
    count = steps.MICRO_BATCHES
    run = Run(
        f"pipeline: a GPT of 8 layers, 256 wide, in two stages, {count} micro-batches of 128 tokens", contenders, args
    )
    reached, limit = run.ratio("one process", "graph of two stages") / 2, count / (count + 1)
    print(
        f"  {run.ratio('torch pipelining', 'graph of two stages'):.2f} of torch's speed; {reached:.2f} of twice one "
        f"process, {reached / limit:.2f} of the schedule's limit {limit:.2f}"
    )


def eager(args: argparse.Namespace) -> None:
    """Ops on global tensors, which have a program of their own."""
    print("\nops on global tensors", flush=True)
    command = [sys.executable, str(Path(__file__).with_name("global_ops.py")), *(["--small"] if args.small else [])]
    subprocess.run(command, check=True)


PARTS = {"dp": data_parallel, "tp": tensor_parallel, "zero": zero, "pipeline": pipeline, "eager": eager}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3, help="steps of a round")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    args = parse(parser, {"rounds": 1, "calls": 1})
    torch.set_num_threads(1)
    print(machine())
    for name in args.only:
        PARTS[name](args)


if __name__ == "__main__":
    main()
