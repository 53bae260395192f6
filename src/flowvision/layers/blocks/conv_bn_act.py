"""Convolution, norm, activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oneflow.nn as nn


class ConvBnAct(nn.Sequential):
    """``act_layer`` or ``norm_layer`` None leaves it out; further arguments are the convolution's."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        act_layer: Callable[..., nn.Module] | None = nn.ReLU,
        conv: Callable[..., nn.Module] = nn.Conv2d,
        norm_layer: Callable[[int], nn.Module] | None = nn.BatchNorm2d,
        bias: bool = False,
        inplace: bool = True,
        **kwargs: Any,
    ) -> None:
        layers = [conv(in_features, out_features, bias=bias, **kwargs)]
        layers += [norm_layer(out_features)] if norm_layer else []
        layers += [act_layer(inplace=inplace)] if act_layer else []
        super().__init__(*layers)
