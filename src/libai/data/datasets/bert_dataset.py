"""Pairs of segments with masked words, as BERT is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from libai.data.data_utils.dataset_utils import create_masked_lm_predictions
from libai.data.datasets.sentences import SentenceDataset, cut_from_either_end, field, masked_labels_row, most_predictions, padded, token_id
from libai.data.structures import Instance
from oneflow.core.errors import ArgumentError

_SPECIAL = 3  # [CLS] a [SEP] b [SEP]


class BertDataset(SentenceDataset):
    """Samples with ``input_ids``, ``attention_mask``, ``tokentype_ids``, ``ns_labels`` (1: the segments are the wrong way round), ``lm_labels``
    (-1: not masked) and ``loss_mask``. Without ``binary_head`` there is one segment. A sample is a function of ``seed`` and its number."""

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        indexed_dataset: Any,
        data_prefix: str,
        max_num_samples: int | None,
        mask_lm_prob: float,
        max_seq_length: int,
        short_seq_prob: float = 0.0,
        seed: int = 1234,
        binary_head: bool = True,
        masking_style: str = "bert",
    ) -> None:
        room = max_seq_length - _SPECIAL
        super().__init__(name, tokenizer, indexed_dataset, data_prefix, max_num_samples, max_seq_length, room, short_seq_prob, seed, binary_head)
        self.mask_lm_prob, self.binary_head, self.masking_style = mask_lm_prob, binary_head, masking_style
        self.cls_id, self.sep_id = token_id(tokenizer, "cls"), token_id(tokenizer, "sep")
        self.mask_id, self.pad_id = token_id(tokenizer, "mask"), token_id(tokenizer, "pad")

    def __getitem__(self, idx: int) -> Instance:
        sample, target, random = self.sentences(idx)
        return build_training_sample(
            self.tokenizer, sample, target, self.max_seq_length, self.vocab_id_list, self.vocab_id_to_token_dict, self.cls_id, self.sep_id, self.mask_id,
            self.pad_id, self.mask_lm_prob, random, self.binary_head, self.masking_style,
        )  # fmt: skip


def build_training_sample(
    tokenizer: Any,
    sample: Sequence[Any],
    target_seq_length: int,
    max_seq_length: int,
    vocab_id_list: Sequence[int],
    vocab_id_to_token_dict: Mapping[int, str],
    cls_id: int,
    sep_id: int,
    mask_id: int,
    pad_id: int,
    masked_lm_prob: float,
    np_rng: np.random.RandomState,
    binary_head: bool,
    masking_style: str = "bert",
) -> Instance:
    """A sample of sentences: two segments, cut to ``target_seq_length``, masked, and padded to ``max_seq_length``."""
    if target_seq_length > max_seq_length:
        raise ArgumentError(f"target_seq_length is at most max_seq_length, got {target_seq_length} and {max_seq_length}")
    if binary_head:
        tokens_a, tokens_b, is_swapped = get_a_and_b_segments(sample, np_rng)
    else:
        tokens_a, tokens_b, is_swapped = _joined(sample), [], False
    truncate_segments(tokens_a, tokens_b, len(tokens_a), len(tokens_b), target_seq_length, np_rng)
    tokens, types = create_tokens_and_tokentypes(tokens_a, tokens_b, cls_id, sep_id)
    hidden, places, labels, _, _ = create_masked_lm_predictions(
        tokenizer, tokens, vocab_id_list, vocab_id_to_token_dict, masked_lm_prob, cls_id, sep_id, mask_id, most_predictions(masked_lm_prob, target_seq_length),
        np_rng, masking_style=masking_style,
    )  # fmt: skip
    ids, types_row, labels_row, attention, loss = pad_and_convert_to_numpy(hidden, types, places, labels, pad_id, max_seq_length)
    return Instance(
        input_ids=field(ids),
        attention_mask=field(attention, torch.bool),
        tokentype_ids=field(types_row),
        ns_labels=field(int(is_swapped), at_the_end=True),
        lm_labels=field(labels_row, at_the_end=True),
        loss_mask=field(loss, torch.bool, at_the_end=True),
    )


def pad_and_convert_to_numpy(
    tokens: Sequence[int], tokentypes: Sequence[int], masked_positions: list[int], masked_labels: list[int], pad_id: int, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ``max_seq_length``: tokens, token types, labels, the mask of tokens and that of labels. Token types are padded with ``pad_id`` too."""
    if len(tokens) > max_seq_length:
        raise ArgumentError(f"a sample of {len(tokens)} tokens does not go into max_seq_length={max_seq_length}")
    labels, loss = masked_labels_row(masked_positions, masked_labels, max_seq_length)
    return padded(tokens, max_seq_length, pad_id), padded(tokentypes, max_seq_length, pad_id), labels, padded([1] * len(tokens), max_seq_length, 0), loss


def get_a_and_b_segments(sample: Sequence[Any], np_rng: np.random.RandomState) -> tuple[list[int], list[int], bool]:
    """The sentences as two segments, cut at a random place, and whether they were swapped, which half of them are."""
    if len(sample) < 2:
        raise ArgumentError(f"a pair of segments takes two sentences or more, got {len(sample)}; make the data with --split-sentences, or set binary_head=False")
    cut = np_rng.randint(1, len(sample)) if len(sample) > 2 else 1
    first, second = _joined(sample[:cut]), _joined(sample[cut:])
    if np_rng.random_sample() < 0.5:
        return second, first, True
    return first, second, False


def truncate_segments(tokens_a: list[int], tokens_b: list[int], len_a: int, len_b: int, max_num_tokens: int, np_rng: np.random.RandomState) -> bool:
    """Takes tokens off the longer segment, in place, until both together have ``max_num_tokens``; whether there was anything to take."""
    if len_a <= 0:
        raise ArgumentError("the first segment is empty; documents have no empty sentences")
    is_cut = len_a + len_b > max_num_tokens
    while len(tokens_a) + len(tokens_b) > max_num_tokens:
        cut_from_either_end(tokens_a if len(tokens_a) > len(tokens_b) else tokens_b, np_rng)
    return is_cut


def create_tokens_and_tokentypes(tokens_a: Sequence[int], tokens_b: Sequence[int], cls_id: int, sep_id: int) -> tuple[list[int], list[int]]:
    """``[CLS] a [SEP] b [SEP]``, and 0 or 1 by the segment; without b, ``[CLS] a [SEP]``."""
    first = [cls_id, *tokens_a, sep_id]
    second = [*tokens_b, sep_id] if len(tokens_b) else []
    return first + second, [0] * len(first) + [1] * len(second)


def _joined(sentences: Sequence[Any]) -> list[int]:
    return [int(token) for sentence in sentences for token in sentence]
