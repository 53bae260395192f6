"""FastNN on several workers: by the platform's flags, by a launcher, and as hosts with addresses of their own."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch
from fastnn_records import write_cifar10
from networks import Network, needs_namespaces
from peers import free_port
from warm_python import WARM

import oneflow as flow

STEPS = 4
WORDS = [
    *("-m", "fastnn.train", "--model_name=lenet", "--preprocessing_name=cifarnet", "--num_classes=6"),
    *(
        "--dataset_name=cifar10",
        "--use_fp16=False",
        "--optimizer=momentum",
        "--learning_rate=0.001",
        "--max_gradient_norm=1",
        "--log_loss_every_n_iters=1",
    ),
    *(f"--stop_at_step={STEPS}", "--shuffle_buffer_size=16"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar10")
    write_cifar10(folder)
    return folder


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """The variables that one process trains."""
    folder = tmp_path_factory.mktemp("alone")
    finished([started([*WORDS, f"--dataset_dir={data}", "--batch_size=8", f"--checkpointDir={folder}"])])
    return weights(folder)


def started(words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*WARM.command(), *map(str, words)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(processes, fails=False):
    told = [process.communicate(timeout=240)[1] for process in processes]
    assert [bool(process.returncode) for process in processes] == [fails] * len(processes), told
    return told


def weights(folder):
    return flow.load(folder / f"model.ckpt-{STEPS}" / "model")


def assert_same(found, expected):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5, msg=name)


def test_two_workers_by_flags_are_one_with_twice_the_batch(data, alone, tmp_path):
    hosts = f"--worker_hosts=127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    words = [
        *WORDS,
        f"--dataset_dir={data}",
        "--batch_size=4",
        f"--checkpointDir={tmp_path}",
        hosts,
        "--job_name=worker",
        "--checkpoint_format=tf",
    ]
    told = finished([started([*words, f"--task_index={worker}"]) for worker in range(2)])
    assert_same(weights(tmp_path), alone)
    assert "global_step = 4" in told[0] and "global_step" not in told[1]  # the first one speaks for all
    assert (tmp_path / f"model.ckpt-{STEPS}.index").exists()


def test_a_launcher_starts_workers_and_resumes_on_another_number(data, alone, tmp_path):
    launch = ["-m", "oneflow.distributed.launch", "--nproc_per_node", "2", "--master_port", str(free_port())]
    words = [*WORDS, f"--dataset_dir={data}", f"--checkpointDir={tmp_path}"]
    finished([started([*launch, *words, "--batch_size=4", "--stop_at_step=2"])])
    finished([started([*words, "--batch_size=8"])])
    assert_same(weights(tmp_path), alone)


@needs_namespaces()
def test_workers_on_hosts_of_their_own(data, alone, tmp_path):
    script = "from fastnn.train import main; main()"
    with Network(2) as network:
        hosts = ",".join(f"{address}:2222" for address in network.addresses)
        words = [
            *WORDS[2:],
            f"--dataset_dir={data}",
            "--batch_size=4",
            f"--checkpointDir={tmp_path}",
            f"--worker_hosts={hosts}",
            "--job_name=worker",
        ]
        finished(
            [network.run(worker, script, *words, f"--task_index={worker}", OMP_NUM_THREADS="1") for worker in range(2)]
        )
    assert_same(weights(tmp_path), alone)


def test_several_workers_without_paisoar_are_refused(data):
    hosts = f"--worker_hosts=127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    words = [*WORDS, f"--dataset_dir={data}", hosts, "--enable_paisoar=False"]
    for text in finished([started([*words, f"--task_index={worker}"]) for worker in range(2)], fails=True):
        assert "there are 2 workers, and --enable_paisoar=False trains one; leave it out, or start one process" in text
