"""``flow.nn.parallel`` in a world of one; ``tests/ranks/test_comm.py`` trains on several ranks."""

from __future__ import annotations

import torch

import oneflow as flow


def data_parallel() -> None:
    module = torch.nn.Linear(2, 2)
    assert flow.nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, bucket_size=5) is module


CALLS = {"oneflow.nn.parallel.DistributedDataParallel": data_parallel}
