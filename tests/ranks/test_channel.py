"""The channel: nobody gets in without the secret, nobody outside can harm the driver, and frames arrive as they were
sent."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from processes import open_segments, until

import oneflow
from oneflow.engine.core.errors import WorkerError
from oneflow.engine.core.shared_memory import SegmentPool
from oneflow.engine.runtime.channel import channel as channel_module
from oneflow.engine.runtime.channel import handshake as handshake_module
from oneflow.engine.runtime.channel.channel import SHARED_FROM, Channel, ChannelError, Kind, make_frame
from oneflow.engine.runtime.channel.handshake import (
    HandshakeError,
    SecretError,
    VersionError,
    meet_driver,
    receive_peer,
)
from oneflow.engine.runtime.launch import rendezvous
from oneflow.engine.runtime.launch.rendezvous import Address, Hello, Reception, call_driver, identity
from oneflow.engine.runtime.launch.world import LOOPBACK

SECRET = b"the secret of this test"
HELLO = Hello(1, 0, os.getpid(), "somewhere", identity(), ("cpu", (LOOPBACK,), 2), "module:Class")


def shake_hands(driver, peer) -> None:
    """Leads both sides of a handshake, byte by byte in memory, until one has nothing to say."""
    to_peer, _ = next(driver)
    next(peer)
    to_driver, _ = peer.send(to_peer)
    try:
        to_peer, _ = driver.send(to_driver)
    finally:
        with contextlib.suppress(StopIteration):
            peer.send(to_peer)
    with contextlib.suppress(StopIteration):
        next(driver)


def test_two_who_know_the_secret_come_together():
    shake_hands(receive_peer(SECRET), meet_driver(SECRET))


def test_a_peer_with_another_secret_is_told_so():
    with pytest.raises(
        SecretError, match="the driver has another secret; set the same ONEFLOW_SECRET on every machine"
    ):
        shake_hands(receive_peer(SECRET), meet_driver(b"another"))


def test_the_driver_does_not_take_a_peer_with_another_secret():
    driver, peer = receive_peer(SECRET), meet_driver(b"another")
    greeting, _ = next(driver)
    next(peer)
    verdict, _ = driver.send(peer.send(greeting)[0])
    assert not any(verdict[1:])  # no proof that could be used elsewhere
    with pytest.raises(SecretError, match="it does not have this run's secret"):
        next(driver)


def test_a_driver_that_only_pretends_is_found_out():
    """It lets everybody in, without knowing the secret."""
    peer = meet_driver(SECRET)
    next(peer)
    peer.send(next(receive_peer(b"another"))[0])
    with pytest.raises(SecretError):
        peer.send(b"A" + bytes(32))


def test_a_proof_cannot_be_sent_back_to_its_maker():
    first, second = receive_peer(SECRET), receive_peer(SECRET)
    greeting, size = next(first)
    next(second)
    verdict, _ = second.send(greeting.ljust(size, b"\0"))
    with pytest.raises(SecretError):
        first.send(greeting + verdict[1:])
        next(first)


@pytest.mark.parametrize("protocol", [False, True], ids=["version", "protocol"])
def test_both_sides_say_that_versions_differ(monkeypatch, protocol):
    driver, peer = receive_peer(SECRET), meet_driver(SECRET)
    with monkeypatch.context() as patch:
        if protocol:
            patch.setattr(handshake_module, "PROTOCOL", 99)
        else:
            patch.setattr(handshake_module, "__version__", "9.9")
        greeting, _ = next(driver)
    next(peer)
    verdict, _ = driver.send(peer.send(greeting)[0])
    own, other = (
        f"oneflow {oneflow.__version__} (protocol {handshake_module.PROTOCOL})",
        "9.9" if not protocol else "(protocol 99)",
    )
    with pytest.raises(VersionError) as found:
        peer.send(verdict)
    assert (
        own in str(found.value)
        and other in str(found.value)
        and "install the same version on every machine" in str(found.value)
    )
    with pytest.raises(VersionError) as found:
        next(driver)
    assert own in str(found.value) and other in str(found.value)


def test_what_is_no_greeting_is_refused():
    driver = receive_peer(SECRET)
    _, size = next(driver)
    with pytest.raises(HandshakeError, match="it does not speak oneflow's protocol"):
        driver.send(b"GET / HTTP/1.1\r\n".ljust(size))


@pytest.fixture
def reception() -> Iterator[Reception]:
    found = Reception(LOOPBACK, 0, SECRET)
    yield found
    found.close()


def arrive(reception: Reception, secret: bytes = SECRET) -> None:
    """A peer comes while the driver receives; it is answered as the driver would."""
    address = Address(LOOPBACK, reception.port, secret)
    result: list = []

    def call() -> None:
        try:
            result.append(call_driver(lambda: address, HELLO, 10))
        except WorkerError as error:
            result.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert until(lambda: _answer(reception) or result)
    finally:
        thread.join()
    if isinstance(result[0], WorkerError):
        raise result[0]
    result[0].close()


def _answer(reception: Reception) -> bool:
    for channel, hello in reception.receive():
        assert hello == HELLO
        channel.queue(make_frame(Kind.HELLO, True))
        channel.close()
        return True
    return False


def test_a_peer_that_knows_the_secret_is_received(reception):
    arrive(reception)


def test_a_peer_with_a_wrong_secret_is_dropped_and_the_next_received(reception, capfd):
    with pytest.raises(WorkerError, match="rank 1 on somewhere cannot join the driver: the driver has another secret"):
        arrive(reception, b"wrong")
    arrive(reception)
    assert f"dropped a connection from {LOOPBACK}: it does not have this run's secret" in capfd.readouterr().err


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n" * 100, bytes(10_000), b"ONEFLOW\0"],
    ids=["nothing", "http", "zeros", "half"],
)
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_strangers_do_no_harm(reception, said, is_closed):
    with socket.create_connection((LOOPBACK, reception.port)) as stranger:
        stranger.sendall(said)
        if is_closed:
            stranger.close()
        arrive(reception)


def test_a_stranger_that_resets_the_connection_does_no_harm(reception):
    stranger = socket.create_connection((LOOPBACK, reception.port))
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stranger.close()
    arrive(reception)


def test_nothing_is_unpickled_for_a_stranger(reception, tmp_path):
    victim = tmp_path / "made by a pickle"
    bomb = pickle.dumps(_Bomb(str(victim)))
    with socket.create_connection((LOOPBACK, reception.port)) as stranger:
        stranger.sendall(make_frame(Kind.HELLO, "x").pieces[0] + bomb)
        arrive(reception)
    assert not victim.exists()


class _Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_silent_peer_is_shown_out_after_a_while(reception, monkeypatch, capfd):
    monkeypatch.setattr(rendezvous, "_HANDSHAKE_SECONDS", 0.1)
    with socket.create_connection((LOOPBACK, reception.port)) as stranger:
        stranger.settimeout(0)
        assert until(lambda: reception.receive() or _is_closed(stranger))
    assert "dropped a connection from 127.0.0.1: it was silent" in capfd.readouterr().err


def _is_closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(1000):
            pass
    except BlockingIOError:
        return False
    return True


def test_strangers_cannot_fill_the_reception(reception, monkeypatch):
    monkeypatch.setattr(rendezvous, "_WAITING_ROOM", 3)
    with contextlib.ExitStack() as strangers:
        for _ in range(10):
            strangers.enter_context(socket.create_connection((LOOPBACK, reception.port)))
        monkeypatch.setattr(rendezvous, "_HANDSHAKE_SECONDS", 0.1)
        assert until(lambda: not reception.receive() and len(reception._guests) <= 3)


def test_a_port_that_is_taken_is_an_error(reception):
    with pytest.raises(
        WorkerError, match=f"the driver cannot listen on {LOOPBACK}:{reception.port}: .*choose another control port"
    ):
        Reception(LOOPBACK, reception.port, SECRET)


def test_a_driver_that_never_comes_is_an_error(capfd, monkeypatch):
    with socket.create_server((LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(rendezvous, "_PATIENCE", 0.0)
    with pytest.raises(WorkerError, match="did not reach the driver within 0 s: .*refused.*ONEFLOW_CONNECT_TIMEOUT"):
        call_driver(lambda: Address(LOOPBACK, port, SECRET), HELLO, 0.3)
    assert capfd.readouterr().err.count("rank 1 on somewhere waits for the driver") == 1


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two channels that are connected, with the pools of two processes of one host."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        first = socket.create_connection(listener.getsockname())
        second, _ = listener.accept()
    channels = Channel(first, SegmentPool()), Channel(second, SegmentPool())
    yield channels
    for channel in channels:
        channel.close()
        channel.pool.close()


def carry(ends: tuple[Channel, Channel], tree, *, is_shared: bool):
    """The tree as it arrives. Both ends are served at once, as a message may be larger than the socket's buffers."""
    there, here = ends
    is_sent, arrived = there.queue(make_frame(Kind.CALL, tree, there.pool if is_shared else None)), []
    while not arrived:
        arrived = here.read()
        is_sent = is_sent or there.flush()
    assert is_sent
    return arrived[0].tree


ARRAYS = {
    "bfloat16": torch.arange(100_000).bfloat16(),
    "bool": torch.arange(100_000) % 3 == 0,
    "complex": torch.complex(torch.rand(20_000), torch.rand(20_000)).conj(),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "transposed": torch.rand(300, 400).t(),
    "channels last": torch.rand(2, 3, 80, 90).contiguous(memory_format=torch.channels_last),
    "every second": torch.rand(300, 800)[:, ::2],
    "expanded": torch.rand(1, 400).expand(300, 400),
    "with gradient": torch.rand(100_000, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.rand(10)),
    "numpy": np.random.default_rng(0).random((300, 400)),
    "numpy transposed": np.random.default_rng(0).random((300, 400)).T,
    "numpy backwards": np.arange(100_000)[::-1],
    "numpy scalar": np.array(2.5),
    "numpy empty": np.empty((3, 0)),
    "numpy big-endian": np.arange(100_000, dtype=">i4"),
    "numpy text": np.array(["a", "bcd"]),
    "numpy records": np.zeros(3, [("a", "i4"), ("b", "f8")]),
    "numpy objects": np.array([None, "x"], object),
    "numpy read-only": np.broadcast_to(np.arange(100.0), (1000, 100)),
}


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "raw"])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_every_kind_arrive_as_they_were(ends, name, is_shared):
    sent = ARRAYS[name]
    got = carry(ends, {"it": [sent]}, is_shared=is_shared)["it"][0]
    assert got.dtype == sent.dtype and got.shape == sent.shape
    if isinstance(sent, np.ndarray):
        np.testing.assert_array_equal(got, sent)
    else:
        assert type(got) is torch.Tensor and torch.equal(got, sent.detach()) and not got.requires_grad
    if name in ("transposed", "channels last"):
        assert got.stride() == sent.stride()


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "raw"])
def test_what_arrives_can_be_written_to(ends, is_shared):
    sent = {"torch": torch.zeros(SHARED_FROM), "numpy": np.zeros(SHARED_FROM)}
    got = carry(ends, sent, is_shared=is_shared)
    got["torch"] += 1
    got["numpy"] += 1
    assert float(sent["torch"].sum()) == 0 and sent["numpy"].sum() == 0


def test_one_array_in_two_places_arrives_as_one(ends):
    array = torch.zeros(3)
    first, second = carry(ends, (array, array), is_shared=True)
    assert first is second


def test_bytes_of_arrays_are_never_pickled():
    frame = make_frame(Kind.CALL, torch.zeros(SHARED_FROM), None)
    assert len(frame.pieces[0]) < 1000 and sum(len(piece) for piece in frame.pieces[1:]) == 4 * SHARED_FROM


def test_large_arrays_do_not_go_through_the_socket_of_one_host(ends):
    frame = make_frame(Kind.CALL, torch.zeros(SHARED_FROM), ends[0].pool)
    assert sum(len(piece) for piece in frame.pieces) < 1000


def test_memory_is_given_back_when_the_last_array_over_it_is_gone(ends):
    there, here = ends
    got = carry(ends, [torch.ones(SHARED_FROM), torch.ones(SHARED_FROM)], is_shared=True)
    kept = got.pop()[10:20]  # part of a part
    del got
    gc.collect()
    here.queue(make_frame(Kind.PULSE))
    assert there.receive().kind is Kind.PULSE
    first = open_segments()
    carry(ends, torch.zeros(SHARED_FROM), is_shared=True)
    assert open_segments() > first  # the first segment is in use, so there is a second
    assert float(kept.sum()) == 10
    del kept
    here.queue(make_frame(Kind.PULSE))
    assert there.receive().kind is Kind.PULSE
    count = len(there.pool._free)
    carry(ends, torch.zeros(SHARED_FROM), is_shared=True)
    assert len(there.pool._free) == count - 1


def test_what_is_no_frame_is_an_error(ends):
    there, here = ends
    there.socket.send(b"x" * 100)
    with pytest.raises(ChannelError, match="not a frame of this protocol"):
        here.receive(5)


def test_a_size_beyond_the_limit_is_refused_before_memory_is_taken(ends):
    there, here = ends
    there.socket.send(channel_module._HEADER.pack(b"OFfr", Kind.CALL, 0, 10, 1 << 50))
    with pytest.raises(ChannelError, match=f"{1 << 50} bytes of arrays; the limits are"):
        here.receive(5)


def test_a_message_beyond_the_limit_is_refused_by_its_sender(monkeypatch):
    monkeypatch.setattr(channel_module, "_TREE_LIMIT", 100)
    with pytest.raises(ChannelError, match="the limits are 100"):
        make_frame(Kind.CALL, "x" * 200)


def test_a_closed_connection_is_an_error(ends):
    there, here = ends
    there.close()
    with pytest.raises(ChannelError, match="the connection was closed"):
        here.receive(5)


@pytest.mark.quiet
def test_waiting_has_an_end(ends):
    began = time.monotonic()
    with pytest.raises(ChannelError, match="the peer did not answer in time"):
        ends[0].receive(0.05)
    assert time.monotonic() - began < 5


def test_a_driver_without_file_numbers_says_so(reception):
    with socket.create_connection((LOOPBACK, reception.port)):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            with pytest.raises(
                WorkerError,
                match=r"cannot take the connection of a worker: Too many open files; raise the limit \(ulimit -n\)",
            ):
                until(reception.receive)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
