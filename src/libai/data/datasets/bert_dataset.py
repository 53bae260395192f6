"""Pairs of segments with masked words, as BERT is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from libai.data.datasets.masked import MaskedDataset, masked_fields, require_room
from libai.data.datasets.masked import pad_and_convert_to_numpy as pad_and_convert_to_numpy
from libai.data.datasets.sentences import cut_from_either_end, field
from libai.data.structures import Instance
from oneflow.engine.core.errors import ArgumentError

_SPECIAL = 3  # [CLS] a [SEP] b [SEP]


class BertDataset(MaskedDataset):
    """Samples with ``input_ids``, ``attention_mask``, ``tokentype_ids``, ``ns_labels`` (1: the segments are the wrong
    way round), ``lm_labels`` (-1: not masked) and ``loss_mask``. Without ``binary_head`` there is one segment. A sample
    is a function of ``seed`` and its number."""

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
        super().__init__(*told, binary_head, masking_style, _SPECIAL)
        self.binary_head = binary_head

    def __getitem__(self, idx: int) -> Instance:
        return build_training_sample(**self.told(idx), binary_head=self.binary_head, masking_style=self.masking_style)


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
    require_room(target_seq_length, max_seq_length)
    if binary_head:
        tokens_a, tokens_b, is_swapped = get_a_and_b_segments(sample, np_rng)
    else:
        tokens_a, tokens_b, is_swapped = _joined(sample), [], False
    truncate_segments(tokens_a, tokens_b, len(tokens_a), len(tokens_b), target_seq_length, np_rng)
    tokens, types = create_tokens_and_tokentypes(tokens_a, tokens_b, cls_id, sep_id)
    inputs, labels = masked_fields(
        tokenizer, tokens, types, target_seq_length, max_seq_length, vocab_id_list, vocab_id_to_token_dict, cls_id, sep_id, mask_id, pad_id, masked_lm_prob,
        np_rng, masking_style,
    )  # fmt: skip
    return Instance(**inputs, ns_labels=field(int(is_swapped), at_the_end=True), **labels)


def get_a_and_b_segments(sample: Sequence[Any], np_rng: np.random.RandomState) -> tuple[list[int], list[int], bool]:
    """The sentences as two segments, cut at a random place, and whether they were swapped, which half of them are."""
    if len(sample) < 2:
        raise ArgumentError(
            f"a pair of segments takes two sentences or more, got {len(sample)}; make the data with --split-sentences, "
            f"or set binary_head=False"
        )
    cut = np_rng.randint(1, len(sample)) if len(sample) > 2 else 1
    first, second = _joined(sample[:cut]), _joined(sample[cut:])
    if np_rng.random_sample() < 0.5:
        return second, first, True
    return first, second, False


def truncate_segments(
    tokens_a: list[int], tokens_b: list[int], len_a: int, len_b: int, max_num_tokens: int, np_rng: np.random.RandomState
) -> bool:
    """Takes tokens off the longer segment, in place, until both together have ``max_num_tokens``; whether there was
    anything to take."""
    if len_a <= 0:
        raise ArgumentError("the first segment is empty; documents have no empty sentences")
    is_cut = len_a + len_b > max_num_tokens
    while len(tokens_a) + len(tokens_b) > max_num_tokens:
        cut_from_either_end(tokens_a if len(tokens_a) > len(tokens_b) else tokens_b, np_rng)
    return is_cut


def create_tokens_and_tokentypes(
    tokens_a: Sequence[int], tokens_b: Sequence[int], cls_id: int, sep_id: int
) -> tuple[list[int], list[int]]:
    """``[CLS] a [SEP] b [SEP]``, and 0 or 1 by the segment; without b, ``[CLS] a [SEP]``."""
    first = [cls_id, *tokens_a, sep_id]
    second = [*tokens_b, sep_id] if len(tokens_b) else []
    return first + second, [0] * len(first) + [1] * len(second)


def _joined(sentences: Sequence[Any]) -> list[int]:
    return [int(token) for sentence in sentences for token in sentence]
