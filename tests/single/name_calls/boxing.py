"""``flow.boxing``: what it sets, a graph compiled afterwards has. ``tests/ranks/graph_settings.py`` sees the
buckets."""

from __future__ import annotations

from dataclasses import replace

import pytest

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.graph.fusion import FUSION


def fusion() -> None:
    before = FUSION.limits()
    flow.boxing.enable_fusion(False)
    assert FUSION.limits() == replace(before, tensors=1)
    flow.boxing.enable_fusion()
    assert FUSION.limits() == before


def thresholds() -> None:
    before = FUSION.limits()
    try:
        flow.boxing.nccl.set_fusion_threshold_mbytes(4)
        flow.boxing.nccl.set_fusion_max_ops_num(24)
        assert (FUSION.limits().bytes, FUSION.limits().tensors) == (4 * 2**20, 24)
    finally:
        FUSION._limits = before
    for name, call in (
        ("mbytes", flow.boxing.nccl.set_fusion_threshold_mbytes),
        ("max_ops_num", flow.boxing.nccl.set_fusion_max_ops_num),
    ):
        with pytest.raises(ArgumentError, match=name):
            call(0)


def taken() -> None:
    import oneflow.boxing.nccl as nccl

    assert nccl.enable_use_compute_stream(True) is None and nccl.disable_group_boxing_by_dst_parallel(True) is None
    with pytest.raises(ArgumentError, match="enable"):
        nccl.enable_use_compute_stream("yes")


CALLS = {
    "oneflow.boxing.enable_fusion": fusion,
    "oneflow.boxing.nccl.set_fusion_threshold_mbytes": thresholds,
    "oneflow.boxing.nccl.enable_use_compute_stream": taken,
}
