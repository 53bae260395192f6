"""Measuring two ways of doing the same thing in one run, in turn, so that the machine's moods meet both."""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call, the median over rounds, and its spread."""

    name: str
    median: float
    low: float
    high: float


T = TypeVar("T")

_REST = 0.1
"""Seconds before a turn. Threads of the contender before it spin on after its last call, ONNX Runtime's for 40 ms and
OpenMP's for 8, on a core that the next one needs."""


def parse(parser: argparse.ArgumentParser, small: dict[str, int]) -> argparse.Namespace:
    """The flags of a benchmark; ``--small`` makes ``small`` their defaults."""
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes and one round: every path runs, and the times mean nothing"
    )
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small)
    return parser.parse_args()


def in_turn(contenders: dict[str, T], turn: int) -> list[tuple[str, T]]:
    """The contenders in the order of a round: whoever was last in one is first in the next."""
    return list(contenders.items())[:: -1 if turn % 2 else 1]


def alternate(contenders: dict[str, Callable[[], object]], calls: int, rounds: int) -> list[Timing]:
    """Times every contender ``rounds`` times, ``calls`` calls each, taking turns, every second round in reverse; a
    first round is not counted."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, call in in_turn(contenders, turn):
            time.sleep(_REST)
            start = time.perf_counter()
            for _ in range(calls):
                call()
            if turn:
                samples[name].append((time.perf_counter() - start) / calls)
    return [Timing(name, statistics.median(s), min(s), max(s)) for name, s in samples.items()]


def report(title: str, timings: list[Timing], ours: str) -> float:
    """Prints a table and the ratio of the best rival's time to ours: above 1, ours is faster."""
    mine = next(t for t in timings if t.name == ours)
    best = min((t for t in timings if t.name != ours), key=lambda t: t.median)
    print(f"\n{title}")
    for t in timings:
        print(f"  {t.name:<34} {1e3 * t.median:9.3f} ms   ({1e3 * t.low:.3f} to {1e3 * t.high:.3f})")
    print(f"  ratio: {best.median / mine.median:.2f} of {best.name}")
    return best.median / mine.median


def machine() -> str:
    """What the numbers were taken on."""
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, Python {platform.python_version()}"
