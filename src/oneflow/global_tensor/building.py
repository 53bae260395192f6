"""What tensors answer while a graph of global tensors is built. They are traced by their logical shapes, without data, and stand for global ones:
where the graph runs is known, how a value lies only where it was said; the rest is inferred when all of the graph is there."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from oneflow.core.errors import GraphError
from oneflow.core.sbp import AUTO
from oneflow.global_tensor.placement import placement
from oneflow.global_tensor.sbp import layouts_of, public
from oneflow.sharding.mesh import NdSbp


class Building:
    """A graph of global tensors on ``place`` that is being built."""

    def __init__(self, place: placement) -> None:
        self.place = place
        self._known: dict[int, tuple[torch.Tensor, NdSbp]] = {}

    def note(self, tensor: torch.Tensor, sbp: NdSbp) -> torch.Tensor:
        """Says how a traced tensor lies; gives the tensor."""
        self._known[id(tensor)] = tensor, sbp
        return tensor

    def sbp(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """How a traced tensor lies, as users write it; ``auto`` for each axis where it is not settled yet."""
        known = self._known.get(id(tensor))
        return tuple(map(public, known[1] if known is not None else (AUTO,) * len(self.place.hierarchy)))

    def laid(self, tensor: torch.Tensor, place: Any, sbp: Any, grad_sbp: Any) -> torch.Tensor:
        """The same tensor, of which the compiler knows from here on how it must lie, and how its gradient."""
        if place is not None and place != self.place:
            raise GraphError(f"to_global in build() to {place}, the tensors of this graph lie on {self.place}; a graph runs on one placement")
        wanted = None if sbp is None else self._layouts(tensor, sbp)
        back = None if grad_sbp is None else self._layouts(tensor, grad_sbp)
        from oneflow.ops.structure import layout

        made = layout.compute(tensor, forward=_text(wanted), backward=_text(back))
        return self.note(made, wanted) if wanted is not None else made

    def _layouts(self, tensor: torch.Tensor, sbp: Any) -> NdSbp:
        found = layouts_of(sbp, self.place.hierarchy)
        highest = max((one.dim for one in found if one.dim is not None), default=-1)
        if highest >= tensor.dim():
            raise GraphError(f"to_global in build(): a tensor of {tensor.dim()} dims cannot be split along dim {highest}")
        return found


def _text(sbp: NdSbp | None) -> str:
    return "" if sbp is None else ",".join(map(str, sbp))


_CURRENT: contextvars.ContextVar[Building | None] = contextvars.ContextVar("building", default=None)


def current_building() -> Building | None:
    """The graph of global tensors that is being built; None where there is none."""
    return _CURRENT.get()


@contextmanager
def building(one: Building | None) -> Iterator[None]:
    """Has tensors answer as those of a graph that is being built."""
    token = _CURRENT.set(one)
    try:
        yield
    finally:
        _CURRENT.reset(token)
