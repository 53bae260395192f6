"""Processes of a launcher that are peers: each knows its place, they meet at first use, and every wait ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess

import numpy as np
import pytest
import torch.distributed as dist
from networks import Network, needs_namespaces
from peers import ended, free_port, run, start, variables
from warm_python import WARM

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.world import PeerWorld, group_for, join

HOST = re.escape(socket.gethostname())

PLACES = """
import oneflow as flow
from oneflow.engine.world import current_world, join
import torch.distributed as dist
world = current_world()
assert not dist.is_initialized()
print(flow.env.get_rank(), flow.env.get_world_size(), flow.env.get_local_rank(), flow.env.get_node_size(), world.local_size)
assert join() is world and dist.is_initialized() == (world.size > 1)
"""


def test_every_rank_knows_its_place_and_the_group_is_made_when_it_is_needed():
    assert run(2, PLACES) == ["0 2 0 1 2\n", "1 2 1 1 2\n"]


def test_a_process_that_was_started_alone_is_a_world_of_one_without_a_group():
    assert (join(), join().node_size) == (PeerWorld(0, 1, 0, 1), 1)
    assert not dist.is_initialized() and group_for([0]) is None


def test_half_of_a_launchers_variables_is_a_warning_and_a_world_of_one():
    environment = variables(0, 1, 1)
    del environment["WORLD_SIZE"]
    done = subprocess.run([*WARM.command(), "-c", PLACES], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 1 0 1 1\n" and "RANK is set and WORLD_SIZE is not: this process runs alone" in done.stderr


GROUPS = """
import torch
from oneflow.engine import collective, world
here = world.join()
def told(*ranks):
    if here.rank in ranks:
        world.group_for(ranks)
        print(ranks, collective.all_reduce(torch.tensor(10.0 ** here.rank), "sum", ranks).item())
told(1, 3)  # one of its members has made no other group before, the next ones have
told(1, 2, 3)
told(0, 3)
told(0, 1, 2, 3)
assert world.group_for([here.rank]) is None
for wrong in ([9], [(here.rank + 1) % 4], [here.rank, here.rank]):
    try:
        world.group_for(wrong)
    except ValueError as error:
        assert f"for rank {here.rank} of 4" in str(error)
    else:
        raise AssertionError(wrong)
"""


def test_a_group_of_some_ranks_is_made_by_its_members_alone():
    of_13, of_123, of_03, all_of_them = (
        "(1, 3) 1010.0\n",
        "(1, 2, 3) 1110.0\n",
        "(0, 3) 1001.0\n",
        "(0, 1, 2, 3) 1111.0\n",
    )
    assert run(4, GROUPS) == [
        of_03 + all_of_them,
        of_13 + of_123 + all_of_them,
        of_123 + all_of_them,
        of_13 + of_123 + of_03 + all_of_them,
    ]


def test_a_group_that_the_program_has_made_itself_is_used():
    program = """
import torch.distributed as dist
dist.init_process_group("gloo")
import torch
import oneflow as flow
x = torch.ones(2)
flow.comm.all_reduce(x)
print(flow.env.get_rank() == dist.get_rank(), x.tolist())
dist.destroy_process_group()
"""
    assert run(2, program) == ["True [2.0, 2.0]\n"] * 2


END = """
import atexit, ctypes, os

def show_threads():  # registered first, so it runs after the process has left the group
    tasks = os.listdir("/proc/self/task")
    print([name for name in (open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks) if "gloo" in name])
    ctypes.PyDLL(None).usleep(300_000)  # holds the GIL until the interpreter shuts down

atexit.register(show_threads)
import torch
import torch.distributed as dist
import oneflow as flow
from oneflow.engine.world import group_for

everywhere = flow.placement.all("cpu")
x = flow.ones(4, 2, placement=everywhere, sbp=flow.sbp.split(0))
whole = x.to_global(sbp=flow.sbp.broadcast)
group_for([0, 1])
for _ in range(4):  # gloo's threads release these tensors, not this one
    value = torch.ones(1 << 22)
    work = dist.all_reduce(value, async_op=True)
    del value, work
"""


def test_no_thread_of_a_group_is_left_when_the_interpreter_shuts_down():
    assert run(2, END) == ["[]\n"] * 2


def test_a_rank_that_never_comes_is_named():
    program = "import oneflow as flow; flow.comm.barrier()"
    (found,) = ended(start(3, program, ranks=range(1), ONEFLOW_CONNECT_TIMEOUT="1"))
    assert found.code == 1
    assert re.search(
        f"PeerError: rank 0 on {HOST} waited in vain for rank 1, 2 of 3: not here after 1 s; .*ONEFLOW_CONNECT_TIMEOUT",
        found.last,
    )


def test_without_rank_0_there_is_nobody_to_ask():
    program = "import oneflow as flow; flow.comm.barrier()"
    (found,) = ended(start(2, program, ranks=range(1, 2), ONEFLOW_CONNECT_TIMEOUT="1"))
    assert re.search(
        f"PeerError: rank 1 on {HOST} waited in vain for rank 0 at 127.0.0.1 port .*ONEFLOW_CONNECT_TIMEOUT", found.last
    )


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = [*WARM.command(), "-c", "import oneflow as flow; flow.comm.barrier()"]
        done = subprocess.run(program, env=variables(0, 2, port), capture_output=True, text=True, timeout=60)
    assert f"rank 0 cannot listen at 127.0.0.1 port {port} (Address already in use)" in done.stderr


FALLING = """
import os, signal, sys
import torch
import oneflow as flow
from oneflow.engine.collective import rooms
from oneflow.engine.world import join
import torch.distributed as dist
x = torch.ones(3)
if sys.argv[2] == "sockets":
    join()
    rooms._sharing(dist.group.WORLD).is_on = False
flow.comm.all_reduce(x)
if flow.env.get_rank() == 1:
    os.kill(os.getpid(), int(sys.argv[1]))
flow.comm.all_reduce(x)
"""


@pytest.mark.parametrize("way", ["memory", "sockets"])
def test_a_rank_that_is_killed_is_named_at_once(way):
    found, killed = ended(start(2, FALLING, str(int(signal.SIGKILL)), way))
    assert killed.code == -signal.SIGKILL and found.code == 1
    assert re.search(
        f"PeerError: rank 0 on {HOST} waited in vain for rank 1 on {HOST}: rank 1 on {HOST} has ended", found.last
    ), found.err


def test_a_rank_that_is_stopped_is_named_when_the_time_is_over():
    found, _ = ended(start(2, FALLING, str(int(signal.SIGSTOP)), "memory", ONEFLOW_STEP_TIMEOUT="1"), without=(1,))
    assert found.code == 1
    assert re.search(
        f"PeerError: rank 0 on {HOST} waited in vain for rank 1 on {HOST}: .*rank 1 on {HOST} is stopped", found.last
    ), found.err


ORDERS = """
import sys
import torch
import torch.distributed as dist
import oneflow as flow
from oneflow.engine.collective import rooms
from oneflow.engine.core.errors import OrderError
from oneflow.engine.world import join
rank = join().rank
if sys.argv[1] == "sockets":
    rooms._sharing(dist.group.WORLD).is_on = False
x = torch.ones(2)
for calls in [
    (lambda: flow.comm.broadcast(x, 0), lambda: flow.comm.all_reduce(x)),
    (lambda: flow.comm.all_reduce(torch.ones(2, 5000)), lambda: flow.comm.all_reduce(x)),
    (lambda: flow.comm.barrier(), lambda: flow.comm.barrier()),
]:
    try:
        calls[rank]()
        print("the same")
    except OrderError as error:
        print(error)
"""


@pytest.mark.parametrize("way, check", [("memory", "0"), ("sockets", "1")])
def test_ranks_that_call_different_operations_are_told_at_once_and_can_go_on(way, check):
    for out in run(2, ORDERS, way, ONEFLOW_CHECK_ORDER=check):
        operation, shape, same = out.splitlines()
        different = "the ranks call different operations: rank 0 .*"
        assert re.search(
            rf"{different}comm\.broadcast\(float32\(2,\), 0\).*rank 1 .*comm\.all_reduce\(float32\(2,\)\)", operation
        )
        assert re.search(
            rf"{different}comm\.all_reduce\(float32\(2, 5000\)\).*rank 1 .*comm\.all_reduce\(float32\(2,\)\)", shape
        )
        assert same == "the same"


LATE = """
import torch
import torch.distributed as dist
import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.collective import rooms
from oneflow.engine.world import join, order
world = join()
rooms._sharing(dist.group.WORLD).is_on = False
groups = [(0, 1), (0, 1, 2)]
collective.make_groups(groups)
if world.rank < 2:
    ranks = groups[world.rank]  # rank 0 waits for rank 1 in one group, rank 1 for rank 0 and 2 in another
    with order.meet("add", ranks, torch.ones(2)):
        collective.all_reduce(torch.ones(2), "sum", ranks)
else:
    with order.meet("add", (0, 1, 2), torch.ones(2)):
        collective.all_reduce(torch.ones(2), "sum", (0, 1, 2))
"""


def test_ranks_whose_time_is_over_compare_where_they_are():
    found = ended(start(3, LATE, ONEFLOW_STEP_TIMEOUT="1"))
    told = [ended for ended in found if "OrderError" in ended.last]
    assert told and all(one.code == 1 for one in found)
    assert re.search(
        r"rank 0 makes call 1 of ranks \[0, 1\], add\(float32\(2,\)\) at <string>:\d+; rank 1 makes call 1 of ranks \[0, 1, 2\]",
        told[0].last,
    )


JOB = """
import numpy as np
import oneflow as flow
import oneflow.typing as tp

@flow.global_function()
def double(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
    return x + x
"""


def test_a_job_in_a_program_of_peers_is_an_error_on_every_rank():
    program = f"{JOB}\nflow.env.get_rank()\ndouble(np.ones(4, np.float32))"
    for found in ended(start(2, program)):
        assert found.code == 1
        assert re.search(
            r"JobError: .*all ranks are peers, because of .* at <string>:10\. A job function cannot run here.*one of the two",
            found.last,
        )


def test_peers_in_a_program_of_jobs_are_an_error():
    program = f"{JOB}\nprint(double(np.ones(4, np.float32)).tolist(), flush=True)\nflow.comm.barrier()"
    driver, served = ended(start(2, program))
    assert driver.out == "[2.0, 2.0, 2.0, 2.0]\n" and driver.code == 1 and served.code == 0
    assert re.search(
        r"JobError: .*rank 0 drives the others, because of the job at <string>:10\. .*flow.comm.*only serve rank 0",
        driver.last,
    )


def test_alone_jobs_and_peers_go_together():
    @flow.global_function()
    def double(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        return x + x

    assert flow.env.get_rank() == 0
    assert double(np.ones(4, np.float32)).tolist() == [2.0] * 4
    flow.comm.barrier()


MACHINES = """
import torch
import oneflow as flow
x = torch.arange(3.0) + 10 * flow.env.get_rank()
flow.comm.all_reduce(x)
print(x.tolist(), flow.env.get_node_size(), flow.env.get_local_rank())
"""


@needs_namespaces()
def test_ranks_on_two_machines_meet_through_the_network():
    with Network(2) as network:
        told = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": network.addresses[0],
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
        }
        ranks = [network.run(rank, MACHINES, RANK=str(rank), **told) for rank in range(2)]
        for rank in ranks:
            assert rank.communicate(timeout=60)[0] == "[10.0, 12.0, 14.0] 2 0\n"


@needs_namespaces()
def test_a_machine_whose_plug_is_pulled_is_named_when_the_time_is_over():
    program = f"{MACHINES}\nprint('met', flush=True)\nflow.comm.recv(1 - flow.env.get_rank())"
    with Network(2) as network:
        told = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": network.addresses[0],
            "MASTER_PORT": str(free_port()),
            "ONEFLOW_STEP_TIMEOUT": "3",
        }
        ranks = [network.run(rank, program, RANK=str(rank), **told) for rank in range(2)]
        for rank in ranks:
            assert rank.stdout is not None
            assert [rank.stdout.readline() for _ in range(2)][-1] == "met\n"
        network.cut(1)
        for number, rank in enumerate(ranks):
            _, err = rank.communicate(timeout=60)
            assert rank.returncode == 1
            assert (
                f"rank {number} on {socket.gethostname()} waited in vain for rank {1 - number} on "
                f"{socket.gethostname()}" in err
            )
