"""``flow.nn.modules.pixelshuffle``: channels become pixels. Inside a job ``PixelShuffle`` is the job's op."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.compat.eras import EitherClass
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import whole
from oneflow.nn import _pool as jobs

__all__ = ["PixelShuffle"]


class PixelShuffle(torch.nn.PixelShuffle, metaclass=EitherClass):
    """(..., C · h · w, H, W) to (..., C, H · h, W · w): one ``upscale_factor`` for both, or one for the height and one
    for the width."""

    _of_job = staticmethod(jobs.PixelShuffle)

    def __init__(
        self,
        upscale_factor: int | None = None,
        h_upscale_factor: int | None = None,
        w_upscale_factor: int | None = None,
    ) -> None:
        given = (h_upscale_factor, w_upscale_factor) if upscale_factor is None else (upscale_factor, upscale_factor)
        if None in given or (upscale_factor is not None and (h_upscale_factor, w_upscale_factor) != (None, None)):
            raise ArgumentError(
                "PixelShuffle takes upscale_factor, or h_upscale_factor and w_upscale_factor; "
                f"got {upscale_factor!r}, {h_upscale_factor!r} and {w_upscale_factor!r}"
            )
        height, width = (whole("PixelShuffle's upscale factor", factor, above=0) for factor in given)
        super().__init__(height)
        self.h_upscale_factor, self.w_upscale_factor = height, width

    def forward(self, input: Tensor) -> Tensor:
        h, w = self.h_upscale_factor, self.w_upscale_factor
        if h == w:
            return super().forward(input)
        if input.dim() < 3 or input.shape[-3] % (h * w):
            raise ArgumentError(
                f"PixelShuffle by {h} x {w} takes (..., channels, height, width), channels a multiple of {h * w}; got "
                f"{tuple(input.shape)}"
            )
        split = input.unflatten(-3, (-1, h, w))  # ..., C, h, w, H, W
        return split.movedim((-4, -3), (-3, -1)).flatten(-4, -3).flatten(-2)

    def extra_repr(self) -> str:
        return f"h_upscale_factor={self.h_upscale_factor}, w_upscale_factor={self.w_upscale_factor}"
