"""A cluster on one host: calls reach their ranks with all they carry, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import are_gone, open_segments, until

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.launch import LAUNCHER
from oneflow.engine.runtime.launch.world import World

HANDLER = "cluster_handlers:Echo"
TWO = World("cpu", devices_per_machine=2)
BIG = 1 << 20  # elements; above the size from which arrays go by shared memory


@contextlib.contextmanager
def two(**settings) -> Iterator[Cluster]:
    cluster = Cluster(TWO, HANDLER, **settings)
    try:
        yield cluster
    finally:
        cluster.close()


def test_every_rank_has_a_process_of_its_own():
    with two() as cluster:
        found = cluster.broadcast("where", what="asking")
        assert [entry[0] for entry in found] == [0, 1]
        assert [entry[1] for entry in found] == cluster.pids
        assert len({os.getpid(), *cluster.pids}) == 3
        assert {entry[2:] for entry in found} == {("cpu", socket.gethostname())}
        assert cluster.hosts == [socket.gethostname()] * 2


def test_each_rank_gets_its_own_arguments():
    with two() as cluster:
        assert cluster.call("echo", [("zero",), ({"one": [1, None]},)], what="asking") == ["zero", {"one": [1, None]}]


@pytest.mark.parametrize("size", [0, 1, 1000, BIG])
@pytest.mark.parametrize("make", [torch.arange, np.arange], ids=["torch", "numpy"])
def test_arrays_of_any_size_go_both_ways(size, make):
    with two() as cluster:
        for value in cluster.broadcast("echo", make(size), what="asking"):
            assert type(value) is type(make(size)) and value.dtype == make(size).dtype
            np.testing.assert_array_equal(np.asarray(value), np.arange(size))


def test_different_arrays_go_to_different_ranks():
    with two() as cluster:
        sent = [torch.full((BIG,), 3.0), torch.full((BIG // 2,), 4.0)]
        for value, expected in zip(cluster.call("echo", [(value,) for value in sent], what="asking"), sent):
            assert torch.equal(value, expected)


def test_trees_with_many_arrays_arrive_as_they_were():
    tree = {
        "big": torch.ones(BIG),
        "small": (np.ones(3), torch.zeros(2, 0)),
        "text": "x",
        "again": [torch.ones(BIG) * 2, 7],
    }
    with two() as cluster:
        for value in cluster.broadcast("echo", tree, what="asking"):
            assert torch.equal(value["big"], tree["big"]) and torch.equal(value["again"][0], tree["again"][0])
            assert value["small"][1].shape == (2, 0) and value["again"][1] == 7 and value["text"] == "x"
            np.testing.assert_array_equal(value["small"][0], np.ones(3))


def test_the_layout_of_a_dense_tensor_is_kept():
    image = torch.rand(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    with two() as cluster:
        assert cluster.broadcast("is_contiguous", image, torch.channels_last, what="asking") == [True, True]
        assert torch.equal(cluster.broadcast("echo", image, what="asking")[0], image)


def test_a_worker_may_keep_what_it_was_given():
    with two() as cluster:
        for value in (1.0, 2.0, 3.0):
            found = cluster.broadcast("keep", torch.full((BIG,), value), what="keeping")
        assert [[float(kept[0]) for kept in rank] for rank in found] == [[1.0, 2.0, 3.0]] * 2


def test_a_result_may_be_kept_while_others_come():
    with two() as cluster:
        results = [cluster.broadcast("echo", torch.full((BIG,), value), what="asking")[1] for value in (1.0, 2.0, 3.0)]
        assert [float(result.sum()) for result in results] == [BIG, 2 * BIG, 3 * BIG]
    assert [float(result[0]) for result in results] == [1.0, 2.0, 3.0]


def test_any_number_of_results_may_be_kept():
    with two() as cluster:
        results = [
            cluster.call("echo", [(torch.full((BIG // 16,), float(n)),), (None,)], what="asking")[0] for n in range(100)
        ]
        assert [float(result[-1]) for result in results] == list(range(100))
        assert len(open_segments()) < 2 * 64  # an open file and a mapping each
        kept = [cluster.broadcast("keep", torch.full((BIG // 16,), float(n)), what="keeping") for n in range(40)][-1]
        assert [float(value[0]) for value in kept[1]] == list(range(40))


def test_what_a_worker_writes_into_its_argument_is_its_own():
    value = torch.ones(BIG)
    with two() as cluster:
        for _ in range(2):
            assert cluster.broadcast("double", value, what="doubling") == [2.0 * BIG] * 2
    assert float(value.sum()) == BIG


def test_shared_memory_is_used_again():
    with two() as cluster:
        cluster.broadcast("double", torch.ones(BIG), what="doubling")
        before = open_segments()
        assert before
        for _ in range(20):
            cluster.broadcast("double", torch.ones(BIG), what="doubling")
        assert open_segments() == before
    assert not open_segments()


def test_workers_have_a_process_group():
    with two() as cluster:
        assert cluster.call("all_reduce", [(1.0,), (2.0,)], what="adding") == [3.0, 3.0]
        assert cluster.broadcast("interface", what="asking") == ["lo", "lo"]


def test_cores_are_shared_out_among_the_workers():
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    with two() as cluster:
        assert cluster.broadcast("threads", what="asking") == [share, share]
    with two(threads=3) as cluster:
        assert cluster.broadcast("threads", what="asking") == [3, 3]


def test_what_workers_print_goes_to_stderr(capfd):
    with two() as cluster:
        cluster.call("say", [("hello",), ("",)], what="talking")
    out, err = capfd.readouterr()
    assert not out
    assert "hello\n" in err and "hello raw\n" in err


def test_calls_from_several_threads_take_turns():
    with two() as cluster:
        found: dict[int, list] = {}
        threads = [
            threading.Thread(target=lambda n=number: found.update({n: cluster.broadcast("echo", n, what="asking")}))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {number: [number, number] for number in range(8)}


def test_closing_leaves_no_process_and_no_memory():
    shared_before = set(Path("/dev/shm").iterdir())
    cluster = Cluster(TWO, HANDLER)
    cluster.broadcast("echo", torch.ones(BIG), what="asking")
    cluster.close()
    assert are_gone(cluster.pids)
    cluster.close()  # and once more, which does nothing
    assert set(Path("/dev/shm").iterdir()) == shared_before
    with pytest.raises(WorkerError, match="asking: the workers have ended, call .* to begin anew; they were closed"):
        cluster.broadcast("echo", 1, what="asking")


def test_a_forgotten_cluster_ends():
    cluster = Cluster(TWO, HANDLER)
    pids = cluster.pids
    del cluster
    assert until(lambda: are_gone(pids))


def test_two_clusters_at_a_time_do_not_know_of_each_other():
    with two() as first, two() as second:
        first.close()
        assert second.broadcast("echo", 5, what="asking") == [5, 5]


def test_a_forked_child_does_not_end_the_workers_of_its_parent():
    with two() as cluster:
        child = os.fork()
        if not child:
            try:
                cluster.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert cluster.broadcast("echo", 5, what="asking") == [5, 5]


def test_a_fork_server_that_was_killed_is_started_anew():
    with two() as cluster:
        os.kill(LAUNCHER.pid, 9)
        with pytest.raises(WorkerError, match="asking: "):
            cluster.broadcast("fail_by_hanging", what="asking")
        assert until(lambda: are_gone(cluster.pids))
    with two() as cluster:
        assert cluster.broadcast("echo", 5, what="asking") == [5, 5]


def test_a_call_needs_arguments_for_every_rank():
    with two() as cluster:
        with pytest.raises(ArgumentError, match="asking: arguments for 1 ranks; there are 2"):
            cluster.call("echo", [(1,)], what="asking")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device_type": "tpu"}, "device type 'tpu'; use one of 'cpu', 'gpu'"),
        ({"machines": ()}, "name at least one, and each once"),
        ({"machines": ("a", "a")}, "name at least one, and each once"),
        ({"devices_per_machine": 0}, "0 devices on a machine"),
        ({"here": 1}, "this is machine 1 of 1"),
        ({"ctrl_port": 70000}, "control port 70000"),
    ],
)
def test_a_world_must_make_sense(settings, message):
    with pytest.raises(ArgumentError, match=message):
        World(**{"device_type": "cpu", **settings})


def test_ranks_go_machine_by_machine():
    world = World("cpu", ("a", "b", "c"), devices_per_machine=4)
    assert world.size == 12
    assert world.rank_of(2, 1) == 9 and world.machine_of(9) == 2 and world.device_of(9) == 1
    assert list(world.ranks_of(1)) == [4, 5, 6, 7]


def test_a_step_may_take_for_ever(monkeypatch):
    monkeypatch.setenv("ONEFLOW_STEP_TIMEOUT", "inf")
    with contextlib.closing(Cluster(TWO, HANDLER)) as cluster:
        assert cluster.size == 2


@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_a_step_timeout_must_be_a_number_of_seconds(monkeypatch, text):
    monkeypatch.setenv("ONEFLOW_STEP_TIMEOUT", text)
    with pytest.raises(ArgumentError, match="ONEFLOW_STEP_TIMEOUT"):
        Cluster(TWO, HANDLER)


def test_at_least_one_thread():
    with pytest.raises(ArgumentError, match="0 threads for a worker"):
        Cluster(TWO, HANDLER, threads=0)
