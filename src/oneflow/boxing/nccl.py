"""``flow.boxing.nccl``: how collectives are put together. The names are OneFlow's; they hold for gloo and for memory
that ranks share as well as for NCCL."""

from __future__ import annotations

from oneflow.engine.core.number import flag, whole
from oneflow.engine.graph.fusion import FUSION

__all__ = [
    "disable_group_boxing_by_dst_parallel",
    "enable_use_compute_stream",
    "set_fusion_max_ops_num",
    "set_fusion_threshold_mbytes",
]


def set_fusion_threshold_mbytes(mbytes: int) -> None:
    """One bucket of gradients holds at most so many megabytes, 16 unless told; a larger gradient has one of its own."""
    FUSION.set_bytes(whole("mbytes", mbytes, above=0) * 2**20)


def set_fusion_max_ops_num(max_ops_num: int) -> None:
    """One bucket of gradients holds at most so many of them; unless told, any number."""
    FUSION.set_tensors(whole("max_ops_num", max_ops_num, above=0))


def enable_use_compute_stream(enable: bool = True) -> None:
    """Taken, changes nothing: a program's collectives are in its own order always, which is what this asks for."""
    flag("enable", enable)


def disable_group_boxing_by_dst_parallel(enable: bool = True) -> None:
    """Taken, changes nothing: a gather stands where its value is first read; gathers of parameters are not put
    together."""
    flag("enable", enable)
