"""One of several processes that meet without any driver: what each does is told by its arguments. It prints the error
it ends with.

``python lone_rank.py PORT SIZE RANK SECONDS VICTIM SIGNAL WAY``: in the midst of meeting the others by WAY, VICTIM
sends itself SIGNAL.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from oneflow.engine import collective
from oneflow.engine.collective import peers
from oneflow.engine.collective.host_group import HostGroup
from oneflow.engine.core.errors import OneFlowError

STEPS = 3  # that all ranks come to


class Lone:
    """A rank, and the ways it meets the others. Each way calls ``fall`` where the victim falls."""

    def __init__(self, size: int, rank: int, victim: int, how: int) -> None:
        self.everybody = tuple(range(size))
        self.rank, self.victim, self.how = rank, victim, how

    def fall(self) -> None:
        if self.rank == self.victim:
            os.kill(os.getpid(), self.how)

    def sums(self, is_common: bool, late: bool = False) -> None:
        bucket = collective.RunningBucket(collective.Bucket(0, self.everybody, is_common))
        for _ in range(STEPS):
            (summed,) = bucket.wait(bucket.start([torch.ones(3)]))
            assert summed.tolist() == [float(len(self.everybody))] * 3
        assert bucket.is_shared is is_common
        self.fall()
        if late:
            life = os.pidfd_open(peers._known(dist.group.WORLD)[self.victim].pid)
            select.select([life], [], [])
        bucket.wait(bucket.start([torch.ones(3)]))

    def shared(self) -> None:
        self.sums(True)

    def shared_late(self) -> None:
        """The others come when the victim has ended."""
        self.sums(True, late=True)

    def sockets(self) -> None:
        self.sums(False)

    def gathers(self) -> None:
        gather = collective.RunningGather(collective.Gather(0, 0, (1,) * len(self.everybody), self.everybody, True))
        gather.wait(gather.start(torch.ones(1, 2)))
        self.fall()
        gather.wait(gather.start(torch.ones(1, 2)))

    def one_copy(self) -> None:
        """The victim has said that it reads a variable no more, and falls before it has updated its rows."""
        weight = torch.ones(4, 2)
        collective.hold_once(weight, self.everybody)
        one_copy = collective.RunningOneCopy(collective.OneCopy(self.everybody))
        begun = one_copy.read_last([weight])
        assert begun is not None
        self.fall()
        one_copy.wait([begun])

    def host_group(self) -> None:
        """The victim falls before the ranks have found each other on their host."""
        self.fall()
        collective.RunningBucket(collective.Bucket(0, self.everybody)).start([torch.ones(3)])

    def memory(self) -> None:
        """The victim has told where the memory is, and falls before the others have it."""
        if self.rank == self.victim:
            HostGroup._mapped = lambda *_: self.fall()  # type: ignore[assignment, method-assign, return-value]
        collective.RunningBucket(collective.Bucket(0, self.everybody)).start([torch.ones(3)])

    def all_reduce(self) -> None:
        collective.all_reduce(torch.ones(2), "sum", self.everybody)
        self.fall()
        collective.all_reduce(torch.ones(2), "sum", self.everybody)

    def pairs(self) -> None:
        """A group of two of the ranks, the victim one of them."""
        other = (self.victim + 1) % len(self.everybody)
        self.fall()
        if self.rank in (other, self.victim):
            collective.all_reduce(torch.ones(2), "sum", tuple(sorted((other, self.victim))))

    def exchange(self) -> None:
        """Each rank but the victim waits for a block of it."""
        self.fall()
        piece = collective.Piece(self.victim, (0,), (2,))
        collective.exchange(None, (2,), torch.float32, (), (piece,), 1, "cpu")

    def introduction(self) -> None:
        raise AssertionError("the victim falls before the ranks have told each other where they run")


def main(port: str, size: int, rank: int, seconds: float, victim: int, how: int, way: str) -> None:
    store = dist.TCPStore(
        "127.0.0.1", int(port), is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds)
    )
    store.set(f"pid {rank}", str(os.getpid()))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds))
    lone = Lone(size, rank, victim, how)
    began = time.monotonic()
    try:
        if way == "introduction":
            lone.fall()
        groups = [tuple(sorted((victim, (victim + 1) % size)))] if way == "pairs" else []
        collective.make_groups([*groups, lone.everybody])
        began = time.monotonic()
        getattr(lone, way)()
    except OneFlowError as error:
        print(json.dumps([type(error).__name__, str(error), time.monotonic() - began]), flush=True)
        os._exit(3)  # torch's own end would wait for the others
    print("nothing happened", flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(given[0], int(given[1]), int(given[2]), float(given[3]), int(given[4]), int(given[5]), given[6])
