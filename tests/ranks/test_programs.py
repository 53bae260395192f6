"""One program, unchanged, on one device, on two, on two and three machines, and under launchers; and how it ends when
something breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import Network, needs_namespaces
from processes import are_gone, children_of, until

from oneflow.engine.checkpoint.folder import read_checkpoint

PROGRAM = """
import json, os, sys
import numpy as np
import oneflow as flow

devices, machines, folder, steps = int(sys.argv[1]), [m for m in sys.argv[2].split(",") if m], sys.argv[3], int(sys.argv[4])
config = flow.function_config()
config.train.primary_lr(0.1)
config.train.model_update_conf({"momentum_conf": {"beta": 0.9}})

@flow.global_function(config)
def train(x=flow.FixedTensorDef((6, 8)), labels=flow.FixedTensorDef((6,), dtype=flow.int32)):
    h = flow.layers.dense(x, 16, flow.nn.relu, kernel_initializer=flow.truncated_normal(0.3), name="first")
    logits = flow.layers.dense(h, 4, kernel_initializer=flow.truncated_normal(0.3), name="second")
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    flow.losses.add_loss(loss)
    return loss

if devices:
    flow.config.cpu_device_num(devices)
if machines:
    flow.env.machine([{"addr": m} for m in machines])
    flow.env.ctrl_port(12138)
print("before", flush=True)
flow.train.CheckPoint().init()
rng = np.random.default_rng(0)
x, labels = rng.normal(size=(6, 8)).astype(np.float32), np.arange(6, dtype=np.int32) % 4
for step in range(steps):
    print(json.dumps(train(x, labels).get().tolist()), flush=True)
    if step == 2 and folder:
        flow.train.CheckPoint().save(folder)
print("after", flush=True)
"""
SECRET = {"ONEFLOW_SECRET": "a long random text"}


def start(devices: int, folder: Path | str = "", steps: int = 3, **environment: str) -> subprocess.Popen:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", PROGRAM, str(devices), "", str(folder), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, text=True)


def finished(program: subprocess.Popen) -> np.ndarray:
    """The losses that a program printed, which must have ended well."""
    out, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    first, *losses, last = out.splitlines()
    assert (first, last) == ("before", "after"), out
    return np.array([json.loads(line) for line in losses])


def served(program: subprocess.Popen) -> None:
    """A program on another machine, or of another rank, ran up to its first job and ended well with the run."""
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "before\n"), err


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, dict[str, bytes]]:
    """The losses of one device and the files of its checkpoint."""
    folder = tmp_path_factory.mktemp("alone") / "saved"
    return finished(start(1, folder)), {name: value.numpy() for name, value in read_checkpoint(folder).items()}


def same_checkpoint(folder: Path, expected: dict[str, np.ndarray]) -> None:
    found = read_checkpoint(folder)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_two_devices_give_what_one_gives(alone, tmp_path):
    losses = finished(start(2, tmp_path / "saved"))
    np.testing.assert_allclose(losses, alone[0], rtol=1e-5)
    same_checkpoint(tmp_path / "saved", alone[1])


@needs_namespaces()
@pytest.mark.parametrize("count", [2, 3])
def test_several_machines_give_what_one_gives(alone, tmp_path, count):
    with Network(count) as network:
        arguments = ["1", ",".join(network.addresses), str(tmp_path / "saved"), "3"]
        programs = [network.run(machine, PROGRAM, *arguments, **SECRET) for machine in reversed(range(count))]
        *others, driver = programs
        np.testing.assert_allclose(finished(driver), alone[0], rtol=1e-5)
        for program in others:
            served(program)
        same_checkpoint(tmp_path / "saved", alone[1])


@needs_namespaces()
def test_a_cut_link_ends_the_program_on_every_machine_and_leaves_its_checkpoint_whole(alone, tmp_path):
    with Network(2) as network:
        arguments = ["1", ",".join(network.addresses), str(tmp_path / "saved"), "1000000"]
        driver, other = [network.run(machine, PROGRAM, *arguments, **SECRET) for machine in range(2)]
        for _ in range(6):
            driver.stdout.readline()
        network.cut(1)
        _, err = driver.communicate(timeout=30)
        assert driver.returncode == 1
        assert re.search(
            r"WorkerError: job 'train', step \d+: .*machine 1|WorkerError: job 'train', step \d+: rank 1", err
        ), err
        _, err = other.communicate(timeout=30)
        assert other.returncode == 1 and "lost the driver" in err
        same_checkpoint(tmp_path / "saved", alone[1])
        assert until(lambda: are_gone(network.processes(0) + network.processes(1)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_ranks_that_somebody_else_started(alone):
    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    driver, other = [start(0, RANK=str(rank), **given) for rank in range(2)]
    np.testing.assert_allclose(finished(driver), alone[0], rtol=1e-5)
    served(other)


def test_torchrun(alone, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        f"--master_port={free_port()}",
        "--tee=1",
    ]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, str(tmp_path / "program.py"), "0", "", "", "3"],
        capture_output=True,
        text=True,
        env=variables,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    losses = [
        json.loads(line.removeprefix("[default0]:"))
        for line in done.stdout.splitlines()
        if line.startswith("[default0]:[")
    ]
    np.testing.assert_allclose(np.array(losses), alone[0], rtol=1e-5)
    assert done.stdout.count("before") == 2 and done.stdout.count("after") == 1


def workers_of(pid: int) -> list[int]:
    """The processes below a program: the one that workers are forked from, and they."""
    found = children_of(pid)
    return found + [below for child in found for below in workers_of(child)]


def leaves(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not workers_of(pid)]


@pytest.mark.parametrize("how, said", [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "rank")])
def test_a_lost_worker_ends_the_program_with_one_error_that_names_job_step_rank_and_host(how, said):
    program = start(2, steps=1000000)
    for _ in range(4):
        program.stdout.readline()
    below = workers_of(program.pid)
    os.kill(leaves(below)[-1], how)
    _, err = program.communicate(timeout=30)
    last = [line for line in err.splitlines() if line.startswith("oneflow.engine.core.errors")]
    assert program.returncode == 1 and len(last) == 1, err
    assert (
        re.search(rf"WorkerError: job 'train', step \d+: .*rank \d on {re.escape(socket.gethostname())}", last[0])
        and said in last[0]
    )
    assert until(lambda: are_gone(below))


@pytest.mark.parametrize("how, code", [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, -signal.SIGINT)])
def test_nothing_outlives_a_program_that_is_killed_or_interrupted(how, code):
    program = start(2, steps=1000000)
    for _ in range(4):
        program.stdout.readline()
    below = workers_of(program.pid)
    assert len(below) >= 2
    program.send_signal(how)
    program.communicate(timeout=30)
    assert program.returncode == code
    assert until(lambda: are_gone(below))


def test_a_program_that_imports_torch_itself(tmp_path):
    program = """
import numpy as np
import torch
from torch import *
import oneflow as flow

flow.config.cpu_device_num(2)

@flow.global_function()
def job(x=flow.FixedTensorDef((4, 3, 8, 8))):
    h = flow.layers.conv2d(x, 4, 3, padding="SAME", kernel_initializer=flow.ones_initializer(), name="conv")
    return flow.cast(flow.reshape(h, (4, -1)), flow.int32)

print(job(np.ones((4, 3, 8, 8), np.float32)).get().sum())
"""
    (tmp_path / "program.py").write_text(program)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, env=variables, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 4 * 4 * 3 * (3 * 8 - 2) ** 2
