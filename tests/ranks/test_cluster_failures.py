"""Whatever happens to a worker, to the driver or to the way between them: one error that says it, and nothing is
left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from processes import are_gone, open_segments, until

from oneflow.engine.core.errors import ArgumentError, DataError, WorkerError
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.world import World

pytestmark = pytest.mark.quiet  # a failure is told within seconds
HANDLER = "cluster_handlers:Echo"
TWO = World("cpu", devices_per_machine=2)
HOST = socket.gethostname()
NOTICED = 10.0  # seconds within which any failure must have been told


@contextlib.contextmanager
def failing() -> Iterator[Cluster]:
    """A cluster that fails in time, and of which nothing is left then."""
    cluster = Cluster(TWO, HANDLER)
    try:
        began = time.monotonic()
        yield cluster
        assert time.monotonic() - began < NOTICED
        assert are_gone(cluster.pids)
        assert not open_segments()
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raising", "raised ValueError: three is not four\n"),
        ("memory", "raised RuntimeError: .*allocate"),
        ("kill", r"was killed by SIGKILL \(by kill -9, or by the kernel because memory ran out\)"),
        ("stop", "was stopped by SIGSTOP and did not go on"),
        ("exit", "ended by itself with exit code 7"),
        ("system_exit", "raised SystemExit: 3"),
        ("unpicklable", "raised _Stubborn: cannot be sent as an object"),
    ],
)
def test_a_failed_rank_is_named_while_the_other_waits_for_it(how, message):
    rank = 1 if how in ("raising", "stop", "exit") else 0
    with failing() as cluster:
        with pytest.raises(WorkerError, match=f"^job 'train', step 7: rank {rank} on {HOST} {message}"):
            cluster.broadcast("fail", rank, how, what="job 'train', step 7")
        with pytest.raises(
            WorkerError,
            match=r"step 8: the workers have ended, call .* to begin anew; their first failure was: WorkerError: job 'train', step 7: rank",
        ):
            cluster.broadcast("echo", 1, what="job 'train', step 8")


@pytest.mark.parametrize(
    ("how", "message"),
    [("raising", "raised ValueError"), ("kill", "was killed by SIGKILL"), ("stop", "was stopped by SIGSTOP")],
)
def test_a_failed_rank_is_named_while_the_other_waits_for_it_in_shared_memory(how, message):
    with failing() as cluster:
        with pytest.raises(WorkerError, match=f"^step 1: rank 1 on {HOST} {message}"):
            cluster.broadcast("fail_in_sum", 1, how, what="step 1")


def test_an_error_shows_where_the_worker_raised_it():
    with failing() as cluster:
        with pytest.raises(WorkerError, match="cluster_handlers.py.*in fail_by_raising"):
            cluster.broadcast("fail_by_raising", what="step 1")


def test_an_error_of_this_package_keeps_its_class():
    with failing() as cluster:
        with pytest.raises(DataError, match=f"^step 1: rank 1 on {HOST}: part-0: record 3 is broken$"):
            cluster.broadcast("fail", 1, "package_error", what="step 1")


def test_a_worker_that_dies_between_calls_is_told_by_the_next():
    with failing() as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=f"^step 2: rank 1 on {HOST} was killed by SIGKILL"):
            cluster.broadcast("echo", torch.ones(1 << 20), what="step 2")


def test_what_the_others_have_answered_is_let_go():
    with failing() as cluster:
        with pytest.raises(WorkerError, match=f"^step 1: rank 1 on {HOST} raised ValueError"):
            cluster.call("echo_or_fail", [(torch.ones(1 << 20),), (None,)], what="step 1")


def test_a_worker_that_was_stopped_between_calls_is_told_by_the_next():
    with failing() as cluster:
        os.kill(cluster.pids[0], signal.SIGSTOP)
        with pytest.raises(WorkerError, match=f"^step 2: rank 0 on {HOST} was stopped by SIGSTOP"):
            cluster.broadcast("echo", 1, what="step 2")


def test_a_worker_that_was_stopped_for_a_moment_goes_on():
    cluster = Cluster(TWO, HANDLER)
    try:
        os.kill(cluster.pids[0], signal.SIGSTOP)
        assert until(lambda: _state(cluster.pids[0]) == "T")
        later = threading.Timer(1.0, os.kill, (cluster.pids[0], signal.SIGCONT))
        later.start()
        assert cluster.broadcast("echo", 1, what="step 2") == [1, 1]
        later.join()
    finally:
        cluster.close()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_call_that_takes_too_long_is_ended():
    cluster = Cluster(TWO, HANDLER, step_timeout=1.5)
    try:
        with pytest.raises(
            WorkerError, match=rf"^step 3: rank 1 on {HOST} did not answer within 1.5 s; ONEFLOW_STEP_TIMEOUT"
        ):
            cluster.broadcast("hang_if", 1, what="step 3")
        assert are_gone(cluster.pids)
    finally:
        cluster.close()


def test_an_answer_that_cannot_be_sent_is_an_error():
    with failing() as cluster:
        with pytest.raises(WorkerError, match="raised .*lambda"):
            cluster.broadcast("lambda_", what="step 1")


def test_an_answer_that_cannot_be_read_is_an_error():
    with failing() as cluster:
        with pytest.raises(WorkerError, match=r"gave an answer that cannot be read \(LookupError: made elsewhere\)"):
            cluster.broadcast("unreadable", what="step 1")


def test_an_argument_that_cannot_be_sent_is_an_error():
    with failing() as cluster:
        with pytest.raises(ArgumentError, match="layout torch.sparse_coo .* cannot be sent"):
            cluster.broadcast("echo", torch.eye(2).to_sparse(), what="step 1")


def test_an_unknown_method_is_an_error():
    with failing() as cluster:
        with pytest.raises(WorkerError, match="raised AttributeError: .*'no_such_method'"):
            cluster.broadcast("no_such_method", what="step 1")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("cluster_handlers:Broken", "raised LookupError: no handler for rank"),
        ("no_such_module:Echo", "raised ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_handler_that_cannot_be_made_is_an_error(handler, message):
    with pytest.raises(WorkerError, match=rf"^starting the workers: rank \d on {HOST} {message}"):
        Cluster(TWO, handler)


def test_a_handler_is_named_by_module_and_class():
    with pytest.raises(ArgumentError, match="handler 'cluster_handlers'; name it as 'package.module:Class'"):
        Cluster(TWO, "cluster_handlers")


DRIVER = """
import sys
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.launch import LAUNCHER
from oneflow.engine.runtime.launch.world import World

cluster = Cluster(World("cpu", devices_per_machine=2), "cluster_handlers:Echo")
try:
    print(LAUNCHER.pid, *cluster.pids, flush=True)
    cluster.broadcast(*sys.argv[1:], what="step 1")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@contextlib.contextmanager
def driver(*call: str) -> Iterator[tuple[subprocess.Popen, list[int]]]:
    """A driver in a process, and process group, of its own, and the processes that it has started."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DRIVER, *call]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    ) as process:
        try:
            pids = [int(word) for word in process.stdout.readline().split()]
            assert len(pids) == 3
            yield process, pids
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_no_process_outlives_a_driver_that_is_killed(tmp_path):
    with driver("hang_in_collective", str(tmp_path)) as (process, pids):
        assert until(lambda: len(os.listdir(tmp_path)) == 2)
        process.kill()
        assert until(lambda: are_gone(pids), NOTICED)


def test_ctrl_c_is_the_drivers_affair(tmp_path):
    with driver("hang_in_collective", str(tmp_path)) as (process, pids):
        assert until(lambda: len(os.listdir(tmp_path)) == 2)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert are_gone(pids[1:])
        assert process.wait(NOTICED) == 0
        assert until(lambda: are_gone(pids))


def test_the_end_of_a_program_ends_its_workers():
    with driver("echo", "1") as (process, pids):
        assert process.wait(NOTICED) == 0
        assert until(lambda: are_gone(pids))
