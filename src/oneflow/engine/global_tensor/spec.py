"""What is known of a global tensor without its data: logical shape, strides and dtype, where it lies and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch

from oneflow.engine.core.region import local_shape
from oneflow.engine.core.sbp import BROADCAST
from oneflow.engine.sharding.mesh import Layout, NdSbp

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Spec:
    """Instances come from ``spec_of``, one for each content, so they are compared and hashed by identity: what an op
    decides is looked up by them at every call."""

    shape: Shape
    stride: Shape
    dtype: torch.dtype
    layout: Layout
    device: torch.device

    @property
    def sbp(self) -> NdSbp:
        return self.layout.sbp

    @cached_property
    def shown(self) -> torch.device:
        """The device that torch is told: autograd ends the process at one that this machine has not, such as those of a
        planned world."""
        type = self.device.type
        return self.device if type == "cpu" or getattr(torch, type).is_available() else torch.device("meta")

    def laid(self, layout: Layout) -> Spec:
        """The same tensor in another layout."""
        return spec_of(self.shape, self.stride, self.dtype, layout, self.device)

    def part(self, rank: int) -> Shape:
        """The shape of a rank's part; zeros where it holds none."""
        position = self.layout.mesh.position(rank)
        return (
            (0,) * len(self.shape)
            if position is None
            else local_shape(self.shape, self.sbp, self.layout.mesh.axes, position)
        )

    def meta(self) -> torch.Tensor:
        """A tensor of this shape, dtype and these strides without data."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


@lru_cache(maxsize=1 << 16)
def spec_of(shape: Shape, stride: Shape, dtype: torch.dtype, layout: Layout, device: torch.device) -> Spec:
    """The spec of this content."""
    return Spec(shape, stride, dtype, layout, device)


def contiguous(shape: Sequence[int]) -> Shape:
    """The strides of a tensor whose elements follow one another."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def fresh(shape: Sequence[int], dtype: torch.dtype, layout: Layout, device: torch.device) -> Spec:
    """The spec of a tensor made anew."""
    return spec_of(tuple(shape), contiguous(shape), dtype, layout, device)


def in_order_of(like: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A part in channels-last memory if another one lies so, else contiguous: copied if it lies otherwise."""
    is_last = (
        like.dim() == value.dim() == 4
        and like.is_contiguous(memory_format=torch.channels_last)
        and not like.is_contiguous()
    )
    return value.contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)


def without_sums(sbp: NdSbp) -> NdSbp:
    """The layout in which a tensor lies whole along the axes where it was a partial sum."""
    return tuple(BROADCAST if one.kind == "P" else one for one in sbp)
