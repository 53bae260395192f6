"""``flow.nn.modules.dropout``: dropout as modules, by a generator of their own if one is given.

Without one they draw from torch's default generator, as torch's do: every call has another mask. In OneFlow each module
owns a generator with the default seed, so that the first calls of all modules drop alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.core.errors import DTypeError
from oneflow.nn.functional import dropout
from oneflow.nn.functional._dropout import dropped_by

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


def _checked(kind: str, generator: torch.Generator | None) -> torch.Generator | None:
    if generator is not None and not isinstance(generator, torch.Generator):
        raise DTypeError(f"{kind}: generator is a flow.Generator or None, got {generator!r}")
    return generator


class Dropout(torch.nn.Dropout):
    """Drops elements in training; ``generator`` draws the masks. ``forward`` adds ``addend`` to the result."""

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = _checked("Dropout", generator)

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        return dropout(x, self.p, self.training, self.generator, addend=addend, inplace=self.inplace)


class Dropout1d(torch.nn.Dropout1d):
    """Drops whole channels of (N, C, W) or (C, W) in training."""

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = _checked("Dropout1d", generator)

    def forward(self, input: Tensor) -> Tensor:
        if self.generator is None:
            return super().forward(input)
        return dropped_by(input, self.p, self.training, self.generator, self.inplace, spatial=1)


class Dropout2d(torch.nn.Dropout2d):
    """Drops whole channels of (N, C, H, W) in training."""

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = _checked("Dropout2d", generator)

    def forward(self, input: Tensor) -> Tensor:
        if self.generator is None:
            return super().forward(input)
        return dropped_by(input, self.p, self.training, self.generator, self.inplace, spatial=2)


class Dropout3d(torch.nn.Dropout3d):
    """Drops whole channels of (N, C, D, H, W) or (C, D, H, W) in training."""

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = _checked("Dropout3d", generator)

    def forward(self, input: Tensor) -> Tensor:
        if self.generator is None:
            return super().forward(input)
        return dropped_by(input, self.p, self.training, self.generator, self.inplace, spatial=3)
