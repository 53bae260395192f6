"""What tensors answer while a graph of global tensors is built. They are traced by their logical shapes, without data,
and stand for global ones: where the graph runs is known, how a value lies only where it was said; the rest is inferred
when all of the graph is there."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from oneflow.engine.core.errors import GraphError
from oneflow.engine.core.sbp import AUTO, format_layout
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import layouts_of, public
from oneflow.engine.sharding.mesh import NdSbp


class Building:
    """A graph of global tensors that is being built. ``places`` are those of its tensors; ``here()`` is the one that a
    stage runs on, None outside."""

    def __init__(self, places: Sequence[placement], here: Callable[[], placement | None] = lambda: None) -> None:
        self._places = places
        self._here = here
        self._known: dict[int, tuple[torch.Tensor, placement, NdSbp | None]] = {}
        self.moves_to: placement | None = None
        """Where a value is being moved to."""

    def note(self, tensor: torch.Tensor, place: placement, sbp: NdSbp | None) -> torch.Tensor:
        """Says where a traced tensor lies, and how if that is settled; gives the tensor."""
        self._known[id(tensor)] = tensor, place, sbp
        return tensor

    def place(self, tensor: torch.Tensor) -> placement:
        """Where a traced tensor lies, as far as that is known: a value that a stage has made lies where the stage
        runs."""
        known = self._known.get(id(tensor))
        return known[1] if known is not None else self._here() or self._places[0]

    def sbp(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        """How a traced tensor lies, as users write it; ``auto`` for each axis where it is not settled yet."""
        known = self._known.get(id(tensor))
        return tuple(
            map(
                public,
                known[2] if known is not None and known[2] is not None else (AUTO,) * len(self.place(tensor).hierarchy),
            )
        )

    def laid(self, tensor: torch.Tensor, place: Any, sbp: Any, grad_sbp: Any) -> torch.Tensor:
        """The same tensor, of which the compiler knows from here on where it must lie and how, and how its gradient."""
        if place is not None and place not in self._places:
            raise GraphError(
                f"to_global in build() to {place}, the tensors of this graph lie on "
                f"{', '.join(map(str, self._places))}; "
                "a graph runs where its parameters and inputs lie"
            )
        target = place if place is not None else self.place(tensor)
        wanted = None if sbp is None else self._layouts(tensor, target, sbp)
        back = None if grad_sbp is None else self._layouts(tensor, target, grad_sbp)
        self.moves_to = place if len(self._places) > 1 else None
        try:
            made = _hinted(tensor, format_layout(wanted), format_layout(back))
        finally:
            self.moves_to = None
        return self.note(made, target, wanted) if place is not None or wanted is not None else made

    def _layouts(self, tensor: torch.Tensor, place: placement, sbp: Any) -> NdSbp:
        found = layouts_of(sbp, place.hierarchy)
        highest = max((one.dim for one in found if one.dim is not None), default=-1)
        if highest >= tensor.dim():
            raise GraphError(
                f"to_global in build(): a tensor of {tensor.dim()} dims cannot be split along dim {highest}"
            )
        return found


def _hinted(tensor: torch.Tensor, forward: str, backward: str) -> torch.Tensor:
    """A call that the trace sees as one of the user's."""
    from oneflow.engine.ops.structure import layout

    def to_global(x: torch.Tensor) -> torch.Tensor:
        return layout.compute(x, forward=forward, backward=backward)

    return torch.overrides.handle_torch_function(to_global, (tensor,), tensor)


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
