"""How a train job updates its variables: settled when its trace ends, read by the passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oneflow.engine.core.variable import VariableDecl
from oneflow.optimizer.loss_scale import LossScale
from oneflow.optimizer.optimizers import Optimizer


@dataclass(frozen=True)
class Training:
    """``coupled`` gives the L1 and L2 factors that are added to a variable's gradient; of ``row_wise`` variables only
    the rows that have a gradient are updated. ``split_states_from`` is how many elements a variable has whose optimizer
    state the devices share among them; None: each keeps all of it. ``splits_variables``: the variables themselves are
    shared out as well."""

    optimizer: Optimizer
    loss_scale: LossScale
    micro_batches: int
    coupled: Callable[[VariableDecl], tuple[float, float]]
    row_wise: frozenset[str] = frozenset()
    split_states_from: int | None = None
    splits_variables: bool = False

    @property
    def in_two_parts(self) -> bool:
        """True when gradients leave the program before the update: to be accumulated, or looked at for overflow."""
        return self.micro_batches > 1 or self.loss_scale.is_dynamic
