"""What a row of the table of updates is: an update function, and all that the compiler must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Literal

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ops.updates.update_recipes import Recipe

Sees = Literal["element", "norms", "variable", "everything"]
"""What the change of an element depends on. The words stand from the least to the most."""
When = Literal["never", "without weight decay", "always"]
Linear = Callable[..., tuple[float, float]]
"""Of the rate and the fixed numbers of an update what it multiplies a variable and its gradient with."""


@dataclass(frozen=True)
class State:
    """A state that an update keeps of each variable, called ``<variable>-<suffix>``: shaped as the variable and zero at
    first. One with a ``shape`` of its own is float32 and whole on every rank; ``start`` names the fixed number of the
    update that it is at first."""

    suffix: str
    shape: tuple[int, ...] | None = None
    start: str | None = None


@dataclass(frozen=True, eq=False)
class UpdateRow:
    """One update. ``compute(params, grads, *states, lr, **numbers)`` changes lists of variables and of their states in
    place.

    ``sees`` is what the change of an element depends on:
      "element": its own gradient and state. Such an update may be done in any pieces. "norms": besides, norms over its
      whole variable, which ``compute`` takes from ``norms=`` and nowhere else: it tells them right where a rank has a
      part of the variable. "variable": anything of its variable, so a rank must have all of it; but each variable may
      have a call of its own. "everything": anything of all variables of the optimizer, so they stay in one call. A row
      that says nothing says this.
    ``states`` are in the order in which ``compute`` takes them. ``adds_l2``: when ``compute`` takes ``l2=`` and adds
    that much of the variable to its gradient itself. ``takes_count``: ``compute`` takes ``count=``, the number of this
    update as a float: 1.0 at the first. ``row_wise``: it may be done for some rows of a variable only, as if there were
    no others; one that sees elements always may. ``linear``: of an update without states that makes w into ``a * w + b
    * g``: ``linear(lr, **numbers)`` gives ``a`` and ``b``. ``recipe``: how it is done by sweeps, in one or two passes
    over memory, which also take along what is done to gradients before. ``is_fused``: when ``compute`` is one pass
    itself.
    """

    compute: Callable[..., None]
    sees: Sees = "everything"
    states: tuple[State, ...] = ()
    adds_l2: When = "never"
    row_wise: bool = False
    takes_count: bool = False
    linear: Linear | None = None
    recipe: Recipe | None = None
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
    def takes_norms(self) -> bool:
        return self.sees == "norms"

    @property
    def may_be_cut(self) -> bool:
        """Whether variables of one optimizer may be updated in several calls, at several times and on several ranks."""
        return self.sees != "everything"

    @property
    def may_be_split(self) -> bool:
        """Whether ranks may each update a part of a variable."""
        return self.sees in ("element", "norms")

    @property
    def may_be_row_wise(self) -> bool:
        """Whether rows without a gradient may be left out."""
        return self.row_wise or self.sees == "element"

    @property
    def may_be_by_rows(self) -> bool:
        """Whether one variable may be updated some rows at a time, and its states with it."""
        return self.sees == "element" and all(state.shape is None for state in self.states)

    def adds_l2_at(self, weight_decay: float) -> bool:
        """Whether ``compute`` adds L2 itself for variables of this weight decay."""
        return _is_then(self.adds_l2, weight_decay)

    def is_fused_at(self, weight_decay: float) -> bool:
        """Whether ``compute`` is one pass over memory for variables of this weight decay."""
        return _is_then(self.is_fused, weight_decay)


def _is_then(when: When, weight_decay: float) -> bool:
    return when == "always" or (when == "without weight decay" and not weight_decay)
