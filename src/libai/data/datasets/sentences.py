"""Samples made of the sentences of a document: what the data sets of masked language models share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from libai.data.data_utils.dataset_utils import samples_map
from libai.data.structures import DistTensorData
from oneflow.engine.core.errors import ArgumentError
from oneflow.utils.data import Dataset


class SentenceDataset(Dataset):
    """Sentences by an index map, and random numbers that belong to a sample. ``room`` is what special tokens leave of
    ``max_seq_length``."""

    def __init__(
        self, name: str, tokenizer: Any, indexed_dataset: Any, data_prefix: str, max_num_samples: int | None, max_seq_length: int, room: int, short_seq_prob: float,
        seed: int, binary_head: bool,
    ) -> None:  # fmt: skip
        self.name, self.tokenizer, self.indexed_dataset, self.seed, self.max_seq_length = (
            name,
            tokenizer,
            indexed_dataset,
            seed,
            max_seq_length,
        )
        self._map = samples_map(
            indexed_dataset, data_prefix, None, max_num_samples, room, short_seq_prob, seed, name, binary_head
        )
        self.vocab_id_to_token_dict = {number: token for token, number in vocabulary(tokenizer).items()}
        self.vocab_id_list = list(self.vocab_id_to_token_dict)

    @property
    def samples_mapping(self) -> np.ndarray:
        """Rows (first sentence, last one + 1, target length)."""
        return self._map.rows

    def __len__(self) -> int:
        return len(self._map.rows)

    def sentences(self, idx: int) -> tuple[list[np.ndarray], int, np.random.RandomState]:
        """The sentences of a sample, its target length, and its random numbers."""
        first, end, target = (int(value) for value in self._map.rows[idx])
        return (
            [self.indexed_dataset[i] for i in range(first, end)],
            target,
            np.random.RandomState((self.seed + idx) % 2**32),
        )


def vocabulary(tokenizer: Any) -> dict[str, int]:
    """All tokens of a tokenizer with their numbers, those that were added too."""
    added = tokenizer.get_added_vocab() if hasattr(tokenizer, "get_added_vocab") else {}
    return {**tokenizer.get_vocab(), **added}


def token_id(tokenizer: Any, *kinds: str) -> int:
    """The number of the first of these special tokens that the tokenizer has."""
    for kind in kinds:
        if (found := getattr(tokenizer, f"{kind}_token_id", None)) is not None:
            return found
    raise ArgumentError(
        f"the data set needs a tokenizer with a {' or '.join(f'{kind}_token' for kind in kinds)}; "
        f"{type(tokenizer).__name__} has none"
    )


def most_predictions(masked_lm_prob: float, target_length: int) -> float:
    """How many tokens of a sample are hidden at most."""
    return max(1.0, masked_lm_prob * target_length)


def field(values: Any, dtype: torch.dtype = torch.long, at_the_end: bool = False) -> DistTensorData:
    """A field of a sample; ``at_the_end`` if only the loss needs it."""
    return DistTensorData(torch.as_tensor(np.asarray(values), dtype=dtype), placement_idx=-1 if at_the_end else 0)


def padded(values: Any, length: int, fill: int) -> np.ndarray:
    """The values as a row of ``length``."""
    row = np.full(length, fill, np.int64)
    row[: len(values)] = values
    return row


def masked_labels_row(
    masked_positions: list[int], masked_labels: list[int], length: int
) -> tuple[np.ndarray, np.ndarray]:
    """What stood at masked places and -1 elsewhere, and 1 at masked places and 0 elsewhere."""
    labels, mask = np.full(length, -1, np.int64), np.zeros(length, np.int64)
    labels[masked_positions], mask[masked_positions] = masked_labels, 1
    return labels, mask


def cut_from_either_end(tokens: list[int], np_rng: np.random.RandomState) -> None:
    """Takes one token off, the first or the last."""
    if np_rng.random_sample() < 0.5:
        del tokens[0]
    else:
        tokens.pop()
