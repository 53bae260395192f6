"""What an op on global tensors costs besides the work on its parts: two ranks of one thread, DTensor in turns in the
same processes.

``python benchmarks/global_ops.py [--rounds N] [--calls N] [--small]``
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from measure import alternate, machine, parse

_ROWS, _COLUMNS = 64, 64


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]]:
    """Each op on global tensors, on DTensors, and on this rank's parts alone."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import oneflow as flow

    place = flow.placement.all("cpu")
    x, y, w = (
        flow.randn(_ROWS, _COLUMNS, placement=place, sbp=sbp)
        for sbp in (flow.sbp.split(0), flow.sbp.split(0), flow.sbp.broadcast)
    )
    mesh = init_device_mesh("cpu", (flow.env.get_world_size(),))
    a, b, c = (
        distribute_tensor(torch.randn(_ROWS, _COLUMNS), mesh, [kind]) for kind in (Shard(0), Shard(0), Replicate())
    )
    p, q, r = x.to_local(), y.to_local(), w.to_local()
    return {
        "x + y, both S(0)": (lambda: x + y, lambda: a + b, lambda: p + q),
        "relu(x), S(0)": (lambda: torch.relu(x), lambda: torch.relu(a), lambda: torch.relu(p)),
        "x @ w, S(0) and B": (lambda: x @ w, lambda: a @ c, lambda: p @ r),
        "x.t(), S(0)": (lambda: x.t(), lambda: a.t(), lambda: p.t()),
        "softmax(x, 1), S(0)": (lambda: torch.softmax(x, 1), lambda: torch.softmax(a, 1), lambda: torch.softmax(p, 1)),
        "x.sum(), S(0), a partial sum": (lambda: x.sum(), lambda: a.sum(), lambda: p.sum()),
    }


def measure(calls: int, rounds: int) -> None:
    """Rank 0 tells; the other one does the same beside it."""
    import torch

    torch.set_num_threads(1)
    for name, (ours, rival, local) in cases().items():
        found, other, alone = alternate({"global": ours, "DTensor": rival, "part": local}, calls, rounds)
        if os.environ["RANK"] == "0":
            print(
                f"{name}: {1e6 * found.median:.1f} us ({1e6 * found.low:.1f} to {1e6 * found.high:.1f}), DTensor "
                f"{1e6 * other.median:.1f} us, "
                f"the parts alone {1e6 * alone.median:.1f} us, ratio {other.median / found.median:.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=500, help="calls a round")
    args = parse(parser, {"rounds": 1, "calls": 10})
    if "RANK" in os.environ:
        measure(args.calls, args.rounds)
        return
    print(machine(), flush=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    own = [{**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    command = [sys.executable, __file__, "--rounds", str(args.rounds), "--calls", str(args.calls)]
    ranks = [subprocess.Popen(command, env=variables) for variables in own]
    if any([rank.wait() for rank in ranks]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
