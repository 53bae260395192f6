"""``python -m oneflow.distributed.launch --nproc_per_node 4 train.py``: starts one process per rank of this machine and
watches them.

Each finds who it is in the variables that torchrun sets too: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT. The launcher of the first machine serves the store by which the ranks find each other, so none
of them must outlive the others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from oneflow.distributed.watch import RankCommand, watch
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.runtime.launch.addresses import listen, resolve
from oneflow.engine.runtime.launch.limits import step_seconds

_NAME = "oneflow.distributed.launch"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code is 0 if every rank's is."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        _check(args)
        commands = rank_commands(args, os.environ)
        with _store(args):
            return watch(commands)
    except ArgumentError as error:
        parser.error(error.reason)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_NAME}", description="Starts one process per rank on this machine."
    )
    add = parser.add_argument
    add("--nnodes", type=int, default=1, help="the number of machines")
    add("--node_rank", type=int, default=0, help="this machine's place among them, counted from 0")
    add("--nproc_per_node", type=int, default=1, help="processes per machine, one per device")
    add("--master_addr", default="127.0.0.1", help="an address of the first machine that the others can reach")
    add("--master_port", type=int, default=29500, help="a free port there")
    add("-m", "--module", action="store_true", help="the script is the name of a module, as with python -m")
    add("--no_python", action="store_true", help="run the script itself, not python with it")
    add(
        "--redirect_stdout_and_stderr",
        action="store_true",
        help="write them to LOGDIR/local_rank_<r>/stdout and stderr",
    )
    add("--logdir", default="log", help="the folder for logs")
    add("training_script", help="what every rank runs")
    add("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _check(args: argparse.Namespace) -> None:
    if args.nnodes < 1 or args.nproc_per_node < 1:
        raise ArgumentError(f"--nnodes {args.nnodes} --nproc_per_node {args.nproc_per_node}: both must be at least 1")
    if not 0 <= args.node_rank < args.nnodes:
        raise ArgumentError(f"--node_rank {args.node_rank} of {args.nnodes} machines; they are counted from 0")
    if not 0 < args.master_port < 2**16:
        raise ArgumentError(f"--master_port {args.master_port}; use a number from 1 to {2**16 - 1}")
    if args.module and args.no_python:
        raise ArgumentError("--module and --no_python together: a module is run by python")
    if args.nnodes > 1 and all(found.startswith("127.") or found == "::1" for found in resolve(args.master_addr)):
        raise ArgumentError(
            f"--master_addr {args.master_addr} is only known to one machine itself; give an address that all of them "
            f"can reach"
        )


def rank_commands(args: argparse.Namespace, environment: Mapping[str, str]) -> list[RankCommand]:
    """What to run for each rank of this machine, and with which variables."""
    common = {**environment, **_common_variables(args, environment)}
    commands = []
    for local in range(args.nproc_per_node):
        rank, logs = args.node_rank * args.nproc_per_node + local, Path(args.logdir, f"local_rank_{local}")
        own = {"RANK": str(rank), "LOCAL_RANK": str(local), "GLOG_log_dir": str(logs)}
        commands.append(
            RankCommand(rank, _command(args), {**common, **own}, logs if args.redirect_stdout_and_stderr else None)
        )
    return commands


def _common_variables(args: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    found = {
        "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": str(args.master_port),
        "WORLD_SIZE": str(args.nnodes * args.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as torchrun says that the launcher serves the store
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    if args.nproc_per_node > 1 and "OMP_NUM_THREADS" not in environment:
        found["OMP_NUM_THREADS"] = "1"
        print(
            f"{_NAME}: OMP_NUM_THREADS is not set and becomes 1, so that the processes do not fight for cores; set it "
            f"if each may use more",
            file=sys.stderr,
        )
    return found


def _command(args: argparse.Namespace) -> list[str]:
    before = [] if args.no_python else [sys.executable, "-u", *(["-m"] if args.module else [])]
    return [*before, args.training_script, *args.training_script_args]


@contextlib.contextmanager
def _store(args: argparse.Namespace) -> Iterator[None]:
    """On the first machine: serves the store of the ranks as long as the context lasts."""
    if args.node_rank:
        yield
        return
    try:
        listener = listen(args.master_addr, args.master_port)
    except OSError as error:
        raise ArgumentError(
            f"cannot listen at {args.master_addr} port {args.master_port} ({error.strerror}); --master_addr must be an "
            f"address of this machine, "
            "and --master_port a port that nothing else uses"
        ) from None
    host, port = listener.getsockname()[:2]
    limit = timedelta(seconds=step_seconds())
    store = dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), timeout=limit
    )
    yield
    del store


if __name__ == "__main__":
    raise SystemExit(main())
