"""Rows of the update table: an update formula and what the compiler must know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Literal

from torch import Tensor

from oneflow.engine.core.errors import ArgumentError

Tensors = list[Tensor]
Norms = Callable[[Sequence[Tensor]], Tensors]
"""Returns the norm of each tensor; of the whole variable where a rank holds a part of it."""
Sees = Literal["element", "norms", "variable", "everything"]
"""What the new value of an element depends on, from the least to the most."""
When = Literal["never", "without weight decay", "always"]
Linear = Callable[..., tuple[float, float]]
"""Returns the factors of the variable and of its gradient, from the learning rate and the numbers of the update."""


@dataclass(frozen=True)
class State:
    """A state tensor that an update keeps for each variable, named ``<variable>-<suffix>``.

    Attributes:
        suffix: The end of its name.
        shape: None for the shape of the variable. A state with its own shape is float32 and whole on every rank.
        start: The number of the update that it starts with; None starts with zero.
    """

    suffix: str
    shape: tuple[int, ...] | None = None
    start: str | None = None


@dataclass(frozen=True, eq=False)
class UpdateRow:
    """An update formula and its properties.

    Attributes:
        compute: ``compute(params, grads, *states, lr, **numbers)`` updates lists of variables and states in place.
        sees: What the new value of an element depends on.
            "element": its own gradient and state; the update may be done in any pieces.
            "norms": also norms of its whole variable, which ``compute`` takes from ``norms=`` only, so that they are
            right where a rank holds a part.
            "variable": anything of its variable; a rank must hold all of it.
            "everything" (the default): anything of all variables of the optimizer; they stay in one call.
        states: The states, in the order in which ``compute`` takes them.
        adds_l2: When ``compute`` takes ``l2=`` and adds that multiple of the variable to its gradient.
        row_wise: Whether rows with a zero gradient may be left out. Always true of "element".
        takes_count: Whether ``compute`` takes ``count=``, the number of this update as a float, from 1.0.
        linear: For an update ``w = a * w + b * g`` without states: ``linear(lr, **numbers)`` returns ``a, b``.
        is_fused: When ``compute`` is one pass over memory, as torch's fused kernels are.
    """

    compute: Callable[..., None]
    sees: Sees = "everything"
    states: tuple[State, ...] = ()
    adds_l2: When = "never"
    row_wise: bool = False
    takes_count: bool = False
    linear: Linear | None = None
    is_fused: When = "never"

    def __post_init__(self) -> None:
        taken = signature(self.compute).parameters
        columns = (
            ("norms", self.takes_norms, "sees='norms'"),
            ("l2", self.adds_l2 != "never", "adds_l2="),
            ("count", self.takes_count, "takes_count=True"),
        )
        for argument, is_said, column in columns:
            if (argument in taken) != is_said:
                raise ArgumentError(
                    f"update {self.name!r} takes {argument}= if and only if its row says {column}; say both or neither"
                )
        if self.row_wise and not self.may_be_cut:
            raise ArgumentError(
                f"update {self.name!r} is done row-wise for one variable at a time; its row says what it sees= of one"
            )
        if self.linear is not None and (self.sees != "element" or self.states):
            raise ArgumentError(
                f"update {self.name!r} is linear= in its gradient only if it sees elements and has no states; leave it "
                f"out of its row"
            )

    @property
    def name(self) -> str:
        return self.compute.__name__

    @property
    def qualified_name(self) -> str:
        """The name of ``compute`` with its module: unique, so that kernels are found by it."""
        return qualified_name(self.compute)

    @property
    def takes_norms(self) -> bool:
        return self.sees == "norms"

    @property
    def may_be_cut(self) -> bool:
        """Whether the variables of an optimizer may be updated in several calls, at different times and ranks."""
        return self.sees != "everything"

    @property
    def may_be_split(self) -> bool:
        """Whether each rank may update a part of a variable."""
        return self.sees in ("element", "norms")

    @property
    def may_be_row_wise(self) -> bool:
        """Whether rows without a gradient may be left out."""
        return self.row_wise or self.sees == "element"

    @property
    def may_be_by_rows(self) -> bool:
        """Whether a variable may be updated some rows at a time, with its states."""
        return self.sees == "element" and all(state.shape is None for state in self.states)

    def adds_l2_at(self, weight_decay: float) -> bool:
        """Whether ``compute`` adds L2 itself for variables of this weight decay."""
        return _is_then(self.adds_l2, weight_decay)

    def is_fused_at(self, weight_decay: float) -> bool:
        """Whether ``compute`` is one pass over memory for variables of this weight decay."""
        return _is_then(self.is_fused, weight_decay)


def _is_then(when: When, weight_decay: float) -> bool:
    return when == "always" or (when == "without weight decay" and not weight_decay)


def qualified_name(compute: Callable[..., None]) -> str:
    """Returns the name of a formula with its module."""
    return f"{compute.__module__}.{compute.__qualname__}"
