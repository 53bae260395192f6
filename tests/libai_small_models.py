"""LiBai's models of text as small as they work, with batches for them: what tests share, alone and on ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig

from libai import models

VOCABULARY, LENGTH, LAYERS = 16, 6, 2
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Small:
    """A class with its config, batches by a generator, and which of a batch's fields are needed at the last stage."""

    kind: type[Any]
    cfg: dict[str, Any]
    batch: Callable[[int, torch.Generator], Batch]
    late: tuple[str, ...]
    layers: int = LAYERS

    def config(self, **changes: Any) -> DictConfig:
        return DictConfig({**self.cfg, **changes})

    def make(self, **changes: Any) -> Any:
        return self.kind(self.config(**changes))


def _ids(rows: int, draw: torch.Generator, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (rows, length), generator=draw)


def _padded(rows: int, draw: torch.Generator, length: int = LENGTH) -> torch.Tensor:
    """1 at tokens: rows of different lengths, none empty."""
    lengths = torch.randint(length // 2, length + 1, (rows, 1), generator=draw)
    return (torch.arange(length) < lengths).long()


def _bert_batch(rows: int, draw: torch.Generator) -> Batch:
    types = (torch.arange(LENGTH) >= torch.randint(1, LENGTH, (rows, 1), generator=draw)).long()
    return {
        "input_ids": _ids(rows, draw),
        "attention_mask": _padded(rows, draw),
        "tokentype_ids": types,
        "ns_labels": torch.randint(2, (rows,), generator=draw),
        "lm_labels": torch.where(torch.rand(rows, LENGTH, generator=draw) < 0.5, _ids(rows, draw), -1),
        "loss_mask": (torch.rand(rows, LENGTH, generator=draw) < 0.5).long(),
    }


def _roberta_batch(rows: int, draw: torch.Generator) -> Batch:
    batch = {
        name: field for name, field in _bert_batch(rows, draw).items() if name not in ("ns_labels", "tokentype_ids")
    }
    batch["input_ids"] = torch.where(batch["attention_mask"] == 1, batch["input_ids"], 1)
    return batch


def _gpt_batch(rows: int, draw: torch.Generator) -> Batch:
    text = _ids(rows, draw, LENGTH + 1)
    return {"input_ids": text[:, :-1].clone(), "labels": text[:, 1:].clone()}


def _t5_batch(rows: int, draw: torch.Generator) -> Batch:
    """Five tokens for the encoder, four for the decoder."""
    encoder, decoder = _padded(rows, draw, 5), _padded(rows, draw, 4)
    return {
        "encoder_input_ids": _ids(rows, draw, 5),
        "decoder_input_ids": _ids(rows, draw, 4),
        "encoder_attn_mask": encoder[:, None, :] * encoder[:, :, None],
        "decoder_attn_mask": decoder[:, None, :] * decoder[:, :, None] * torch.ones(4, 4, dtype=torch.long).tril(),
        "encoder_decoder_attn_mask": encoder[:, None, :] * decoder[:, :, None],
        "lm_labels": _ids(rows, draw, 4),
        "loss_mask": decoder,
    }


def _classes(rows: int, draw: torch.Generator) -> Batch:
    batch = _bert_batch(rows, draw)
    return {name: batch[name] for name in ("input_ids", "attention_mask", "tokentype_ids")} | {
        "labels": torch.randint(3, (rows,), generator=draw)
    }


def _causal(rows: int, draw: torch.Generator) -> Batch:
    batch = _roberta_batch(rows, draw)
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "labels": batch["input_ids"].clone(),
    }


_DROPOUT = 0.1
_BERT = dict(
    vocab_size=VOCABULARY, hidden_size=16, hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=32, hidden_dropout_prob=_DROPOUT,
    attention_probs_dropout_prob=_DROPOUT, max_position_embeddings=10, num_tokentypes=2, initializer_range=0.2, layernorm_eps=1e-5,
)  # fmt: skip
_GPT = dict(
    hidden_layers=LAYERS, vocab_size=VOCABULARY, hidden_size=16, ffn_hidden_size=32, num_attention_heads=4, max_seq_length=10, embedding_dropout_prob=_DROPOUT,
    attention_dropout_prob=_DROPOUT, output_dropout_prob=_DROPOUT, initializer_range=0.2,
)  # fmt: skip
_T5 = {**{name: value for name, value in _BERT.items() if name != "num_tokentypes"}, "embedding_dropout_prob": _DROPOUT}
_LLAMA = dict(
    hidden_layers=LAYERS, vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=10,
    attention_dropout=_DROPOUT, initializer_range=0.2,
)  # fmt: skip

SMALL: dict[str, Small] = {
    "BERT": Small(
        models.BertForPreTraining,
        {**_BERT, "add_binary_head": True},
        _bert_batch,
        ("ns_labels", "lm_labels", "loss_mask"),
    ),
    "BERT classifier": Small(
        models.BertForClassification, {**_BERT, "num_labels": 3, "classifier_dropout": 0.1}, _classes, ("labels",)
    ),
    "RoBERTa": Small(
        models.RobertaForPreTraining,
        {**_BERT, "pad_token_id": 1, "num_tokentypes": 1},
        _roberta_batch,
        ("lm_labels", "loss_mask"),
    ),
    "RoBERTa causal": Small(
        models.RobertaForCausalLM, {**_BERT, "pad_token_id": 1, "num_tokentypes": 1}, _causal, ("labels",)
    ),
    "GPT": Small(models.GPTForPreTraining, _GPT, _gpt_batch, ("labels",)),
    "T5": Small(models.T5ForPreTraining, {**_T5, "hidden_layers": 1}, _t5_batch, ("lm_labels", "loss_mask")),
    "Llama": Small(models.LlamaForCausalLM, _LLAMA, _gpt_batch, ("labels",)),
    "Llama tied": Small(models.LlamaForCausalLM, {**_LLAMA, "tie_word_embeddings": True}, _gpt_batch, ("labels",)),
}
