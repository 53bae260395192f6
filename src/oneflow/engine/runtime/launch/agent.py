"""Several machines: the same program runs on each. The first of the list drives; on the others it serves until the
driver ends.

Each machine's process starts that machine's workers and watches over them. The workers connect to the driver
themselves; beside them the process, as the machine's agent, tells the driver what happens to them and answers its
pings.
"""

from __future__ import annotations

import functools
import os
import selectors
import socket
from collections.abc import Sequence

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.runtime.channel.channel import Channel, ChannelError, Kind, Message, make_frame
from oneflow.engine.runtime.driver.worker import Seat
from oneflow.engine.runtime.launch.addresses import interface_of, local_addresses, resolve
from oneflow.engine.runtime.launch.launch import LAUNCHER, WorkerGroup
from oneflow.engine.runtime.launch.limits import connect_seconds, given_port, given_secret, share_of_threads
from oneflow.engine.runtime.launch.rendezvous import Address, Hello, call_driver, identity
from oneflow.engine.runtime.launch.world import World

_MACHINE_ID = "ONEFLOW_MACHINE_ID"
_FAREWELL_SECONDS = 1.0


def find_here(machines: Sequence[str]) -> int:
    """This machine's place in the list: by ``ONEFLOW_MACHINE_ID``, else the one entry that is an address of this
    machine."""
    given = os.environ.get(_MACHINE_ID)
    if given is not None:
        return _check_id(given, machines)
    matches = [place for place, name in enumerate(machines) if any(interface_of(address) for address in resolve(name))]
    if len(matches) == 1:
        return matches[0]
    found = f"entries {matches} are all this machine" if matches else "none of them is this machine"
    raise ArgumentError(
        f"machines {list(machines)}: {found}, whose addresses are {', '.join(sorted(local_addresses()))}. "
        f"List every machine by an address of its own, or set {_MACHINE_ID} to this machine's place in the list, "
        f"counted from 0"
    )


def _check_id(given: str, machines: Sequence[str]) -> int:
    if not (given.isascii() and given.isdigit() and int(given) < len(machines)):
        raise ArgumentError(
            f"environment variable {_MACHINE_ID} is {given!r}; {len(machines)} machines are counted from 0 to "
            f"{len(machines) - 1}"
        )
    return int(given)


def serve(world: World, handler: str, *, threads: int | None = None) -> None:
    """Serves as machine ``world.here``, not the first: returns when the driver has ended the run; raises if it failed
    or was lost."""
    address = functools.partial(Address, world.machines[0], given_port(world.ctrl_port), given_secret())
    hello = Hello(None, world.here, os.getpid(), socket.gethostname(), identity(), world.layout, handler)
    share = share_of_threads(threads, world.devices_per_machine)
    LAUNCHER.prepare()  # loads while the driver is waited for
    channel = call_driver(address, hello, connect_seconds())
    group = LAUNCHER.new_group()
    try:
        for rank in world.ranks_of(world.here):
            group.start(Seat(rank, world, handler, share, address, connect_seconds()))
        _Agent(channel, group, f"machine {world.here} ({hello.host})").run()
    finally:
        group.close()
        channel.close()


class _Agent:
    def __init__(self, channel: Channel, group: WorkerGroup, name: str) -> None:
        self._channel = channel
        self._group = group
        self._name = name

    def run(self) -> None:
        try:
            while not self._step():
                pass
        except ChannelError as error:
            raise WorkerError(f"{self._name} lost the driver: {error}") from error
        except (KeyboardInterrupt, SystemExit) as error:
            self._say_goodbye(type(error).__name__)
            raise

    def _step(self) -> bool:
        """Passes on what the driver and the workers have to say; True when the run is over."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._group, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select()}
        # The driver first: when it has ended the run, so do the workers, and that is no news.
        if self._channel in ready and any([self._is_end(message) for message in self._channel.read()]):
            return True
        if self._group in ready:
            for event in self._group.events():
                self._channel.send(make_frame(Kind.EVENT, tuple(event)), _FAREWELL_SECONDS)
        return False

    def _is_end(self, message: Message) -> bool:
        if message.kind is Kind.PING:
            self._channel.queue(make_frame(Kind.PULSE))
        if message.kind is Kind.END and message.tree is not None:
            raise WorkerError(f"{self._name}: the driver ended the run: {message.tree}")
        return message.kind is Kind.END

    def _say_goodbye(self, reason: str) -> None:
        try:
            self._channel.send(make_frame(Kind.END, reason), _FAREWELL_SECONDS)
        except ChannelError:
            pass
