"""Random batches inside a job: drawn on the host once, fed at every step."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError
from oneflow.engine.core.region import span
from oneflow.engine.core.spec import TensorSpec, spec_of
from oneflow.engine.data.arguments import positive, row_shape
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import require_trace
from oneflow.initializer import random_uniform_initializer


class RandomSource:
    """One batch, drawn when it is first asked for and the same at every step."""

    def __init__(self, name: str, spec: TensorSpec, initializer: Any, seed: int) -> None:
        self.name = name
        self.specs: tuple[TensorSpec, ...] = (spec,)
        self._initializer = initializer
        self._seed = seed
        self._rows = slice(None)
        self._batch: torch.Tensor | None = None

    def share(self, number: int, shares: int) -> None:
        """Makes it give the rows of one share: all draw the same batch."""
        self._rows = slice(*span(self.specs[0].shape[0], shares, number))

    def start(self) -> None:
        """Nothing to do ahead."""

    def next(self) -> tuple[torch.Tensor, ...]:
        if self._batch is None:
            self._batch = self._draw()[self._rows]
        return (self._batch,)

    def _draw(self) -> torch.Tensor:
        (spec,) = self.specs
        generator = torch.Generator().manual_seed(self._seed)
        batch = self._initializer.draw(spec, generator)
        if spec_of(batch) != spec:
            raise DataError(f"decode_random wanted {spec}, the initializer {self._initializer!r} drew {spec_of(batch)}")
        return batch

    def state(self) -> None:
        """The batch follows from the op's name, so there is nothing to save."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""

    def drop(self) -> None:
        """Nothing was begun."""

    def close(self) -> None:
        """Nothing is open."""


def decode_random(
    shape: Sequence[int],
    dtype: torch.dtype,
    batch_size: int = 1,
    initializer: Any = None,
    tick: Any = None,
    name: str | None = None,
) -> Blob:
    """A blob of shape ``(batch_size, *shape)`` that is drawn once and is the same at every call of the job.

    ``initializer`` defaults to uniform numbers from 0 to 1. What is drawn depends on the op's name alone.
    """
    trace = require_trace("flow.data.decode_random")
    if tick is not None:
        raise UnsupportedError("decode_random takes no tick; it is drawn before the first step")
    if initializer is not None and not hasattr(initializer, "draw"):
        raise ArgumentError(f"{initializer!r} is not an initializer; use one of flow.*_initializer")
    positive("decode_random", batch_size=batch_size)
    full = trace.claim(name, "DecodeRandom")
    spec = TensorSpec((batch_size, *row_shape("decode_random", shape)), as_dtype(dtype))
    initializer = random_uniform_initializer(dtype=spec.dtype) if initializer is None else initializer
    (node,) = trace.add_source(RandomSource(full, spec, initializer, zlib.crc32(full.encode())), full)
    return Blob(node)
