"""Ranks that meet without any driver: when one ends or is stopped, the others end with an error that names it, and
soon."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from processes import are_gone, until
from warm_python import WARM

from oneflow.engine.collective import peers

PROGRAM = Path(__file__).with_name("lone_rank.py")
HOST = re.escape(socket.gethostname())
SILENCE = 3.0  # the time-out of the process group where somebody is stopped
PATIENCE = 60.0  # and where somebody ends: longer than any of these tests may take
SEEN = 10.0  # seconds within which an end must have been seen, on a busy machine
WAYS = ["shared", "sockets", "gathers", "one_copy", "host_group", "memory", "all_reduce", "pairs", "exchange"]


def outcomes(
    way: str, how: signal.Signals, size: int, victim: int, seconds: float
) -> dict[int, tuple[str, str, float]]:
    """What each of the other ranks ended with: class, text, and after how many seconds. Nothing is left of any of them.

    Ranks are forked from a process that has torch loaded; where one ends by a signal, so does what stands for it here.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = {
        rank: subprocess.Popen(
            [*WARM.command(), str(PROGRAM), *map(str, (store.port, size, rank, seconds, victim, int(how), way))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            text=True,
        )
        for rank in range(size)
    }
    found = {}
    try:
        for rank, process in ranks.items():
            if rank == victim or (way == "pairs" and rank != (victim + 1) % size):
                continue
            out, err = process.communicate(timeout=60)
            assert process.returncode == 3, (out, err)
            kind, text, took = json.loads(out)
            found[rank] = kind, text, took
    finally:
        for process in ranks.values():
            process.kill()
            process.communicate()
    pids = [int(store.get(f"pid {rank}")) for rank in ranks]
    assert until(lambda: are_gone(pids))
    return found


def waited(rank: int, others: str) -> str:
    return rf"rank {rank} on {HOST} waited in vain for .*{others}"


@pytest.mark.parametrize(
    "way, victim", [*((way, 1) for way in [*WAYS, "shared_late"]), ("shared", 0), ("sockets", 0), ("exchange", 0)]
)
def test_a_rank_that_is_killed_is_named_at_once(way: str, victim: int) -> None:
    found = outcomes(way, signal.SIGKILL, 2, victim, PATIENCE)
    for rank, (kind, text, took) in found.items():
        assert kind == "PeerError"
        assert re.search(waited(rank, rf"rank {victim} on {HOST}: rank {victim} on {HOST} has ended"), text), text
        assert took < SEEN
    assert list(found) == [1 - victim]


@pytest.mark.parametrize(
    "way", ["shared", "sockets", "gathers", "host_group", "exchange"]
)  # the others wait as these do
def test_a_rank_that_is_stopped_is_named_when_the_time_is_over(way: str) -> None:
    victim = 0 if way == "memory" else 1
    ((rank, (kind, text, took)),) = outcomes(way, signal.SIGSTOP, 2, victim, SILENCE).items()
    assert kind == "PeerError"
    assert re.search(waited(rank, rf"rank {victim} on {HOST}: .*rank {victim} on {HOST} is stopped"), text), text
    assert SILENCE * 0.9 < took < SILENCE + SEEN


@pytest.mark.parametrize("way", ["shared", "sockets"])
def test_of_three_all_that_are_left_see_who_is_gone(way: str) -> None:
    found = outcomes(way, signal.SIGKILL, 3, 1, PATIENCE)
    assert set(found) == {0, 2}
    for rank, (kind, text, took) in found.items():
        assert kind == "PeerError" and took < SEEN
        assert re.search(waited(rank, rf"rank 1 on {HOST}.*: .*rank 1 on {HOST} has ended"), text), text


def test_a_rank_that_never_tells_where_it_runs_is_not_waited_for_without_end() -> None:
    ((rank, (kind, text, took)),) = outcomes("introduction", signal.SIGKILL, 2, 1, SILENCE).items()
    assert (rank, kind) == (0, "PeerError") and took < SILENCE + SEEN
    assert re.search(waited(0, "rank 1: "), text), text


def test_an_error_that_is_no_lost_rank_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="^a shape that does not fit$") as caught:
        with peers.meeting((0, 1)):
            raise RuntimeError("a shape that does not fit")
    assert caught.type is RuntimeError
