"""The declaration of a variable: what a job asks for, and what optimizers, programs and stores go by.

Convolution filters lie in channels-last memory. Shapes, names and checkpoints stay those of the program; only the
strides differ, and gradients come out in the same layout as the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.sbp import Sbp
from oneflow.engine.core.spec import TensorSpec


class Initializer(Protocol):
    """Anything that can give a variable its first content."""

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> torch.Tensor: ...


class Regularizer(Protocol):
    """Anything that says what is added to a variable's gradient: ``l1 * sign(w) + l2 * w``."""

    @property
    def l1(self) -> float: ...

    @property
    def l2(self) -> float: ...


@dataclass(frozen=True)
class VariableDecl:
    """A variable as a job asked for it. Two jobs that name it must agree on its spec.

    ``distribute`` has one layout for each axis of its placement; () is whole on every device.
    """

    name: str
    spec: TensorSpec
    initializer: Initializer
    regularizer: Regularizer | None = None
    trainable: bool = True
    model_name: str = "weight"
    seed: int | None = None
    distribute: tuple[Sbp, ...] = ()
    line: str = ""
    channels_last: bool = False

    def require_same_spec(self, other: VariableDecl | None) -> None:
        """Refuses this declaration where another of the same name has another spec."""
        if other is not None and other.spec != self.spec:
            raise ArgumentError(
                f"{self.line}: variable {self.name!r} was made as {other.spec} at {other.line}, it cannot be "
                f"{self.spec} here"
            )
