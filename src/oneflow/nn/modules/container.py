"""``flow.nn.modules.container``: modules and parameters in lists and dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import ModuleDict, ModuleList, ParameterDict, Sequential

from oneflow.engine.core.errors import ArgumentError

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class ParameterList(torch.nn.ParameterList):
    """Parameters in a list; ``values``, torch's name of ``parameters``, is taken too."""

    def __init__(self, parameters: Iterable[Any] | None = None, *, values: Iterable[Any] | None = None) -> None:
        if parameters is not None and values is not None:
            raise ArgumentError("ParameterList: parameters and values are two names of one parameter; give one of them")
        super().__init__(values if parameters is None else parameters)
