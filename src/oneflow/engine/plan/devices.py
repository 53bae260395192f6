"""The devices that a plan is made for."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import as_whole, wholes
from oneflow.engine.core.placement import Placement

_TEXT = re.compile(r"\d+(x\d+)*")


def device_axes(devices: Any) -> tuple[int, ...]:
    """The axes that ``devices`` names: 1024 is one axis, "8x128" and (8, 128) are two."""
    single = as_whole(devices)
    if single is not None:
        axes: tuple[int, ...] | None = (single,)
    elif isinstance(devices, str) and _TEXT.fullmatch(devices):
        axes = tuple(map(int, devices.split("x")))
    else:
        axes = wholes(devices)
    if not axes or min(axes) < 1:
        raise ArgumentError(f"devices are a number such as 1024, or axes such as '8x128' or (8, 128); got {devices!r}")
    return axes


def placement_of(device_type: str, axes: tuple[int, ...]) -> Placement:
    """A placement with these axes. Of several axes the first is that of the machines; one axis is one machine."""
    machines, *inner = axes if len(axes) > 1 else (1, *axes)
    size = 1
    for extent in inner:
        size *= extent
    return Placement(device_type, tuple(product(range(machines), range(size))), axes if len(axes) > 1 else None)
