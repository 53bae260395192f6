"""``flow.env`` in a world of one."""

from __future__ import annotations

import pytest

import oneflow as flow
from oneflow.engine.core.errors import UnsupportedError


def refused_rdma() -> None:
    with pytest.raises(UnsupportedError, match="NCCL uses RDMA by itself"):
        flow.env.init_rdma()


def no_rdma() -> None:
    assert flow.env.rdma_is_initialized() is False


def nothing_to_end() -> None:
    assert flow.env.destory_rdma() is None


def of_both_eras() -> None:
    import oneflow.env as env

    assert env is flow.env and env.get_rank() == 0
    assert env.machine([{"addr": "127.0.0.1"}]) is True  # as programs of job functions write it
    with pytest.raises(AttributeError, match="flow.env has no member 'get_runk'"):
        env.get_runk  # noqa: B018
    with pytest.raises(AssertionError, match=r"write flow.env.ctrl_port\(12\)"):
        env.ctrl_port = 12
    assert {"get_rank", "machine"} <= set(dir(env))


def world_size() -> None:
    assert flow.env.get_world_size() == 1


def local_rank() -> None:
    assert flow.env.get_local_rank() == 0


def node_size() -> None:
    assert flow.env.get_node_size() == 1


CALLS = {
    "oneflow.env.destory_rdma": nothing_to_end,
    "oneflow.env.get_local_rank": local_rank,
    "oneflow.env.get_node_size": node_size,
    "oneflow.env.get_rank": of_both_eras,
    "oneflow.env.get_world_size": world_size,
    "oneflow.env.init_rdma": refused_rdma,
    "oneflow.env.rdma_is_initialized": no_rdma,
}
