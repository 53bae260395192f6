"""``python -m oneflow.distributed.launch``: one process per rank, and the end of one that fails is the end of all."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from networks import Network, needs_namespaces
from peers import free_port
from processes import are_gone, is_alive, until
from warm_python import WARM

from oneflow.distributed import launch
from oneflow.distributed import watch as watching
from oneflow.distributed.watch import RankCommand, watch

HOST = socket.gethostname()
WAIT = "import time; time.sleep(100)"


def commands(*programs: str, logs: Path | None = None, **variables: str) -> list[RankCommand]:
    """Ranks that are small programs without torch."""
    environment = {**os.environ, **variables}
    return [
        RankCommand(rank, [sys.executable, "-IS", "-c", program], environment, logs and logs / f"local_rank_{rank}")
        for rank, program in enumerate(programs)
    ]


def test_the_end_of_a_rank_is_no_signal_to_the_launcher(capfd):
    before = signal.signal(signal.SIGCHLD, lambda *_: None)  # as torch's DataLoader leaves it where it has had workers
    try:
        assert watch(commands("import time; time.sleep(0.2)", "pass")) == 0
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert capfd.readouterr() == ("", "")


def test_ranks_that_end_well(capfd):
    hello = "import sys; print('out'); print('err', file=sys.stderr)"
    assert watch(commands(hello, hello)) == 0
    assert capfd.readouterr() == ("out\nout\n", "err\nerr\n")


def test_the_error_of_the_first_rank_that_fails_comes_last_and_ends_all(capfd):
    began = time.monotonic()
    crying = "import sys, time\nprint('something else', file=sys.stderr, flush=True)\ntime.sleep(100)"
    assert watch(commands(crying, "import sys; sys.stderr.write('before\\n'); [][1]", crying)) == 1
    assert time.monotonic() - began < 5
    last = capfd.readouterr().err.partition("oneflow.distributed.launch: ")[2].splitlines()
    assert last[0].startswith("rank 1 (process ") and last[0].endswith(
        f" on {HOST}) failed with exit code 1, so all ranks were ended; the last it has written:"
    )
    assert last[1] == "Traceback (most recent call last):" and last[-1] == "IndexError: list index out of range"


def test_a_rank_that_is_killed_is_named_with_the_signal(capfd):
    assert watch(commands(WAIT, "import os; os.kill(os.getpid(), 9)")) == 128 + signal.SIGKILL
    assert f"on {HOST}) was ended by SIGKILL, so all ranks were ended" in capfd.readouterr().err


def test_the_exit_code_is_that_of_the_first(capfd):
    assert watch(commands(WAIT, "raise SystemExit(7)")) == 7
    assert "failed with exit code 7" in capfd.readouterr().err


@pytest.mark.parametrize(
    "deaf", ["import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", "import os; os.kill(os.getpid(), 19)"]
)
def test_ranks_that_do_not_listen_or_are_stopped_are_ended_too(capfd, monkeypatch, tmp_path, deaf):
    monkeypatch.setattr(watching, "_GRACE_SECONDS", 0.2)
    noted = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    failing = (
        f"import os, time\nwhile not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.01)\nraise SystemExit(2)"
    )
    assert watch(commands(f"{noted}\n{deaf}\n{WAIT}", failing)) == 2
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_what_a_rank_has_started_ends_with_it(capfd, tmp_path):
    child = f"import os, time\nif os.fork() == 0: time.sleep(100)\nopen({str(tmp_path / 'group')!r}, 'w').write(str(os.getpid()))\nraise SystemExit(3)"
    assert watch(commands(child)) == 3
    group = int((tmp_path / "group").read_text())
    assert until(lambda: not _group_lives(group))


def _group_lives(group: int) -> bool:
    """Whether a process of the group is there and no zombie."""
    found = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    for path in found:
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_goes_to_all_ranks(capfd, number):
    telling = f"import os, time\ntry:\n    os.kill(os.getppid(), {int(number)}); time.sleep(100)\nexcept KeyboardInterrupt:\n    print('interrupted')"
    assert watch(commands(WAIT, telling)) == 128 + number
    out, err = capfd.readouterr()
    assert out == ("interrupted\n" if number == signal.SIGINT else "")
    assert f"ended by {signal.Signals(number).name}, and all ranks with it" in err


def test_after_the_second_signal_nobody_is_asked(capfd):
    deaf = "import os, signal, time\nsignal.signal(signal.SIGINT, lambda *_: os.kill(os.getppid(), 2))\nos.kill(os.getppid(), 2)\ntime.sleep(100); time.sleep(100)"
    assert watch(commands(deaf)) == 130


def test_output_goes_to_files_and_the_error_is_still_told(capfd, tmp_path):
    program = "import sys; print('out'); sys.exit('a reason')"
    assert watch(commands(program, logs=tmp_path)) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.endswith("the last it has written:\na reason\n")
    assert [(tmp_path / "local_rank_0" / name).read_text() for name in ("stdout", "stderr")] == ["out\n", "a reason\n"]


def test_a_command_that_cannot_be_run():
    with pytest.raises(ValueError, match="'/no/such/program' cannot be run: No such file or directory"):
        watch([RankCommand(0, ["/no/such/program"], dict(os.environ), None)])


def parsed(*argv: str) -> argparse.Namespace:
    return launch._parser().parse_args(argv)


def test_every_flag_has_the_published_default():
    found = vars(parsed("train.py", "--lr", "0.1"))
    script = {"training_script": "train.py", "training_script_args": ["--lr", "0.1"]}
    machine = {"nnodes": 1, "node_rank": 0, "nproc_per_node": 1, "master_addr": "127.0.0.1", "master_port": 29500}
    assert found == {
        **script,
        **machine,
        "module": False,
        "no_python": False,
        "redirect_stdout_and_stderr": False,
        "logdir": "log",
    }


def test_each_rank_is_told_who_it_is():
    args = parsed(
        "--nnodes=2",
        "--node_rank=1",
        "--nproc_per_node=3",
        "--master_addr=10.0.0.1",
        "--master_port=1234",
        "a.py",
        "-x",
    )
    found = launch.rank_commands(args, {"OMP_NUM_THREADS": "4", "OTHER": "kept"})
    assert [command.rank for command in found] == [3, 4, 5]
    assert found[2].command == [sys.executable, "-u", "a.py", "-x"] and found[2].logs is None
    told = {
        "RANK": "5",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1234",
    }
    assert {**told, "OMP_NUM_THREADS": "4", "OTHER": "kept", "GLOG_log_dir": "log/local_rank_2"}.items() <= found[
        2
    ].environment.items()


def test_one_thread_per_rank_unless_the_user_says_otherwise(capsys):
    (alone,) = launch.rank_commands(parsed("a.py"), {})
    assert "OMP_NUM_THREADS" not in alone.environment and not capsys.readouterr().err
    two = launch.rank_commands(parsed("--nproc_per_node=2", "a.py"), {})
    assert [command.environment["OMP_NUM_THREADS"] for command in two] == ["1", "1"]
    assert "OMP_NUM_THREADS is not set and becomes 1" in capsys.readouterr().err


def test_modules_and_programs_that_are_not_python(tmp_path):
    (module,) = launch.rank_commands(parsed("-m", "some.module", "x"), {})
    assert module.command == [sys.executable, "-u", "-m", "some.module", "x"]
    (program,) = launch.rank_commands(
        parsed("--no_python", "--redirect_stdout_and_stderr", f"--logdir={tmp_path}", "/bin/true"), {}
    )
    assert program.command == ["/bin/true"] and program.logs == tmp_path / "local_rank_0"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--nproc_per_node=0"], "--nnodes 1 --nproc_per_node 0: both must be at least 1"),
        (
            ["--nnodes=2", "--node_rank=2", "--master_addr=10.0.0.1"],
            "--node_rank 2 of 2 machines; they are counted from 0",
        ),
        (["--master_port=70000"], "--master_port 70000; use a number from 1 to 65535"),
        (["-m", "--no_python"], "--module and --no_python together"),
        (["--nnodes=2"], "--master_addr 127.0.0.1 is only known to one machine itself"),
        (["--master_addr=10.213.99.1"], "cannot listen at 10.213.99.1 port 29500 .Cannot assign requested address"),
    ],
)
def test_flags_that_make_no_sense_are_refused(capsys, flags, reason):
    with pytest.raises(SystemExit, match="2"):
        launch.main([*flags, "a.py"])
    assert reason.replace(" .Cannot", " (Cannot") in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit, match="2"):
        launch.main([f"--master_port={taken.getsockname()[1]}", "a.py"])
    assert "(Address already in use); " in capsys.readouterr().err


RANK = """
import contextlib, os, select, sys
import torch
import oneflow as flow
from oneflow.engine import collective
x = torch.ones(2)
flow.comm.all_reduce(x)
os.write(1, f"{x.tolist()} {flow.env.get_local_rank()}\\n".encode())  # in one piece: ranks write at once
if sys.argv[1] == "raise" and flow.env.get_rank() == 1:
    raise ValueError("a bad day")
if sys.argv[1] == "stop" and flow.env.get_rank() == 1:
    os.kill(os.getpid(), 19)
if sys.argv[1] == "early":
    first = torch.tensor(os.getpid())
    flow.comm.broadcast(first, 0)
    if flow.env.get_rank() == 0:
        sys.exit()
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(first.item())], [], [])
    os.write(1, f"{collective.all_reduce(torch.ones(1), 'sum', (1, 2)).item()}\\n".encode())
elif sys.argv[1] != "well":
    flow.comm.all_reduce(x)
"""


def launched(size: int, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """The whole command; launcher and ranks are forks of a warm interpreter."""
    command = [
        *WARM.command(),
        "-m",
        "oneflow.distributed.launch",
        f"--nproc_per_node={size}",
        f"--master_port={free_port()}",
        "--no_python",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [*command, *WARM.command(), "-c", RANK, *arguments], env=environment, capture_output=True, text=True, timeout=90
    )


def test_ranks_of_the_launcher_meet():
    done = launched(2, "well")
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, ["[2.0, 2.0] 0", "[2.0, 2.0] 1"], "")


def test_a_rank_that_raises_is_told_last():
    done = launched(2, "raise")
    assert done.returncode == 1
    assert "oneflow.distributed.launch: rank 1 " in done.stderr and done.stderr.splitlines()[-1].endswith(
        "ValueError: a bad day"
    )


def test_a_rank_that_is_stopped_ends_the_run_when_the_time_is_over():
    done = launched(2, "stop", ONEFLOW_STEP_TIMEOUT="1")
    assert done.returncode == 1
    assert f"rank 0 on {HOST} waited in vain for rank 1 on {HOST}" in done.stderr.splitlines()[-1]


def test_ranks_can_make_groups_after_the_first_rank_has_ended():
    done = launched(3, "early")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[3:] == ["2.0", "2.0"]


MACHINE = """
import sys
from oneflow.distributed.launch import main
sys.exit(main(sys.argv[1:]))
"""
FAR_RANK = """
import oneflow as flow
flow.comm.barrier()
print(flow.env.get_node_size(), flush=True)
if flow.env.get_rank() == 1:
    raise ValueError("a bad day")
flow.comm.barrier()
"""


@needs_namespaces()
@pytest.mark.slow
def test_a_rank_that_fails_ends_the_launchers_of_all_machines(tmp_path):
    (tmp_path / "rank.py").write_text(FAR_RANK, encoding="utf-8")
    with Network(2) as network:
        place = ["--nnodes=2", f"--master_addr={network.addresses[0]}", f"--master_port={free_port()}"]
        machines = [
            network.run(
                number, MACHINE, *place, f"--node_rank={number}", str(tmp_path / "rank.py"), OMP_NUM_THREADS="1"
            )
            for number in range(2)
        ]
        (out, err), (far_out, far_err) = [machine.communicate(timeout=90) for machine in machines]
    assert [machine.returncode for machine in machines] == [1, 1] and out == far_out == "2\n"
    assert f"waited in vain for rank 1 on {HOST}" in err.splitlines()[-1]
    assert far_err.splitlines()[-1].endswith("ValueError: a bad day")


LAUNCHER = """
import os, sys
from oneflow.distributed.watch import RankCommand, watch
print(os.getpid(), flush=True)
waiting = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
watch([RankCommand(rank, [sys.executable, "-IS", "-c", waiting], dict(os.environ), None) for rank in range(2)])
"""


def test_ranks_end_with_a_launcher_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [*WARM.command(), "-c", LAUNCHER], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        launcher, *ranks = [int(process.stdout.readline()) for _ in range(3)]
        os.kill(launcher, signal.SIGKILL)
        assert until(lambda: are_gone(ranks))
