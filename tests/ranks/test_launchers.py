"""Processes that a launcher has started find each other by what it has put into the environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import are_gone, until

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.job.machines import Machines
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch import launchers
from oneflow.engine.runtime.launch.launchers import Launched, expand_nodes, launched, serve_rank
from oneflow.engine.runtime.launch.world import World

HANDLER = "cluster_handlers:Echo"
HOST = socket.gethostname()
LOCAL = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
FAR = {"MASTER_ADDR": "10.213.0.1", "MASTER_PORT": "29511"}


def test_a_process_that_nobody_launched():
    assert launched({}) is None
    assert launched({"RANK": "0", "WORLD_SIZE": "1", **LOCAL}) is None


def test_the_variables_of_torchrun():
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", **FAR}
    assert launched(environment) == Launched(5, 8, 1, 4, "10.213.0.1", 29511)
    assert launched({**environment, "TORCHELASTIC_USE_AGENT_STORE": "True"}).store_key == "oneflow/driver/0"


def test_rank_and_world_size_alone():
    assert launched({"RANK": "3", "WORLD_SIZE": "4", **LOCAL}) == Launched(3, 4, 3, 4, "127.0.0.1", 29511)
    assert launched({"RANK": "3", "WORLD_SIZE": "4", **FAR}) == Launched(3, 4, 0, 1, "10.213.0.1", 29511)


def test_the_variables_of_slurm():
    environment = {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "6",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_NODELIST": "gpu[08-10]",
        "SLURM_JOB_ID": "31234",
    }
    found = launched(environment)
    assert found == Launched(5, 6, 1, 2, "gpu08", 21234, ("gpu08", "gpu09", "gpu10"))
    assert found.world("gpu") == World("gpu", ("gpu08", "gpu09", "gpu10"), 2, 2, 21234)
    assert launched({**environment, **FAR}) == Launched(
        5, 6, 1, 2, "10.213.0.1", 29511, ("10.213.0.1", "gpu09", "gpu10")
    )


def test_slurm_without_a_list_of_machines():
    environment = {
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "2",
        "SLURM_LAUNCH_NODE_IPADDR": "10.213.0.9",
    }
    assert launched(environment).world("cpu").machines == ("10.213.0.9", "machine-1")
    allocation = {"SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "gpu[08-09]", "SLURM_LAUNCH_NODE_IPADDR": ""}
    assert launched({**environment, **allocation}).world("cpu").machines == ("gpu08", "gpu09")


BATCH = {
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "1",
    "SLURM_JOB_NODELIST": "gpu08",
}


def test_a_batch_script_of_slurm_is_one_process_and_told_so():
    with pytest.warns(
        UserWarning, match="SLURM_NTASKS 2 .* runs alone, as a batch script does; start one process per task with srun"
    ):
        assert launched(BATCH) is None
    assert launched({**BATCH, "SLURM_NTASKS": "1"}) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("one", ["one"]),
        ("a,b-1", ["a", "b-1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-11].x,m[1]", ["n08.x", "n09.x", "n10.x", "n11.x", "m1"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
    ],
)
def test_lists_of_machines_are_expanded(text, names):
    assert expand_nodes(text) == names


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2", **LOCAL}, "environment variable RANK is 'x'"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "environment variable MASTER_PORT is not set"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR is not"),
        ({"RANK": "2", "WORLD_SIZE": "2", **LOCAL}, "rank 2 of 2"),
        (
            {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1", **FAR},
            "rank 1 of 3, local rank 1 of 2",
        ),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", **FAR}, "local rank 1 of 1"),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n[1-2]"},
            "--distribution=block",
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n[1-2]"},
            "SLURM runs 3 tasks on 2 machines",
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"},
            "SLURM_PROCID is 1, .* cannot find task 0; start it with srun, or set RANK",
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "3"},
            "task of srun, .* set MASTER_ADDR",
        ),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n1"}, "SLURM_NTASKS is not set"),
    ],
)
def test_what_a_launcher_says_must_make_sense(environment, message):
    with pytest.raises(ArgumentError, match=message):
        launched(environment)


def test_a_launcher_that_makes_no_sense_is_told_at_the_users_line(monkeypatch):
    for name, value in {"RANK": "x", "WORLD_SIZE": "2", **LOCAL}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=r"test_launchers.py:\d+: environment variable RANK is 'x'"):
        _ = Machines().launched


def test_several_machines_need_a_secret(monkeypatch):
    monkeypatch.delenv("ONEFLOW_SECRET", raising=False)
    found = Launched(1, 2, 0, 1, "10.213.0.1", 29511)
    for start in (found.new_secret, lambda: serve_rank(found, found.world("cpu"), HANDLER)):
        with pytest.raises(ArgumentError, match="ONEFLOW_SECRET"):
            start()


def test_an_address_that_others_cannot_reach_is_an_error():
    with pytest.raises(ArgumentError, match="MASTER_ADDR 'localhost' is only known to this machine itself"):
        Launched(0, 2, 0, 1, "localhost", 29511).listening_place  # noqa: B018


@pytest.fixture
def meeting_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"oneflow-{os.getuid()}-29511.json"


def test_the_secret_of_one_machine_is_this_users_alone_and_gone_at_the_end(meeting_file):
    found = Launched(0, 2, 0, 2, "127.0.0.1", 29511)
    with pytest.raises(FileNotFoundError):
        found.find_driver()
    with found.announced(1234, b"secret"):
        assert meeting_file.stat().st_mode & 0o777 == 0o600
        assert found.find_driver() == ("127.0.0.1", 1234, b"secret")
    assert not list(meeting_file.parent.iterdir())


def test_a_secret_that_others_could_have_written_is_not_used(meeting_file):
    found = Launched(0, 2, 0, 2, "127.0.0.1", 29511)
    with found.announced(1234, b"secret"):
        meeting_file.chmod(0o644)
        with pytest.raises(PermissionError, match="can be written or read by other users"):
            found.find_driver()
        meeting_file.rename(meeting_file.with_suffix(".real"))
        meeting_file.symlink_to(meeting_file.with_suffix(".real"))
        with pytest.raises(OSError, match="symbolic"):
            found.find_driver()
        meeting_file.with_suffix(".real").unlink()


RANK = """
import sys
from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.runtime.launch.launchers import launched, serve_rank

found = launched()
try:
    serve_rank(found, found.world("cpu"), "cluster_handlers:Echo")
except OneFlowError as error:
    sys.exit(str(error))
print("served")
"""


@contextlib.contextmanager
def second_rank(meeting_file: Path) -> Iterator[subprocess.Popen]:
    variables = {"RANK": "1", "WORLD_SIZE": "2", **LOCAL, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RANK]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables}, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_launched_ranks_serve_until_the_driver_ends(meeting_file):
    stale = launchers._announced_in_file(meeting_file, 1, b"of an earlier run that was killed")
    stale.__enter__()
    found = Launched(0, 2, 0, 2, "127.0.0.1", 29511)
    with second_rank(meeting_file) as other:
        cluster = Cluster(found.world("cpu"), HANDLER, launched=found)
        try:
            assert cluster.call("all_reduce", [(1.0,), (2.0,)], what="adding") == [3.0, 3.0]
            assert cluster.pids[1] == other.pid
            assert not meeting_file.exists()
        finally:
            cluster.close()
        assert other.communicate(timeout=60)[0] == "served\n"
        assert other.returncode == 0


def test_a_launched_rank_that_has_answered_says_why_the_driver_ended_the_run(meeting_file):
    found = Launched(0, 2, 0, 2, "127.0.0.1", 29511)
    with second_rank(meeting_file) as other:
        cluster = Cluster(found.world("cpu"), HANDLER, launched=found)
        try:
            with pytest.raises(WorkerError, match="three is not four"):
                cluster.call("echo_or_fail", [(None,), (1,)], what="step 1")
        finally:
            cluster.close()
        said, trouble = other.communicate(timeout=60)
        assert not said and other.returncode == 1
        assert f"rank 1 on {HOST}: the driver ended the run: " in trouble and "three is not four" in trouble


def test_a_launched_rank_that_is_stopped_is_noticed_and_ends_with_the_driver(meeting_file, tmp_path):
    found = Launched(0, 2, 0, 2, "127.0.0.1", 29511)
    with second_rank(meeting_file) as other:
        cluster = Cluster(found.world("cpu"), HANDLER, launched=found)
        try:
            with pytest.raises(
                WorkerError, match=f"^step 1: rank 1 on {HOST} gave no sign of life for 7 s; it is stopped or it hangs"
            ):
                cluster.broadcast("fail", 1, "stop", what="step 1")
        finally:
            cluster.close()
        other.send_signal(signal.SIGCONT)
        # Its watch sees that the driver is gone, or its broken collective lets it read why, whichever is first.
        assert re.search(
            f"rank 1 on {HOST}( lost the driver|: the driver ended the run: WorkerError: step 1)",
            other.communicate(timeout=60)[1],
        )
        assert other.returncode == 1
        assert until(lambda: are_gone(cluster.pids))


@pytest.mark.parametrize("name", ["WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_a_run_has_at_least_one_process(name):
    environment = {"RANK": "0", "WORLD_SIZE": "2", **LOCAL, name: "0"}
    with pytest.raises(
        ArgumentError, match=f"environment variable {name} is '0'; the launcher should set it to a number from 1 on"
    ):
        launched(environment)
