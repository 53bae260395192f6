"""``megatron_gpt_mmap_data_loader``: batches of tokens for language models inside a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.region import span
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.data.arguments import positive, row_spec
from oneflow.engine.data.formats.indexed import TokenSamples, open_indexed, split_documents
from oneflow.engine.data.loader import Loader
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops.kernels.counter_random import stable_seed


class TokenSource:
    """Batches of samples cut from token files; each share of a batch has a loader of its own over the same order."""

    def __init__(self, name: str, spec: TensorSpec, samples: TokenSamples, order: str, seed: int) -> None:
        self.name = name
        self.specs: tuple[TensorSpec, ...] = (spec,)
        self._samples, self._order, self._seed = samples, order, seed
        self._share, self._shares = 0, 1
        self._loader: Loader | None = None

    def share(self, number: int, shares: int) -> None:
        self._share, self._shares = number, shares

    def start(self) -> None:
        self._made().start()

    def next(self) -> tuple[torch.Tensor, ...]:
        return (next(iter(self._made())),)

    def state(self) -> dict[str, Any]:
        return self._made().state()

    def load_state(self, state: dict[str, Any]) -> None:
        self._made().load_state(state)

    def drop(self) -> None:
        self.close()

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()

    def _made(self) -> Loader:
        if self._loader is None:
            into = self.specs[0].dtype.require_numpy()
            whole = self.specs[0].shape[0]
            self._loader = Loader(
                self._samples, span(whole, self._shares, 0)[1], lambda sample, draws: sample.astype(into), rank=self._share, world=self._shares,
                whole_batch=whole, order=self._order, seed=self._seed, threads=1,
            )  # fmt: skip
        return self._loader


def megatron_gpt_mmap_data_loader(
    data_file_prefix: str | os.PathLike[str],
    seq_length: int,
    num_samples: int,
    batch_size: int,
    dtype: torch.dtype = torch.int64,
    shuffle: bool = True,
    random_seed: int | None = None,
    split_sizes: Sequence[str | float] | None = None,
    split_index: int | None = None,
    parallel_distribution: Sequence[str] | None = None,
    start_from_saved_progress: bool = False,
    name: str | None = None,
) -> Blob:
    """The next (batch_size, seq_length + 1) tokens of ``<data_file_prefix>.bin`` and ``.idx``, Megatron's memory-mapped
    files.

    Samples are cut from the documents in a row, one token shared between neighbours; after ``num_samples`` they begin
    again. ``shuffle`` mixes documents in each epoch, and samples. ``split_sizes`` are shares of the documents,
    ``split_index`` says which to read. Where it stands is saved and loaded with the checkpoints of jobs, so
    ``start_from_saved_progress`` changes nothing, and neither does ``parallel_distribution``.
    """
    what = "megatron_gpt_mmap_data_loader"
    trace = require_trace(f"flow.data.{what}")
    positive(what, seq_length=seq_length, num_samples=num_samples, batch_size=batch_size)
    full = trace.claim(name, "MegatronGPTMMapDataLoader")
    tokens = open_indexed(data_file_prefix)
    documents = (
        range(len(tokens.lengths))
        if split_sizes is None
        else _split(what, len(tokens.lengths), split_sizes, split_index)
    )
    seed = stable_seed(trace.settings.random_seed, full) if random_seed is None else int(random_seed)
    row = row_spec(what, [seq_length + 1], dtype)
    if row.dtype.numpy is None or not np.issubdtype(row.dtype.numpy, np.integer):
        raise UnsupportedError(f"{what}: tokens are integers, got dtype {row.dtype.name}")
    samples = TokenSamples(tokens, documents, seq_length, num_samples, bool(shuffle), seed)
    source = TokenSource(
        full, TensorSpec((batch_size, *row.shape), row.dtype), samples, "shuffle" if shuffle else "sequential", seed
    )
    (node,) = trace.add_source(source, full)
    return Blob(node)


def _split(what: str, count: int, sizes: Sequence[str | float], index: int | None) -> range:
    try:
        shares = tuple(float(size) for size in sizes)
    except (TypeError, ValueError):
        shares = ()
    if not shares or type(index) is not int:
        raise ArgumentError(
            f"{what}: split_sizes is a list of numbers and split_index the place of one of them, got {sizes!r} and "
            f"{index!r}"
        )
    return split_documents(count, shares, index)


MegatronGPTMMapDataLoader = megatron_gpt_mmap_data_loader
