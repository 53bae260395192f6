"""Rows of tokens that run on through documents, as GPT-2 is trained on them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from libai.data.data_utils.map_file import IndexMap, cached_map, fingerprint
from libai.data.data_utils.sample_maps import TokenMap, token_map
from libai.data.datasets.sentences import field
from libai.data.structures import Instance
from oneflow.engine.core.errors import ArgumentError
from oneflow.utils.data import Dataset


class GPT2Dataset(Dataset):
    """Samples with ``input_ids`` of ``max_seq_length`` tokens, and ``labels``, the tokens that follow. Only the
    documents of ``indexed_dataset`` are read, so parts for training and test have no document in common; a document is
    never torn by the mixing."""

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        data_prefix: str,
        indexed_dataset: Any,
        max_num_samples: int,
        max_seq_length: int,
        seed: int = 1234,
    ) -> None:
        if max_seq_length < 1 or max_num_samples < 1:
            raise ArgumentError(
                f"GPT2Dataset: max_seq_length and max_num_samples are 1 or more, got {max_seq_length} and "
                f"{max_num_samples}"
            )
        self.name, self.tokenizer, self.indexed_dataset = name, tokenizer, indexed_dataset
        maps = _maps(
            f"{data_prefix}_{name}_indexmap_{max_num_samples}mns_{max_seq_length}msl_{seed}s",
            indexed_dataset,
            max_num_samples,
            max_seq_length,
            seed,
        )
        self._sequences, self._starts, self._order = maps

    doc_idx = property(lambda self: self._sequences.rows)
    sample_idx = property(lambda self: self._starts.rows)
    shuffle_idx = property(lambda self: self._order.rows)

    def __len__(self) -> int:
        return len(self._order.rows)

    def __getitem__(self, idx: int) -> Instance:
        tokens = self._tokens(int(self._order.rows[idx]))
        return Instance(input_ids=field(tokens[:-1]), labels=field(tokens[1:], at_the_end=True))

    def _tokens(self, number: int) -> np.ndarray:
        (first, begin), (last, end) = self._starts.rows[number].tolist(), self._starts.rows[number + 1].tolist()
        sequences = self._sequences.rows[first : last + 1].tolist()
        if first == last:
            return self.indexed_dataset.get(sequences[0], begin, end - begin + 1).astype(np.int64)
        parts = [
            self.indexed_dataset.get(sequences[0], begin),
            *map(self.indexed_dataset.get, sequences[1:-1]),
            self.indexed_dataset.get(sequences[-1], 0, end + 1),
        ]
        return np.concatenate(parts).astype(np.int64)


def _maps(prefix: str, indexed_dataset: Any, count: int, length: int, seed: int) -> tuple[IndexMap, IndexMap, IndexMap]:
    documents, sizes = np.asarray(indexed_dataset.get_doc_idx()), indexed_dataset.sizes
    mark = fingerprint("tokens", count, length, seed, documents, np.asarray(sizes[documents[0] : documents[-1]]))

    @functools.cache
    def made() -> TokenMap:
        return token_map(documents, sizes, count, length, seed)

    return (
        cached_map(f"{prefix}_doc_idx.npy", mark, lambda: made().sequences),
        cached_map(f"{prefix}_sample_idx.npy", mark, lambda: made().starts),
        cached_map(f"{prefix}_shuffle_idx.npy", mark, lambda: made().order),
    )
