"""Segments with masked words, as RoBERTa is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from libai.data.data_utils.dataset_utils import create_masked_lm_predictions
from libai.data.datasets.bert_dataset import pad_and_convert_to_numpy
from libai.data.datasets.sentences import SentenceDataset, cut_from_either_end, field, most_predictions, token_id
from libai.data.structures import Instance
from oneflow.core.errors import ArgumentError

_SPECIAL = 2  # <s> a </s>


class RobertaDataset(SentenceDataset):
    """Samples with ``input_ids``, ``attention_mask``, ``tokentype_ids``, ``lm_labels`` (-1: not masked) and ``loss_mask``. A sample is a function of
    ``seed`` and its number."""

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
        masking_style: str = "bert",
    ) -> None:
        room = max_seq_length - _SPECIAL
        super().__init__(name, tokenizer, indexed_dataset, data_prefix, max_num_samples, max_seq_length, room, short_seq_prob, seed, False)
        self.mask_lm_prob, self.masking_style = mask_lm_prob, masking_style
        self.cls_id, self.sep_id = token_id(tokenizer, "cls"), token_id(tokenizer, "sep")
        self.mask_id, self.pad_id = token_id(tokenizer, "mask"), token_id(tokenizer, "pad")

    def __getitem__(self, idx: int) -> Instance:
        sample, target, random = self.sentences(idx)
        return build_training_sample(
            self.tokenizer, sample, target, self.max_seq_length, self.vocab_id_list, self.vocab_id_to_token_dict, self.cls_id, self.sep_id, self.mask_id,
            self.pad_id, self.mask_lm_prob, random, self.masking_style,
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
    masking_style: str = "bert",
) -> Instance:
    """A sample of sentences: one segment, cut to ``target_seq_length``, masked, and padded to ``max_seq_length``."""
    if target_seq_length > max_seq_length:
        raise ArgumentError(f"target_seq_length is at most max_seq_length, got {target_seq_length} and {max_seq_length}")
    segment = [int(token) for sentence in sample for token in sentence]
    truncate_segments(segment, len(segment), target_seq_length, np_rng)
    tokens, types = create_tokens_and_tokentypes(segment, cls_id, sep_id)
    hidden, places, labels, _, _ = create_masked_lm_predictions(
        tokenizer, tokens, vocab_id_list, vocab_id_to_token_dict, masked_lm_prob, cls_id, sep_id, mask_id, most_predictions(masked_lm_prob, target_seq_length),
        np_rng, masking_style=masking_style,
    )  # fmt: skip
    ids, types_row, labels_row, attention, loss = pad_and_convert_to_numpy(hidden, types, places, labels, pad_id, max_seq_length)
    return Instance(
        input_ids=field(ids),
        attention_mask=field(attention, torch.bool),
        tokentype_ids=field(types_row),
        lm_labels=field(labels_row, at_the_end=True),
        loss_mask=field(loss, torch.bool, at_the_end=True),
    )


def truncate_segments(tokens: list[int], len_tokens: int, max_num_tokens: int, np_rng: np.random.RandomState) -> bool:
    """Takes tokens off either end, in place, until there are ``max_num_tokens``; whether there was anything to take."""
    if len_tokens <= 0:
        raise ArgumentError("the segment is empty; documents have no empty sentences")
    while len(tokens) > max_num_tokens:
        cut_from_either_end(tokens, np_rng)
    return len_tokens > max_num_tokens


def create_tokens_and_tokentypes(tokens: Sequence[int], cls_id: int, sep_id: int) -> tuple[list[int], list[int]]:
    """``<s> tokens </s>``, and as many zeros."""
    found = [cls_id, *tokens, sep_id]
    return found, [0] * len(found)
