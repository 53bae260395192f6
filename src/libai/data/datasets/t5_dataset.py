"""Texts with spans replaced by sentinels, and the spans, as T5 is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from libai.data.data_utils.dataset_utils import create_masked_lm_predictions
from libai.data.data_utils.masking import MaskedSpan
from libai.data.datasets.sentences import SentenceDataset, field, most_predictions, padded, token_id
from libai.data.structures import Instance
from oneflow.engine.core.errors import ArgumentError

_SPECIAL = 2
_LONGEST_SPAN = 10  # words


class T5Dataset(SentenceDataset):
    """Samples with ``encoder_input_ids``, ``decoder_input_ids``, the masks ``encoder_attn_mask``, ``decoder_attn_mask``
    (causal) and ``encoder_decoder_attn_mask``, ``lm_labels`` (-1: padding) and ``loss_mask``. A sample is a function of
    ``seed`` and its number."""

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        indexed_dataset: Any,
        data_prefix: str,
        max_num_samples: int | None,
        masked_lm_prob: float,
        max_seq_length: int,
        max_seq_length_dec: int,
        short_seq_prob: float,
        seed: int,
    ) -> None:
        room = max_seq_length - _SPECIAL
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
            False,
        )
        self.masked_lm_prob, self.max_seq_length_dec = masked_lm_prob, max_seq_length_dec
        self.cls_id, self.sep_id, self.mask_id = (
            getattr(tokenizer, f"{kind}_token_id", None) for kind in ("cls", "sep", "mask")
        )
        self.pad_id = token_id(tokenizer, "pad")
        # T5's own tokenizer has no token to begin with: its decoder begins with padding.
        self.bos_id, self.eos_id = token_id(tokenizer, "bos", "cls", "pad"), token_id(tokenizer, "eos", "sep")
        self.sentinel_tokens = list(tokenizer.additional_special_tokens_ids)
        if not self.sentinel_tokens:
            raise ArgumentError(
                "T5Dataset needs a tokenizer with sentinels, one for each hidden span: T5Tokenizer(extra_ids=100), or "
                "additional_special_tokens=[...]"
            )

    def __getitem__(self, idx: int) -> Instance:
        sample, target, random = self.sentences(idx)
        return build_training_sample(
            self.tokenizer, sample, target, self.max_seq_length, self.max_seq_length_dec, self.vocab_id_list, self.vocab_id_to_token_dict, self.cls_id, self.sep_id,
            self.mask_id, self.pad_id, self.masked_lm_prob, random, self.bos_id, self.eos_id, self.sentinel_tokens,
        )  # fmt: skip


def build_training_sample(
    tokenizer: Any,
    sample: Sequence[Any],
    target_seq_length: int,
    max_seq_length: int,
    max_seq_length_dec: int,
    vocab_id_list: Sequence[int],
    vocab_id_to_token_dict: Mapping[int, str],
    cls_id: int | None,
    sep_id: int | None,
    mask_id: int | None,
    pad_id: int,
    masked_lm_prob: float,
    np_rng: np.random.RandomState,
    bos_id: int | None = None,
    eos_id: int | None = None,
    sentinel_tokens: Sequence[int] | None = None,
) -> Instance:
    """A sample of sentences, cut to ``target_seq_length``, with spans of 1 to 10 words replaced by sentinels."""
    if target_seq_length > max_seq_length:
        raise ArgumentError(
            f"target_seq_length is at most max_seq_length, got {target_seq_length} and {max_seq_length}"
        )
    tokens = [int(token) for sentence in sample for token in sentence][:target_seq_length]
    hidden, places, labels, _, spans = create_masked_lm_predictions(
        tokenizer, tokens, vocab_id_list, vocab_id_to_token_dict, masked_lm_prob, cls_id, sep_id, mask_id, most_predictions(masked_lm_prob, target_seq_length),
        np_rng, max_ngrams=_LONGEST_SPAN, geometric_dist=True, masking_style="t5",
    )  # fmt: skip
    encoder, decoder, target, encoder_mask, decoder_mask, cross_mask, loss = pad_and_convert_to_numpy(
        hidden, places, labels, pad_id, max_seq_length, max_seq_length_dec, spans, bos_id, eos_id, sentinel_tokens
    )
    return Instance(
        encoder_input_ids=field(encoder),
        decoder_input_ids=field(decoder),
        encoder_attn_mask=field(encoder_mask, torch.bool),
        decoder_attn_mask=field(decoder_mask, torch.bool),
        encoder_decoder_attn_mask=field(cross_mask, torch.bool),
        lm_labels=field(target, at_the_end=True),
        loss_mask=field(loss, torch.bool, at_the_end=True),
    )


def pad_and_convert_to_numpy(
    tokens: Sequence[int],
    masked_positions: Sequence[int],
    masked_labels: Sequence[int],
    pad_id: int,
    max_seq_length: int,
    max_seq_length_dec: int,
    masked_spans: Sequence[MaskedSpan] | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    sentinel_tokens: Sequence[int] | None = None,
) -> tuple[np.ndarray, ...]:
    """The encoder's tokens with a sentinel for each span, the decoder's (``bos``, then each sentinel with its span),
    labels (the same without ``bos``, then ``eos``), the masks of encoder, decoder and between them (rows attend to
    columns), and the mask of labels."""
    spans, sentinels = list(masked_spans or ()), list(sentinel_tokens or ())
    if len(spans) > len(sentinels):
        raise ArgumentError(
            f"{len(spans)} spans are hidden and there are {len(sentinels)} sentinels; give the tokenizer more, by "
            f"extra_ids or additional_special_tokens"
        )
    source, target, start = list[Any](), list[Any](), 0
    for span, sentinel in zip(spans, sentinels):
        source += [*tokens[start : span.index[0]], sentinel]
        target += [sentinel, *span.label]
        start = span.index[-1] + 1
    source += tokens[start:]
    if len(source) > max_seq_length or len(target) >= max_seq_length_dec:
        raise ArgumentError(
            f"a sample has {len(source)} tokens for the encoder and {len(target) + 1} for the decoder, "
            f"max_seq_length={max_seq_length} and "
            f"max_seq_length_dec={max_seq_length_dec} are less; raise them, or lower the part that is masked"
        )
    is_source, is_target = (
        padded([1] * len(source), max_seq_length, 0),
        padded([1] * (len(target) + 1), max_seq_length_dec, 0),
    )
    return (
        padded(source, max_seq_length, pad_id),
        padded([bos_id, *target], max_seq_length_dec, pad_id),
        padded([*target, eos_id], max_seq_length_dec, -1),
        make_attention_mask(is_source, is_source),
        make_attention_mask(is_target, is_target) * make_history_mask(is_target),
        make_attention_mask(is_target, is_source),
        is_target,
    )


def make_attention_mask(source_block: np.ndarray, target_block: np.ndarray) -> np.ndarray:
    """1 where the token of the row and that of the column are above 0, for each of ``source_block`` and each of
    ``target_block``."""
    return ((source_block[:, None] >= 1) & (target_block[None, :] >= 1)).astype(np.int64)


def make_history_mask(block: np.ndarray) -> np.ndarray:
    """1 where the column is not after the row."""
    return np.tril(np.ones((len(block), len(block)), np.int64))
