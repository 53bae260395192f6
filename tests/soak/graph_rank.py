"""One rank of a run of random graphs; a launcher starts one process per rank.

Its argument is a JSON object: ``seeds`` (the first, and the one behind the last), ``seconds`` and ``without``; or one
``program`` or ``seed``, and whether it is to be reduced (``reduces``) and ends the process (``crashes``). Rank 0 prints one JSON line per program.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import time
from typing import Any

import graph_run
import torch
import torch._dynamo  # noqa: F401  the first trace loads it
import torch.distributed as dist
from graph_program import GraphProgram, draw_program
from program import Unfit, Verdict, reduced

import oneflow as flow
from oneflow.engine.world import join


def agreed(verdict: Verdict) -> Verdict:
    """Returns the worst verdict of all ranks, the same on each."""
    verdicts: list[Any] = [None] * flow.env.get_world_size()
    dist.all_gather_object(verdicts, verdict)
    return max(verdicts, key=lambda other: (other.is_failure, other.status == "error", other.difference))


def checked(program: GraphProgram) -> Verdict:
    """Checks a program on all ranks."""
    if flow.env.get_rank() == 0:
        print(json.dumps({"begun": program.seed, "program": program.to_json()}), flush=True)
    return agreed(graph_run.check(program))


def is_late(deadline: float) -> bool:
    """Whether rank 0's clock is past the deadline."""
    late = [time.monotonic() > deadline]
    dist.broadcast_object_list(late)
    return late[0]


def report(verdict: Verdict, program: GraphProgram) -> None:
    """Prints a line of what a program has given, on rank 0."""
    if flow.env.get_rank() == 0:
        print(json.dumps({**dataclasses.asdict(verdict), "program": program.to_json()}), flush=True)


def reduce_program(program: GraphProgram, crashes: bool) -> GraphProgram:
    """Returns the smallest program that fails as a program does. Where that ends the process, none that survives does;
    who started this begins again with the one that did not."""
    status = "" if crashes else checked(program).status

    def fails(other: GraphProgram) -> bool:
        try:
            verdict = checked(other)
        except Unfit:
            return False
        return verdict.is_failure and verdict.status == status

    return reduced(program, fails)


def main(order: dict[str, Any]) -> None:
    """Runs the programs of an order."""
    torch.set_num_threads(1)
    gc.freeze()  # modules are never freed: collections need not look at them
    join()
    without = frozenset(order["without"])
    if "seeds" not in order:
        text = order["program"]
        program = GraphProgram.from_json(text) if text else draw_program(order["seed"], without)
        if order["reduces"]:
            program = reduce_program(program, order["crashes"])
        crashed = Verdict(program.seed, "error", "the launch ends or hangs")
        report(crashed if order["crashes"] else checked(program), program)
        return
    deadline = time.monotonic() + order["seconds"]
    for seed in range(*order["seeds"]):
        if is_late(deadline):
            break
        program = draw_program(seed, without)
        report(checked(program), program)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
