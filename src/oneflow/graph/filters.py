"""Filters of convolutions lie in channels-last memory in a graph, as those of jobs do: kernels are faster, and gradients come out so."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def lay_out_filters(modules: Mapping[str, nn.Module]) -> None:
    """Brings the filters of two-dimensional convolutions into channels-last memory. Names, shapes and values stay; only strides change."""
    for module in modules.values():
        for layer in module.modules():
            weight = layer._parameters.get("weight") if isinstance(layer, _CONVOLUTIONS) else None
            if weight is not None and not weight.is_contiguous(memory_format=torch.channels_last):
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
