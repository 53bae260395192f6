"""A worker: joins the driver and the other workers, then does what it is called to do, one call at a time. A thread
of it sends heartbeats.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.runtime.channel.channel import Channel, ChannelError, Frame, Kind, make_frame
from oneflow.engine.runtime.driver.failures import report
from oneflow.engine.runtime.launch.addresses import bind_collectives
from oneflow.engine.runtime.launch.rendezvous import Address, Hello, call_driver, identity
from oneflow.engine.runtime.launch.world import Context, World

PULSE_SECONDS = 0.5
_LOST = 1
_AFTER_THE_DRIVER = 5.0  # seconds by which collectives are more patient than the driver, whose error tells more


@dataclass(frozen=True)
class Seat:
    """All that a worker must know to take its place. Its ``address`` finds the driver; it is asked again at each
    attempt."""

    rank: int
    world: World
    handler: str
    threads: int
    address: Callable[[], Address]
    connect_seconds: float

    @property
    def hello(self) -> Hello:
        machine = self.world.machine_of(self.rank)
        return Hello(self.rank, machine, os.getpid(), socket.gethostname(), identity(), self.world.layout, self.handler)


def run_worker(seat: Seat, farewell: str = "") -> str | None:
    """Serves until the driver ends the run; None then. Else what became of the driver: it was lost, or ended the run
    for a failure.

    ``farewell`` is said on stderr if it is lost during a call, which ends the process.
    """
    torch.set_num_threads(seat.threads)
    channel = call_driver(seat.address, seat.hello, seat.connect_seconds)
    try:
        with _Watch(channel, farewell) as watch:
            return _Worker(seat, channel, watch).serve()
    finally:
        channel.close()


class _RunEnded(Exception):
    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


class _Worker:
    def __init__(self, seat: Seat, channel: Channel, watch: _Watch) -> None:
        self._seat = seat
        self._channel = channel
        self._watch = watch
        self._store: dist.Store | None = None
        self._handler: Any = None
        self._own: dict[str, Callable[..., Any]] = {".open_store": self._open_store, ".join": self._join}

    def serve(self) -> str | None:
        try:
            while True:
                self._watch.send(self._answer())
        except ChannelError:
            return " lost the driver"
        except _RunEnded as end:
            return None if end.reason is None else f": the driver ended the run: {end.reason}"

    def _answer(self) -> Frame:
        """Waits for a call and does it."""
        try:
            kind, tree = self._channel.receive()
            if kind is Kind.END:
                raise _RunEnded(tree)
            self._watch.is_busy = True
            method, arguments = tree
            del tree
            result = self._method(method)(*arguments)
            del arguments  # before the answer is made, so that shared memory goes back with it
            return make_frame(Kind.REPLY, (result,), self._channel.pool)
        except (ChannelError, KeyboardInterrupt, _RunEnded):
            raise
        except BaseException as error:  # whatever the handler raises is the driver's to know
            return make_frame(Kind.ERROR, report(error))

    def _method(self, name: str) -> Callable[..., Any]:
        return self._own.get(name) or getattr(self._handler, name)

    def _open_store(self) -> tuple[str, int]:
        """Serves the store through which the workers find each other's collectives, on the address that the driver sees
        only."""
        listener = socket.create_server((self._own_address, 0), family=self._channel.socket.family)
        host, port = listener.getsockname()[:2]
        self._store = dist.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return host, port

    def _join(self, host: str, port: int, seconds: float) -> None:
        """Joins the collectives of all ranks, and makes the handler."""
        seat, timeout = self._seat, timedelta(seconds=seconds + _AFTER_THE_DRIVER)
        bind_collectives(self._own_address)
        if self._store is None:
            self._store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)
        device = self._device()
        backend = (
            "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        )  # never run where the tests run: no GPU there
        dist.init_process_group(backend, store=self._store, rank=seat.rank, world_size=seat.world.size, timeout=timeout)
        self._handler = _load(seat.handler)(Context(seat.rank, seat.world, device, socket.gethostname()))

    @property
    def _own_address(self) -> str:
        """The address by which this machine reaches the driver, so others can reach it there too."""
        return self._channel.socket.getsockname()[0]

    def _device(self) -> torch.device:
        if self._seat.world.device_type == "cpu":
            return torch.device("cpu")
        # never run where the tests run: no GPU there. A launcher may show a process its own GPU only.
        device = torch.device("cuda", self._seat.world.device_of(self._seat.rank) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device


class _Watch(contextlib.AbstractContextManager["_Watch"]):
    """A thread beside the worker's: shows that it is alive while it is busy, and ends the process when the driver is
    gone.

    Nobody reads the channel during a call, and a collective that waits for ranks that no longer exist cannot be told to
    stop.
    """

    def __init__(self, channel: Channel, farewell: str) -> None:
        self.is_busy = False
        self._channel = channel
        self._farewell = farewell
        self._sending = threading.Lock()
        self._is_over = False
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="oneflow-watch", daemon=True)
        self._thread.start()

    def send(self, frame: Frame) -> None:
        """Sends an answer; the worker is idle from then on, for the driver may end the run as soon as it has it."""
        with self._sending:
            self.is_busy = False
            self._channel.send(frame)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._channel.socket, select.POLLRDHUP)
        poll.register(self._ended, 0)
        while not self._is_over:
            if not poll.poll(PULSE_SECONDS * 1000):
                self._pulse()
            elif self.is_busy and not self._is_over:
                self._leave()
            else:  # the worker itself is about to read the end of the channel
                time.sleep(PULSE_SECONDS / 10)

    def _pulse(self) -> None:
        if self.is_busy and self._sending.acquire(blocking=False):  # else an answer is on its way, which is as good
            with contextlib.suppress(ChannelError):  # the next look at the channel sees it
                if self.is_busy:
                    self._channel.queue(make_frame(Kind.PULSE))
            self._sending.release()

    def _leave(self) -> None:
        if self._farewell:
            print(f"oneflow: {self._farewell}", file=sys.stderr, flush=True)
        os._exit(_LOST)

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        os.close(self._end)
        self._thread.join()
        os.close(self._ended)


def _load(handler: str) -> Callable[[Context], Any]:
    module, _, name = handler.partition(":")
    if not name:
        raise ArgumentError(f"handler {handler!r}; name it as 'package.module:Class'")
    return getattr(importlib.import_module(module), name)
