"""What workers do in the tests of the transport. Loaded in the workers by its name, so it stands apart from the
tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from oneflow.engine import collective
from oneflow.engine.collective import host_group
from oneflow.engine.core.errors import DataError
from oneflow.engine.runtime.launch.world import Context


class Echo:
    """Gives back what it gets, and fails in every way it is asked to."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.kept: list[Any] = []

    def echo(self, value: Any) -> Any:
        return value

    def echo_or_fail(self, value: Any) -> Any:
        """Fails without a value, when the other rank has had the time to answer."""
        if value is None:
            threading.Event().wait(0.3)
            self.fail_by_raising()
        return value

    def where(self) -> tuple[int, int, str, str]:
        return self.context.rank, os.getpid(), str(self.context.device), self.context.host

    def threads(self) -> int:
        return torch.get_num_threads()

    def keep(self, value: Any) -> list[Any]:
        """All that was ever given to it, as it looks now."""
        self.kept.append(value)
        return [kept.clone() for kept in self.kept]

    def double(self, value: torch.Tensor) -> float:
        """Changes its argument in place."""
        return float(value.mul_(2).sum())

    def is_contiguous(self, value: torch.Tensor, memory_format: torch.memory_format) -> bool:
        return value.is_contiguous(memory_format=memory_format)

    def all_reduce(self, value: float) -> float:
        total = torch.tensor([value])
        dist.all_reduce(total)
        return total.item()

    def buckets(self, count: int) -> list[collective.RunningBucket]:
        """Buckets over all ranks."""
        return [
            collective.RunningBucket(collective.Bucket(number, tuple(range(self.context.world.size))))
            for number in range(count)
        ]

    def _pretend(self, is_elsewhere: bool) -> None:
        """Has this rank believe that it is on a host of its own."""
        if is_elsewhere:
            host_group.host_number = lambda: self.context.rank  # type: ignore[assignment]

    def sums(self, steps: list[list[torch.Tensor]], is_elsewhere: bool) -> tuple[list[list[torch.Tensor]], bool]:
        """The sums over all ranks of what each step gives, by one bucket; and whether through shared memory."""
        self._pretend(is_elsewhere)
        channels_last = tuple(place for place, value in enumerate(steps[0]) if value.dim() == 4)
        ranks = tuple(range(self.context.world.size))
        bucket = collective.RunningBucket(collective.Bucket(0, ranks, channels_last=channels_last))
        summed = [[part.clone() for part in bucket.wait(bucket.start(values))] for values in steps]
        return summed, bucket.is_shared

    def gathers(
        self, steps: list[torch.Tensor], dim: int, sizes: tuple[int, ...], ranks: tuple[int, ...]
    ) -> list[torch.Tensor]:
        """What ``ranks`` gather in each step, the way they do in shared memory, by sockets, and at once."""
        ways = [
            collective.RunningGather(collective.Gather(0, dim, sizes, ranks, is_common)) for is_common in (True, False)
        ]
        found = []
        for value in steps:
            begun = [way.start(value) for way in ways]
            found += [way.wait(work).clone() for way, work in zip(ways, begun)] + [
                collective.gather_parts(value, dim, sizes, ranks)
            ]
        return found

    def updates_of_rows(
        self, weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor, elsewhere: bool
    ) -> tuple[torch.Tensor, int, torch.Tensor]:
        """A variable after an update of all ranks, how many of its rows this rank has updated, and the variable when
        each has added its number to its own."""
        self._pretend(elsewhere)
        ranks, weight, rows = (0, 1, 2), weight.clone(), []
        collective.hold_once(weight, ranks)
        one_copy = collective.RunningOneCopy(collective.OneCopy(ranks))

        def descend(params: list[torch.Tensor], grads: list[torch.Tensor], lr: float) -> None:
            rows.append(len(params[0]))
            params[0].sub_(lr * grads[0])

        begun = one_copy.read_last([weight])
        one_copy.update(begun, [weight], a, b, 0.1, function=descend, size=1)
        one_copy.wait([begun])
        together = weight.clone()
        dist.barrier()
        collective.hold_each(weight, ranks)
        dist.barrier()
        weight.add_(self.context.rank)
        dist.barrier()
        return together, sum(rows), weight

    def overlapping_sums(self, steps: int) -> list[float]:
        """Three sums per step, all begun before the first is waited for, without any rank being told that the others
        have ended theirs."""
        buckets = self.buckets(3)
        found = []
        for step in range(steps):
            values = [torch.full((50,), float(2 * step + number)) for number in range(3)]
            begun = [bucket.start([value]) for bucket, value in zip(buckets, values)]
            found += [float(bucket.wait(work)[0].mean()) for bucket, work in zip(buckets, begun)]
        return found

    def interface(self) -> str:
        return os.environ["GLOO_SOCKET_IFNAME"]

    def say(self, text: str) -> None:
        print(text, flush=True)
        os.write(1, f"{text} raw\n".encode())

    def fail(self, rank: int, how: str) -> Any:
        """The given rank fails; the others wait for it in a collective."""
        if rank == self.context.rank:
            getattr(self, f"fail_by_{how}")()
        return self.all_reduce(1.0)

    def fail_in_sum(self, rank: int, how: str) -> Any:
        """The given rank fails; the others wait for it in memory that they share."""
        (bucket,) = self.buckets(1)
        bucket.wait(bucket.start([torch.ones(3)]))
        if rank == self.context.rank:
            getattr(self, f"fail_by_{how}")()
        return bucket.wait(bucket.start([torch.ones(3)]))

    def fail_by_raising(self) -> NoReturn:
        raise ValueError("three is not four")

    def fail_by_package_error(self) -> NoReturn:
        raise DataError("part-0: record 3 is broken")

    def fail_by_memory(self) -> None:
        torch.empty(1 << 60)

    def fail_by_kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fail_by_stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def fail_by_exit(self) -> None:
        os._exit(7)

    def fail_by_system_exit(self) -> NoReturn:
        sys.exit(3)

    def fail_by_hanging(self) -> None:
        threading.Event().wait()

    def hang_if(self, rank: int) -> None:
        if rank == self.context.rank:
            self.fail_by_hanging()

    def hang_in_collective(self, folder: str) -> None:
        """All wait for rank 1, which never comes. Each leaves a file to say that it has begun."""
        Path(folder, str(self.context.rank)).touch()
        if self.context.rank != 1:
            self.all_reduce(1.0)
        self.fail_by_hanging()

    def fail_by_unpicklable(self) -> NoReturn:
        raise _Stubborn

    def lambda_(self) -> Any:
        return lambda: None

    def unreadable(self) -> Any:
        """Something that only this process can read."""
        return _OnlyHere()


class _Stubborn(Exception):
    def __str__(self) -> str:
        return "cannot be sent as an object"

    def __reduce__(self) -> NoReturn:
        raise TypeError("never")


def _rebuild(pid: int) -> int:
    if pid != os.getpid():
        raise LookupError("made elsewhere")
    return pid


class _OnlyHere:
    def __reduce__(self) -> Any:
        return _rebuild, (os.getpid(),)


class Broken:
    def __init__(self, context: Context) -> None:
        raise LookupError(f"no handler for rank {context.rank}")
