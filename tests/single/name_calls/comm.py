"""``flow.comm`` in a world of one, where each exchange gives back what it was given; ``tests/ranks/test_comm.py`` has
the others."""

from __future__ import annotations

import pytest
import torch

import oneflow as flow


def kept(call) -> None:
    """A call that leaves its tensor as it is."""
    x = torch.arange(6.0).view(2, 3)
    call(x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def copied(call) -> None:
    """A call that writes its second argument into the first."""
    x, y = torch.arange(6.0).view(2, 3), torch.zeros(2, 3)
    call(y, x)
    assert torch.equal(x, y)


def nobody_to_send_to() -> None:
    with pytest.raises(ValueError, match="this rank itself"):
        flow.comm.send(torch.ones(2), 0)


def nobody_to_hear() -> None:
    with pytest.raises(ValueError, match="this rank itself"):
        flow.comm.recv(0)


CALLS = {
    "oneflow.comm.all_gather": lambda: copied(lambda y, x: flow.comm.all_gather([y], x)),
    "oneflow.comm.all_gather_into_tensor": lambda: copied(flow.comm.all_gather_into_tensor),
    "oneflow.comm.all_reduce": lambda: kept(flow.comm.all_reduce),
    "oneflow.comm.all_to_all": lambda: copied(lambda y, x: flow.comm.all_to_all([y], [x])),
    "oneflow.comm.barrier": lambda: kept(lambda x: flow.comm.barrier()),
    "oneflow.comm.broadcast": lambda: kept(lambda x: flow.comm.broadcast(x, 0)),
    "oneflow.comm.gather": lambda: copied(lambda y, x: flow.comm.gather(x, [y])),
    "oneflow.comm.recv": nobody_to_hear,
    "oneflow.comm.reduce": lambda: kept(lambda x: flow.comm.reduce(x, 0)),
    "oneflow.comm.reduce_scatter": lambda: copied(lambda y, x: flow.comm.reduce_scatter(y, [x])),
    "oneflow.comm.reduce_scatter_tensor": lambda: copied(flow.comm.reduce_scatter_tensor),
    "oneflow.comm.scatter": lambda: copied(lambda y, x: flow.comm.scatter(y, [x])),
    "oneflow.comm.send": nobody_to_send_to,
}
