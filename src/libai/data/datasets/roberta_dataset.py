"""Segments with masked words, as RoBERTa is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from libai.data.datasets.masked import MaskedDataset, masked_fields, require_room
from libai.data.datasets.masked import pad_and_convert_to_numpy as pad_and_convert_to_numpy
from libai.data.datasets.sentences import cut_from_either_end
from libai.data.structures import Instance
from oneflow.engine.core.errors import ArgumentError

_SPECIAL = 2  # <s> a </s>


class RobertaDataset(MaskedDataset):
    """Samples with ``input_ids``, ``attention_mask``, ``tokentype_ids``, ``lm_labels`` (-1: not masked) and
    ``loss_mask``. A sample is a function of ``seed`` and its number."""

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
        told = (
            name,
            tokenizer,
            indexed_dataset,
            data_prefix,
            max_num_samples,
            mask_lm_prob,
            max_seq_length,
            short_seq_prob,
            seed,
        )
        super().__init__(*told, False, masking_style, _SPECIAL)

    def __getitem__(self, idx: int) -> Instance:
        return build_training_sample(**self.told(idx), masking_style=self.masking_style)


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
    require_room(target_seq_length, max_seq_length)
    segment = [int(token) for sentence in sample for token in sentence]
    truncate_segments(segment, len(segment), target_seq_length, np_rng)
    tokens, _ = create_tokens_and_tokentypes(segment, cls_id, sep_id)
    types = [0] * max_seq_length  # there is one type, for padding too: pad_id, 1 as a rule, would be a second one
    inputs, labels = masked_fields(
        tokenizer, tokens, types, target_seq_length, max_seq_length, vocab_id_list, vocab_id_to_token_dict, cls_id, sep_id, mask_id, pad_id, masked_lm_prob,
        np_rng, masking_style,
    )  # fmt: skip
    return Instance(**inputs, **labels)


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
