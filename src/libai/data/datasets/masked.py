"""What data sets of masked words share, BERT's and RoBERTa's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from libai.data.data_utils.dataset_utils import create_masked_lm_predictions
from libai.data.datasets.sentences import SentenceDataset, field, masked_labels_row, most_predictions, padded, token_id
from oneflow.engine.core.errors import ArgumentError


class MaskedDataset(SentenceDataset):
    """Samples of sentences with ``special`` tokens of the tokenizer's around them, some of whose words are masked."""

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        indexed_dataset: Any,
        data_prefix: str,
        max_num_samples: int | None,
        mask_lm_prob: float,
        max_seq_length: int,
        short_seq_prob: float,
        seed: int,
        binary_head: bool,
        masking_style: str,
        special: int,
    ) -> None:
        room = max_seq_length - special
        super().__init__(
            name,
            tokenizer,
            indexed_dataset,
            data_prefix,
            max_num_samples,
            max_seq_length,
            room,
            short_seq_prob,
            seed,
            binary_head,
        )
        self.mask_lm_prob, self.masking_style = mask_lm_prob, masking_style
        self.cls_id, self.sep_id = token_id(tokenizer, "cls"), token_id(tokenizer, "sep")
        self.mask_id, self.pad_id = token_id(tokenizer, "mask"), token_id(tokenizer, "pad")

    def told(self, idx: int) -> dict[str, Any]:
        """What ``build_training_sample`` is told of a sample and of words."""
        sample, target, random = self.sentences(idx)
        words = {"vocab_id_list": self.vocab_id_list, "vocab_id_to_token_dict": self.vocab_id_to_token_dict}
        special = {"cls_id": self.cls_id, "sep_id": self.sep_id, "mask_id": self.mask_id, "pad_id": self.pad_id}
        lengths = {"target_seq_length": target, "max_seq_length": self.max_seq_length}
        return {
            "tokenizer": self.tokenizer,
            "sample": sample,
            **lengths,
            **words,
            **special,
            "masked_lm_prob": self.mask_lm_prob,
            "np_rng": random,
        }


def require_room(target_seq_length: int, max_seq_length: int) -> None:
    if target_seq_length > max_seq_length:
        raise ArgumentError(
            f"target_seq_length is at most max_seq_length, got {target_seq_length} and {max_seq_length}"
        )


def masked_fields(
    tokenizer: Any,
    tokens: list[int],
    types: list[int],
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
    masking_style: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a sample, padded to ``max_seq_length``: tokens with words masked, and what the words were."""
    hidden, places, labels, _, _ = create_masked_lm_predictions(
        tokenizer, tokens, vocab_id_list, vocab_id_to_token_dict, masked_lm_prob, cls_id, sep_id, mask_id, most_predictions(masked_lm_prob, target_seq_length),
        np_rng, masking_style=masking_style,
    )  # fmt: skip
    ids, types_row, labels_row, attention, loss = pad_and_convert_to_numpy(
        hidden, types, places, labels, pad_id, max_seq_length
    )
    inputs = {
        "input_ids": field(ids),
        "attention_mask": field(attention, torch.bool),
        "tokentype_ids": field(types_row),
    }
    return inputs, {
        "lm_labels": field(labels_row, at_the_end=True),
        "loss_mask": field(loss, torch.bool, at_the_end=True),
    }


def pad_and_convert_to_numpy(
    tokens: Sequence[int],
    tokentypes: Sequence[int],
    masked_positions: list[int],
    masked_labels: list[int],
    pad_id: int,
    max_seq_length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ``max_seq_length``: tokens, token types, labels, the mask of tokens and that of labels. Token types are
    padded with ``pad_id`` too."""
    if len(tokens) > max_seq_length:
        raise ArgumentError(f"a sample of {len(tokens)} tokens does not go into max_seq_length={max_seq_length}")
    labels, loss = masked_labels_row(masked_positions, masked_labels, max_seq_length)
    return (
        padded(tokens, max_seq_length, pad_id),
        padded(tokentypes, max_seq_length, pad_id),
        labels,
        padded([1] * len(tokens), max_seq_length, 0),
        loss,
    )
