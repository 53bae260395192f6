"""An old commit against the working tree, in one run: is a change faster, slower or neither?

The jobs of ``jobs.py``, which use public names only, run in processes of their own, one with the old commit's ``src``
and one with that of the working tree. The two take turns, and who begins a round changes from round to round. A row has
the median of the rounds of either side and the ratio old / new: above 1, the working tree is faster. In brackets are
the smallest and the largest ratio of a round; if 1 lies between them, nothing was shown. The old commit is checked out
into a temporary folder, which is removed at the end.

``python benchmarks/against.py OLD [--rounds N] [--only ROW ...] [--resnet50 BATCH] [--pixels N] [--small]``
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from apart import Apart
from measure import in_turn, machine, parse

ROOT = Path(__file__).resolve().parents[1]
Seconds = Callable[[], float]


# ------------------------------------------------------------------ the two sides


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The ``src`` of a commit, in a git worktree that is removed again."""
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        tree = str(Path(folder, "old"))
        added = subprocess.run(
            [*git, "worktree", "add", "--quiet", "--detach", tree, revision], capture_output=True, text=True
        )
        if added.returncode:
            sys.exit(f"git cannot check out {revision!r}, name a commit of this repository: {added.stderr.strip()}")
        try:
            yield Path(tree, "src")
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)


def turn_of(src: str, calls: int, make: str, *arguments: Any) -> Callable[[], None]:
    """In a new process: so many calls of what a function of ``jobs.py`` gives, with oneflow as it is in ``src``."""
    sys.path.insert(0, src)
    os.environ["PYTHONPATH"] = src  # for processes that this one starts
    jobs = importlib.import_module("jobs")
    found = Path(jobs.flow.__file__)
    assert found.is_relative_to(src), f"oneflow was to come from {src} and came from {found}"
    step = getattr(jobs, make)(*arguments)

    def turn() -> None:
        for _ in range(calls):
            step()

    return turn


# ------------------------------------------------------------------ what is measured


@dataclass(frozen=True)
class Row:
    """A function of ``jobs.py`` with its arguments, how many calls are one turn, and of how many threads."""

    title: str
    make: str
    arguments: tuple[Any, ...]
    calls: int
    threads: int

    def seconds(self, src: str, stack: ExitStack) -> Seconds:
        """Gives the seconds of a call, the mean of a turn. A first turn is made here and not counted."""
        apart = self.process(src)
        stack.callback(apart.close)
        apart()
        return lambda: taken(apart) / self.calls

    def process(self, src: str) -> Apart:
        return Apart(self.threads, turn_of, src, self.calls, self.make, *self.arguments)


@dataclass(frozen=True)
class FirstCall(Row):
    """A turn is the first call in a process that has imported all and made no other."""

    def seconds(self, src: str, stack: ExitStack) -> Seconds:
        def turn() -> float:
            apart = self.process(src)
            seconds = taken(apart)
            apart.close()
            return seconds

        return turn


def taken(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rows(args: argparse.Namespace) -> dict[str, Row]:
    """By the name that ``--only`` takes."""
    threads, lenet, mlp = torch.get_num_threads(), args.lenet, args.mlp
    return {
        "lenet": Row(f"LeNet step, batch {lenet}", "lenet_step", (lenet,), args.calls, threads),
        "mlp": Row(f"MLP step, batch {mlp}", "mlp_step", (mlp,), 5 * args.calls, threads),
        "resnet50": Row(
            f"ResNet-50 step, batch {args.resnet50}", "cnn_step", ("resnet50", args.resnet50, args.pixels), 1, threads
        ),
        "dispatch": Row("smallest job, call to result", "affine_step", (), 200 * args.calls, threads),
        "first": FirstCall("LeNet, first call", "lenet_step", (lenet,), 1, threads),
        "workers": Row(f"LeNet step, two workers, batch {lenet} each", "lenet_step_on", (2, 2 * lenet), args.calls, 1),
    }


# ------------------------------------------------------------------ the turns


def rounds_of(row: Row, sides: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """The seconds of every round, by side."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as stack:
        turns = {side: row.seconds(src, stack) for side, src in sides.items()}
        for number in range(rounds):
            for side, turn in in_turn(turns, number):
                found[side].append(turn())
    return found


def line(row: Row, found: dict[str, list[float]]) -> str:
    old, new = (statistics.median(found[side]) for side in ("old", "new"))
    ratios = [before / after for before, after in zip(found["old"], found["new"])]
    return f"  {row.title:<42} {shown(old)} {shown(new)} {old / new:7.2f}   ({min(ratios):.2f} to {max(ratios):.2f})"


def shown(seconds: float) -> str:
    return f"{1e6 * seconds:10.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:10.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the commit to measure against")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--only", nargs="+", choices=["lenet", "mlp", "resnet50", "dispatch", "first", "workers"], help="some rows"
    )
    parser.add_argument("--lenet", type=int, default=100, help="the batch of LeNet")
    parser.add_argument("--mlp", type=int, default=128, help="the batch of the MLP")
    parser.add_argument("--resnet50", type=int, default=16, help="the batch of ResNet-50")
    parser.add_argument("--pixels", type=int, default=224, help="the size of ResNet-50's pictures")
    parser.add_argument("--calls", type=int, default=10, help="steps of LeNet a turn; five times as many of the MLP")
    args = parse(parser, {"rounds": 1, "lenet": 4, "mlp": 4, "resnet50": 2, "pixels": 64, "calls": 1})
    print(machine())
    with checked_out(args.old) as src:
        sides = {"old": str(src), "new": str(ROOT / "src")}
        print(f"\n  {'old: ' + args.old:<42} {'old':>13} {'new':>13} {'old/new':>7}   (of {args.rounds} rounds)")
        for name, row in rows(args).items():
            if not args.only or name in args.only:
                print(line(row, rounds_of(row, sides, args.rounds)), flush=True)


if __name__ == "__main__":
    main()
