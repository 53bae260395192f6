"""One rank's part of every variable: drawn, read and written where it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.ir.graph import VariableDecl
from oneflow.engine.sharding.mesh import Layout
from oneflow.initializer import of_blocks

BLOCK = 2**22
"""Elements of a variable that are drawn at a time, from a generator of their own."""


class RankVariables:
    """The parts that ``rank`` has, on its ``device``. Tensors keep their identity: values are written into them in
    place.

    Whoever has written into them raises ``version``, so that what was made of their values before is known to be old.
    """

    def __init__(self, rank: int, device: torch.device) -> None:
        self.device = device
        self.tensors: dict[str, torch.Tensor] = {}
        self.version = 0
        self._rank = rank
        self._decls: dict[str, tuple[VariableDecl, Layout]] = {}

    def declare(self, decls: Sequence[tuple[VariableDecl, Layout]], seed: int, draws: int) -> None:
        """Gives storage and first values to this rank's parts of new variables."""
        for decl, layout in decls:
            part = self._draw(decl, layout, seed, draws)
            if part is not None:
                memory = torch.channels_last if decl.channels_last and part.dim() == 4 else torch.contiguous_format
                self._decls[decl.name] = decl, layout
                self.tensors[decl.name] = part.to(self.device).clone(memory_format=memory)

    def initialise(self, seed: int, draws: int) -> None:
        """Draws every variable anew."""
        for name, tensor in self.tensors.items():
            part = self._draw(*self._decls[name], seed, draws)
            assert part is not None
            tensor.copy_(part)
        self.version += 1

    def _draw(self, decl: VariableDecl, layout: Layout, seed: int, draws: int) -> torch.Tensor | None:
        block = layout.block(decl.spec.shape, self._rank)
        return None if block is None else draw(decl, seed, draws, block)

    def read(self, names: Sequence[str]) -> list[np.ndarray]:
        """Copies of this rank's parts of some variables, in C order."""
        return [self.tensors[name].detach().cpu().contiguous().clone().numpy() for name in names]

    def write(self, parts: Mapping[str, torch.Tensor]) -> None:
        """Sets this rank's parts of some variables."""
        for name, part in parts.items():
            self.tensors[name].copy_(part)
        self.version += 1


def draw(decl: VariableDecl, seed: int, draws: int, part: Sequence[slice] = ()) -> torch.Tensor:
    """The first values of a part of a variable: a function of its name, the session's seed and how often variables were
    drawn before.

    A large variable is drawn in blocks of rows, each from a generator of its own: a rank draws the blocks that its part
    lies in, and never has the whole in memory.
    """
    try:
        return _Draw(decl, f"{seed}/{draws}" if decl.seed is None else f"{decl.seed}").part(tuple(part))
    except OneFlowError as error:
        raise type(error)(f"{decl.line}: variable {decl.name!r} {decl.spec}: {error.reason}") from None


class _Draw:
    """Draws parts of one variable. ``rows`` is how many of them a block has."""

    def __init__(self, decl: VariableDecl, key: str) -> None:
        self._spec = decl.spec
        self._key = f"{key}/{decl.name}"
        blocks = of_blocks(decl.initializer, decl.spec.shape) if decl.spec.elements > BLOCK else None
        self._initializer = blocks or decl.initializer
        count = self._spec.shape[0] if self._spec.shape else 1
        self._rows = max(1, BLOCK * count // self._spec.elements) if blocks is not None else max(1, count)

    def part(self, part: tuple[slice, ...]) -> torch.Tensor:
        shape = self._spec.shape
        if not shape or not self._spec.elements:
            return self._block(0, shape)[part]
        part = part or tuple(slice(0, size) for size in shape)
        extents = [along.stop - along.start for along in part]
        if 0 in extents:
            return self._empty(extents)
        first, last = part[0].start // self._rows, (part[0].stop - 1) // self._rows
        return self._rows_of(first, part) if first == last else self._of_blocks(first, last, part, extents)

    def _of_blocks(self, first: int, last: int, part: tuple[slice, ...], extents: list[int]) -> torch.Tensor:
        """A part that lies in several blocks. What is taken of one is copied: a view would keep all of it in memory."""
        result, begin = self._empty(extents), 0
        for number in range(first, last + 1):
            rows = self._rows_of(number, part)
            result[begin : begin + len(rows)] = rows
            begin += len(rows)
        return result

    def _empty(self, extents: list[int]) -> torch.Tensor:
        return torch.empty(extents, dtype=self._spec.dtype.torch)

    def _rows_of(self, number: int, part: tuple[slice, ...]) -> torch.Tensor:
        """What a part has of one block."""
        start = number * self._rows
        stop = min(self._spec.shape[0], start + self._rows)
        values = self._block(number, (stop - start, *self._spec.shape[1:]))
        here = slice(max(part[0].start, start) - start, min(part[0].stop, stop) - start)
        return values[(here, *part[1:])]

    def _block(self, number: int, shape: tuple[int, ...]) -> torch.Tensor:
        key = self._key if number == 0 else f"{self._key}/{number}"
        digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        return self._initializer.draw(TensorSpec(shape, self._spec.dtype), generator)
