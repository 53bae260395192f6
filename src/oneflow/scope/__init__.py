"""``flow.scope``: placements, namespaces and views that hold for the ops inside a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from oneflow.engine.core.errors import ArgumentError, JobError, user_line
from oneflow.engine.core.placement import Placement, parse_placement
from oneflow.engine.ir.trace import current, require_trace

__all__ = [
    "consistent_view",
    "consistent_view_enabled",
    "current_scope",
    "mirrored_view",
    "mirrored_view_enabled",
    "namespace",
    "placement",
]


class PlacementScope:
    """``with flow.scope.placement("gpu", "0:0-3"):`` the ops inside run there; the innermost scope wins."""

    def __init__(
        self, device_type: str, devices: str | Sequence[str], hierarchy: tuple[int, ...] | None = None
    ) -> None:
        self.placement: Placement = parse_placement(device_type, devices, hierarchy)

    def __enter__(self) -> PlacementScope:
        require_trace("with flow.scope.placement").placements.append(self.placement)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        require_trace("flow.scope.placement").placements.pop()


def placement(
    device_tag: str, machine_device_ids: str | Sequence[str], hierarchy: tuple[int, ...] | None = None
) -> PlacementScope:
    """A placement scope: device type "gpu" or "cpu", devices such as "0:0-3" or ["0:0-1", "1:0"]."""
    return PlacementScope(device_tag, machine_device_ids, hierarchy)


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """Prefixes the names of ops and variables made inside with ``name`` and "-"."""
    if not isinstance(name, str) or not name or "/" in name:
        raise ArgumentError(f"a namespace is a name without '/', got {name!r}")
    trace = require_trace("with flow.scope.namespace")
    trace.namespaces.append(name)
    try:
        yield
    finally:
        trace.namespaces.pop()


@dataclass
class View:
    """Consistent (one logical tensor) or mirrored (a list with one tensor per device); the same on one device."""

    mirrored: bool

    def __enter__(self) -> View:
        trace = require_trace("with flow.scope.*_view")
        self._before = trace.settings.mirrored
        if self.mirrored != self._before and trace.graph.other_view is None:
            trace.graph.other_view = user_line()
        trace.settings.mirrored = self.mirrored
        return self

    def __exit__(self, *_: Any) -> None:
        require_trace("flow.scope.*_view").settings.mirrored = self._before


def consistent_view() -> View:
    """Tensors are whole; how they lie over devices is the compiler's work."""
    return View(False)


def mirrored_view() -> View:
    """Each device has a tensor of its own; inputs and results are lists."""
    return View(True)


def mirrored_view_enabled() -> bool:
    """Whether ops made here are in the mirrored view."""
    return bool(require_trace("flow.scope.mirrored_view_enabled").settings.mirrored)


def consistent_view_enabled() -> bool:
    """Whether ops made here are in the consistent view."""
    return not mirrored_view_enabled()


def current_scope() -> Placement:
    """The placement that ops made here get."""
    trace = current()
    if trace is None:
        raise JobError("flow.scope.current_scope is known only inside a job body")
    return trace.placements[-1]
