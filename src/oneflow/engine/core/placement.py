"""Placement (device mesh): a device type and the devices, in order, that a part of a graph runs on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import wholes

_DEVICES = re.compile(r"(\d+):(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Placement:
    """``device_type`` is "gpu" or "cpu"; ``devices`` are (machine, device) pairs in rank order."""

    device_type: str
    devices: tuple[tuple[int, int], ...]
    hierarchy: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        return len(self.devices)

    @property
    def axes(self) -> tuple[int, ...]:
        """The extent of each axis."""
        return self.hierarchy or (self.size,)

    def __str__(self) -> str:
        return f"{self.device_type}[{', '.join(f'{m}:{d}' for m, d in self.devices)}]"


def parse_placement(
    device_type: str, devices: str | Iterable[str], hierarchy: tuple[int, ...] | None = None
) -> Placement:
    """A placement from ``"gpu", "0:0-3"`` or ``"gpu", ["0:0-1", "1:0"]``; ranges are inclusive."""
    if device_type not in ("gpu", "cpu"):
        raise ArgumentError(f"a placement's device type is 'gpu' or 'cpu', got {device_type!r}")
    parts = list(devices) if isinstance(devices, Iterable) and not isinstance(devices, str) else [devices]
    pairs = [pair for part in parts for pair in _parse_part(part)]
    if not pairs:
        raise ArgumentError("a placement needs at least one device, such as '0:0'")
    if len(set(pairs)) != len(pairs):
        raise ArgumentError(f"a placement names each device once, got {parts}")
    return Placement(device_type, tuple(pairs), None if hierarchy is None else _parse_hierarchy(hierarchy, len(pairs)))


def _parse_hierarchy(hierarchy: object, count: int) -> tuple[int, ...]:
    extents = wholes(hierarchy)
    if not extents or min(extents) < 1:
        raise ArgumentError(
            f"a placement's hierarchy is a tuple with the extent of each axis, such as (2, 4); got {hierarchy!r}"
        )
    if math.prod(extents) != count:
        raise ArgumentError(f"hierarchy {extents} has room for {math.prod(extents)} devices, the placement has {count}")
    return extents


def _parse_part(part: object) -> list[tuple[int, int]]:
    match = _DEVICES.fullmatch(part.replace(" ", "")) if isinstance(part, str) else None
    if match is None:
        raise ArgumentError(
            f"devices are written 'machine:first' or 'machine:first-last', such as '0:0-3'; got {part!r}"
        )
    machine, first = int(match[1]), int(match[2])
    last = int(match[3]) if match[3] is not None else first
    if last < first:
        raise ArgumentError(f"the device range {part!r} ends before it begins")
    return [(machine, device) for device in range(first, last + 1)]
