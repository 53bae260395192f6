"""Several machines: every process finds its place, the first drives, the others serve, and all end together."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from networks import Network, needs_namespaces
from processes import are_gone, until

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.runtime.channel.channel import Kind
from oneflow.engine.runtime.driver import cluster as cluster_module
from oneflow.engine.runtime.driver import crew
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch import agent
from oneflow.engine.runtime.launch.addresses import interface_of, local_addresses
from oneflow.engine.runtime.launch.agent import find_here, serve
from oneflow.engine.runtime.launch.world import World

HANDLER = "cluster_handlers:Echo"
MACHINES = ("127.0.0.1", "127.0.0.2")  # two addresses of this machine stand for two machines
HOST = socket.gethostname()


def test_this_machine_is_found_by_its_address():
    assert find_here(["10.213.99.1", "127.0.0.1", "10.213.99.2"]) == 1


def test_this_machine_is_found_by_its_name():
    assert find_here(["10.213.99.1", "localhost"]) == 1


def test_the_environment_decides_which_machine_this_is(monkeypatch):
    monkeypatch.setenv("ONEFLOW_MACHINE_ID", "1")
    assert find_here(["127.0.0.1", "127.0.0.2"]) == 1


@pytest.mark.parametrize("text", ["2", "-1", "first", ""])
def test_a_machine_id_must_be_a_place_in_the_list(monkeypatch, text):
    monkeypatch.setenv("ONEFLOW_MACHINE_ID", text)
    with pytest.raises(ArgumentError, match=f"ONEFLOW_MACHINE_ID is {text!r}; 2 machines are counted from 0 to 1"):
        find_here(MACHINES)


def test_a_machine_that_is_not_in_the_list_is_an_error():
    with pytest.raises(
        ArgumentError, match="none of them is this machine, whose addresses are .*127.0.0.1.*ONEFLOW_MACHINE_ID"
    ):
        find_here(["10.213.99.1", "no-such-host.invalid"])


def test_a_machine_that_is_in_the_list_twice_is_an_error():
    with pytest.raises(ArgumentError, match=r"entries \[0, 1\] are all this machine"):
        find_here(MACHINES)


def test_the_interface_of_an_address_is_known():
    assert interface_of("127.0.0.1") == interface_of("127.3.2.1") == "lo"
    assert interface_of("10.213.99.1") is None
    assert local_addresses()["127.0.0.1"] == "lo"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free control port; the machines know the secret."""
    monkeypatch.setenv("ONEFLOW_SECRET", "the secret of this test")
    monkeypatch.setenv("ONEFLOW_CONNECT_TIMEOUT", "60")
    return free_port()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def world(here: int, port: int, devices: int = 2) -> World:
    return World("cpu", MACHINES, devices, here, port)


class Serving:
    """The second machine, in a thread, and how its serving ended."""

    def __init__(self, seat: World) -> None:
        self.error: BaseException | None = None
        self._seat = seat
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            serve(self._seat, HANDLER)
        except BaseException as error:
            self.error = error

    def end(self) -> str:
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        return str(self.error or "")


@contextlib.contextmanager
def two_machines(port: int) -> Iterator[tuple[Cluster, Serving]]:
    other = Serving(world(1, port))
    try:
        cluster = Cluster(world(0, port), HANDLER)
        try:
            yield cluster, other
        finally:
            cluster.close()
    finally:
        other.end()


def test_the_other_machine_serves_until_the_driver_ends(port):
    with two_machines(port) as (cluster, other):
        assert cluster.call("all_reduce", [(float(rank),) for rank in range(4)], what="adding") == [6.0] * 4
        cluster.close()
        assert other.end() == ""
        assert until(lambda: are_gone(cluster.pids))


def test_a_worker_that_dies_on_another_machine_is_named(port):
    with two_machines(port) as (cluster, other):
        os.kill(cluster.pids[3], signal.SIGKILL)
        with pytest.raises(WorkerError, match=f"^step 1: rank 3 on {HOST} was killed by SIGKILL"):
            cluster.broadcast("fail_by_hanging", what="step 1")
        assert f"machine 1 ({HOST}): the driver ended the run: WorkerError: step 1: rank 3" in other.end()
        assert until(lambda: are_gone(cluster.pids))


def test_a_worker_that_is_stopped_on_another_machine_is_named(port):
    with two_machines(port) as (cluster, other):
        with pytest.raises(WorkerError, match=f"^step 1: rank 2 on {HOST} was stopped by SIGSTOP and did not go on"):
            cluster.broadcast("fail", 2, "stop", what="step 1")
        other.end()
        assert until(lambda: are_gone(cluster.pids))


def test_a_machine_that_gives_no_sign_of_life_is_named(port, monkeypatch):
    monkeypatch.setattr(crew, "_SILENCE_LIMIT", 1.0)
    with two_machines(port) as (cluster, other):
        monkeypatch.setattr(
            agent._Agent, "_is_end", lambda self, message: message.kind is Kind.END
        )  # it hears pings and is silent
        with pytest.raises(
            WorkerError,
            match=rf"^step 1: machine 1 \({HOST}\) gave no sign of life for \d s; it is stopped or it hangs",
        ):
            cluster.broadcast("fail_by_hanging", what="step 1")
        other.end()
        assert until(lambda: are_gone(cluster.pids))


def test_an_interrupted_machine_is_named(port, monkeypatch):
    def interrupt(self, message):
        raise KeyboardInterrupt

    with two_machines(port) as (cluster, other):
        monkeypatch.setattr(agent._Agent, "_is_end", interrupt)
        with pytest.raises(WorkerError, match=rf"^step 1: machine 1 \({HOST}\) has left: KeyboardInterrupt"):
            cluster.broadcast("fail_by_hanging", what="step 1")
        other.end()
        assert isinstance(other.error, KeyboardInterrupt)


def test_machines_that_were_configured_differently_do_not_start(port):
    other = Serving(world(1, port, devices=3))
    with pytest.raises(
        WorkerError,
        match=rf"starting the workers: machine 1 \({HOST}\) cannot take part: the number of devices a machine is 3 there and 2 on the driver",
    ):
        Cluster(world(0, port), HANDLER)
    assert "the driver refuses machine 1" in other.end() and "the number of devices a machine is 3 there" in other.end()


def test_machines_that_never_come_are_named(port, monkeypatch, capfd):
    monkeypatch.setenv("ONEFLOW_CONNECT_TIMEOUT", "0.5")
    monkeypatch.setattr(cluster_module, "_PATIENCE", 0.0)
    with pytest.raises(
        WorkerError, match=r"starting the workers: machine 1 \(127.0.0.2\), .*rank 2, rank 3 did not come within 0.5 s"
    ):
        Cluster(world(0, port), HANDLER)
    assert capfd.readouterr().err.count("oneflow: the driver waits for machine 1 (127.0.0.2)") == 1


def test_several_machines_need_a_secret(monkeypatch):
    monkeypatch.delenv("ONEFLOW_SECRET", raising=False)
    for start in (lambda: Cluster(world(0, 1234), HANDLER), lambda: serve(world(1, 1234), HANDLER)):
        with pytest.raises(ArgumentError, match="several machines need a shared secret.*ONEFLOW_SECRET"):
            start()


def test_several_machines_need_a_control_port(port):
    for start in (lambda: Cluster(world(0, 0), HANDLER), lambda: serve(world(1, 0), HANDLER)):
        with pytest.raises(ArgumentError, match="several machines need a control port"):
            start()


PROGRAM = """
import sys
import torch
from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.runtime.channel.channel import Kind
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.agent import find_here, serve
from oneflow.engine.runtime.launch.world import World

folder, port, *machines = sys.argv[1:]
world = World("cpu", tuple(machines), 1, find_here(machines), int(port))
try:
    if world.here:
        serve(world, "cluster_handlers:Echo")
        print("served", flush=True)
        serve(world, "cluster_handlers:Echo")
    cluster = Cluster(world, "cluster_handlers:Echo")
    big = torch.arange(1 << 20)
    assert all(torch.equal(big, value) for value in cluster.broadcast("echo", big, what="asking"))
    print(cluster.call("all_reduce", [(float(rank),) for rank in range(world.size)], what="adding"), flush=True)
    print(cluster.broadcast("interface", what="asking"), flush=True)
    cluster.close()
    cluster = Cluster(world, "cluster_handlers:Echo")
    print(*cluster.pids, flush=True)
    cluster.broadcast("hang_in_collective", folder, what="step 1")
except OneFlowError as error:
    sys.exit(str(error))
"""
PATIENCE = 90  # seconds for programs that load torch, on a machine that has other work


def start(network: Network, machine: int, folder: Path) -> subprocess.Popen:
    variables = {"ONEFLOW_SECRET": "a secret", "ONEFLOW_CONNECT_TIMEOUT": str(PATIENCE)}
    return network.run(machine, PROGRAM, str(folder), "2017", *network.addresses, **variables)


def outcome(program: subprocess.Popen) -> tuple[int, str, str]:
    output, errors = program.communicate(timeout=PATIENCE)
    return program.returncode, output, errors


needs_network = needs_namespaces()


@needs_network
def test_three_machines_run_and_a_dead_worker_ends_them_all(tmp_path):
    with Network(3) as network:
        driver, *others = [start(network, machine, tmp_path) for machine in range(3)]
        assert driver.stdout.readline() == "[3.0, 3.0, 3.0]\n"
        assert driver.stdout.readline() == "['wire', 'wire', 'wire']\n"
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert until(lambda: len(os.listdir(tmp_path)) == 3)
        os.kill(pids[2], signal.SIGKILL)
        code, _, message = outcome(driver)
        assert code == 1 and f"step 1: rank 2 on {HOST} was killed by SIGKILL" in message
        for other in others:
            code, output, message = outcome(other)
            assert output == "served\n"  # when the first cluster was closed
            assert code == 1 and "the driver ended the run: WorkerError: step 1: rank 2" in message
        assert until(lambda: not any(network.processes(machine) for machine in range(3)))


@needs_network
def test_a_cut_link_ends_both_machines(tmp_path):
    with Network(2) as network:
        driver, other = start(network, 0, tmp_path), start(network, 1, tmp_path)
        assert until(lambda: len(os.listdir(tmp_path)) == 2, PATIENCE)
        network.cut(1)
        assert until(lambda: driver.poll() is not None and not network.processes(0), PATIENCE)
        assert until(lambda: other.poll() is not None and not network.processes(1), PATIENCE)
        code, _, message = outcome(driver)
        assert code == 1 and re.search(
            rf"step 1: (rank 1 on {HOST}|machine 1 \({HOST}\)) is gone: the connection was lost", message
        )
        code, _, message = outcome(other)
        assert code == 1 and f"machine 1 ({HOST}) lost the driver" in message


def test_a_killed_driver_ends_the_other_machine(port, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ONEFLOW_MACHINE_ID": "0"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(port), *MACHINES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as driver:
        try:
            other = Serving(world(1, port, devices=1))
            lines = [driver.stdout.readline() for _ in range(2)]
            assert other.end() == ""
            other = Serving(world(1, port, devices=1))
            lines.append(driver.stdout.readline())
            assert until(lambda: len(os.listdir(tmp_path)) == 2)
        finally:
            driver.kill()
    assert f"machine 1 ({HOST}) lost the driver" in other.end()
    assert until(lambda: are_gone([int(word) for word in lines[2].split()]))


def test_strangers_at_the_control_port_change_nothing(port):
    other = Serving(world(1, port))
    strangers = [
        threading.Thread(target=_be_strange, args=(port, said))
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(5000))
    ]
    for stranger in strangers:
        stranger.start()
    cluster = Cluster(world(0, port), HANDLER)
    try:
        assert torch.equal(cluster.broadcast("echo", torch.ones(3), what="asking")[3], torch.ones(3))
    finally:
        cluster.close()
        other.end()
        for stranger in strangers:
            stranger.join()


def _be_strange(port: int, said: bytes) -> None:
    """Connects as soon as the driver listens, and stays until it is shown out."""
    connection: list[socket.socket] = []

    def connect() -> bool:
        with contextlib.suppress(OSError):
            connection.append(socket.create_connection(("127.0.0.1", port), timeout=20))
        return bool(connection)

    if until(connect):
        with connection[0] as stranger, contextlib.suppress(OSError):
            stranger.sendall(said)
            while stranger.recv(1000):
                pass
