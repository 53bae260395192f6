"""A rank that is killed, stopped or fails inside a graph, while it is built or in a step, is one error that names it on
the others, within seconds."""

from __future__ import annotations

import signal

import pytest
from warm_ranks import started

PROGRAM = """
import os, signal, sys
import torch
from torch import nn
import oneflow as flow

how, where = sys.argv[1:]
rank, place = int(os.environ["RANK"]), flow.placement.all("cpu")
torch.set_num_threads(1)

def fail():
    print("fails", flush=True)
    if how == "raises":
        raise IndexError("no such picture")
    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)

class Train(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 2)).to_global(place, flow.sbp.broadcast)
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))

    def build(self, ids):
        if where == "build" and rank == 1:
            fail()
        loss = self.model(ids).square().mean()
        loss.backward()
        return loss

try:
    graph = Train()
    for step in range(4):
        ids = torch.full((2, 3), 3)
        if where == "step" and rank == 1 and step == 2:
            if how == "raises":
                ids[:] = 4  # the look-up fails on this rank alone, in the midst of the step
                print("fails", flush=True)
            else:
                fail()
        graph(ids.to_global(place, flow.sbp.split(0)))
    print("all steps were done")
except Exception as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(3)
"""
EXPECTED = {
    ("killed", "build"): ("PeerError", "rank 1"),
    ("stopped", "build"): ("PeerError", "rank 1"),
    ("raises", "build"): ("GraphError", "rank 1 could not build the graph: IndexError: no such picture"),
    ("killed", "step"): ("PeerError", "rank 1"),
    ("stopped", "step"): ("PeerError", "rank 1"),
    ("raises", "step"): ("PeerError", "rank 1"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("how", "where"), EXPECTED, ids=[" in ".join(key) for key in EXPECTED])
def test_a_rank_that_fails_inside_a_graph_is_named_on_the_other(how: str, where: str) -> None:
    ranks = started(2, "-c", PROGRAM, how, where, ONEFLOW_STEP_TIMEOUT="5" if how == "stopped" else "30")
    try:
        out, errors = ranks[0].communicate(timeout=120)
        kind, told = EXPECTED[how, where]
        assert ranks[0].returncode == 3 and out.startswith(f"{kind}: ") and told in out, (out, errors)
        assert len(out.splitlines()) == 1
    finally:
        for process in ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        other, _ = ranks[1].communicate()
    assert other.startswith("fails")
    if how == "raises":  # its own error is that of the user's code, with the op where it was in the midst of a step
        assert (
            "IndexError: no such picture" if where == "build" else "failed at step 2 in op 'model.0' (Embedding)"
        ) in other
