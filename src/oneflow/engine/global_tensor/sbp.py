"""The SBP of global tensors as users write it: ``flow.sbp.split(0)``, ``flow.sbp.broadcast``,
``flow.sbp.partial_sum``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from oneflow.engine.core import sbp as core
from oneflow.engine.core.errors import GlobalTensorError


class sbp:
    """How a tensor lies along one axis of a placement. There is one value for each layout, so ``is`` and ``==`` compare
    them."""

    __slots__ = ("_layout",)

    def __init__(self, layout: core.Sbp) -> None:
        if not isinstance(layout, core.Sbp):
            raise GlobalTensorError(
                f"an SBP comes from flow.sbp.split(dim), flow.sbp.broadcast or flow.sbp.partial_sum, got {layout!r}"
            )
        self._layout = layout

    def __call__(self) -> sbp:
        """``flow.sbp.broadcast()`` is ``flow.sbp.broadcast``."""
        if self._layout.kind == "S":
            raise TypeError("flow.sbp.split(dim) is a value already and is not called")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, sbp) and other._layout is self._layout

    def __hash__(self) -> int:
        return hash(self._layout)

    def __reduce__(self) -> tuple[object, ...]:
        return public, (self._layout,)

    def __repr__(self) -> str:
        names = {
            "B": "broadcast",
            "P": "partial_sum",
            "auto": "auto",
        }  # auto: of a value of a graph that is being built
        return (
            f"oneflow.sbp.split(dim={self._layout.dim})"
            if self._layout.kind == "S"
            else f"oneflow.sbp.{names[self._layout.kind]}"
        )


@lru_cache(maxsize=None)
def public(layout: core.Sbp) -> sbp:
    """The public value of a layout."""
    return sbp(layout)


def split(dim: int) -> sbp:
    """Each rank holds a slice of dimension ``dim``; the first ranks hold one more where it does not come out even."""
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise GlobalTensorError(f"the axis to split is a whole number, got {dim!r}")
    if dim < 0:
        raise GlobalTensorError(f"Split axis must not be negative, but got {dim}!")
    return public(core.split(dim))


broadcast = public(core.BROADCAST)
partial_sum = public(core.PARTIAL)


def layouts_of(given: object, axes: Sequence[int]) -> tuple[core.Sbp, ...]:
    """The layouts, one for each axis of a placement, that a user has given: one value for a single axis, or a list or
    tuple."""
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    wrong = [value for value in values if not isinstance(value, sbp)]
    if wrong:
        raise GlobalTensorError(
            f"sbp is flow.sbp.split(dim), flow.sbp.broadcast or flow.sbp.partial_sum, or a tuple with one for each "
            f"axis of the "
            f"placement, got {wrong[0]!r}"
        )
    if len(values) != len(axes):
        raise GlobalTensorError(
            f"one SBP for each axis of the placement: ({len(values)} vs {len(axes)}); the placement has the axes "
            f"{tuple(axes)}, sbp is {values}"
        )
    return tuple(value._layout for value in values)
