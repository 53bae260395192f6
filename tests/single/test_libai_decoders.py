"""Decoders with a cache: GPT-2 and Llama write what those of ``transformers`` with the same weights write, token for
token; with a cache and without, it is the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
import huggingface_models as hf
from omegaconf import OmegaConf

import oneflow as flow
from libai import models
from libai.config import get_config
from libai.inference.generator.products import few_rows
from libai.layers import TransformerLayer
from libai.utils import distributed as dist

END, PAD = 7, 5
WRITERS = ("GPT-2", "Llama", "Llama, tied, scaled")
SETTINGS = {
    "greedy": {"max_new_tokens": 14},
    "to an end": {"max_new_tokens": 14, "eos_token_id": END},
    "beams": {"max_new_tokens": 12, "num_beams": 4, "eos_token_id": END},
    "beams, all texts": {"max_new_tokens": 9, "num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.3},
    "penalty": {"max_new_tokens": 12, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
}


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Theirs and ours of each kind."""
    dist.setup_dist_util({})
    root: Path = tmp_path_factory.mktemp("writers")
    return {name: (hf.theirs(name), hf.ours(name, hf.save(hf.theirs(name), root / name))) for name in WRITERS}


def prompts(rows: int = 3, length: int = 6) -> torch.Tensor:
    return torch.randint(8, hf.WORDS, (rows, length), generator=torch.Generator().manual_seed(rows))


def written(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, **settings: Any) -> list[list[int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            **{"do_sample": False, "pad_token_id": PAD, **settings},
        ).tolist()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", WRITERS)
def test_texts_are_those_of_transformers_with_a_cache_and_without(
    name: str, setting: str, pairs: dict[str, Any]
) -> None:
    theirs, ours = pairs[name]
    for rows in (1, 3):
        expected = written(theirs, prompts(rows), **SETTINGS[setting])
        assert ours.generate(prompts(rows), pad_token_id=PAD, **SETTINGS[setting]).tolist() == expected
    assert ours.generate(prompts(3), pad_token_id=PAD, use_cache=False, **SETTINGS[setting]).tolist() == expected


@pytest.mark.parametrize("name", WRITERS)
def test_padding_on_the_left_is_not_looked_at(name: str, pairs: dict[str, Any]) -> None:
    theirs, ours = pairs[name]
    ids = prompts()
    ids[1, :4] = PAD
    ids[2, :1] = PAD
    for settings in ({"max_new_tokens": 8}, {"max_new_tokens": 8, "num_beams": 3}):
        expected = written(theirs, ids, (ids != PAD).long(), **settings)
        assert ours.generate(ids, pad_token_id=PAD, **settings).tolist() == expected
        assert ours.generate(ids, pad_token_id=PAD, use_cache=False, **settings).tolist() == expected


def test_sampling_by_seed_is_that_of_transformers(pairs: dict[str, Any]) -> None:
    theirs, ours = pairs["Llama"]
    flow.manual_seed(3)
    expected = written(theirs, prompts(), do_sample=True, max_new_tokens=12, top_k=9, temperature=0.7)
    flow.manual_seed(3)
    assert (
        ours.generate(prompts(), do_sample=True, max_new_tokens=12, top_k=9, temperature=0.7, pad_token_id=PAD).tolist()
        == expected
    )


def test_global_tokens_give_global_tokens(pairs: dict[str, Any]) -> None:
    _, ours = pairs["GPT-2"]
    given = prompts().to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)
    found = ours.generate(given, max_new_tokens=5)
    assert found.is_global and found.to_local().tolist() == ours.generate(prompts(), max_new_tokens=5).tolist()


def test_what_was_trained_since_is_used(pairs: dict[str, Any]) -> None:
    theirs, ours = pairs["GPT-2"]
    before = ours.generate(prompts(), max_new_tokens=8).tolist()
    weight = ours.GPT_model.transformer.layers[0].mlp.dense_4h_to_h.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(-3.0)
    changed = ours.generate(prompts(), max_new_tokens=8)
    assert changed.tolist() != before
    assert changed.tolist() == ours.generate(prompts(), max_new_tokens=8, use_cache=False).tolist()
    with torch.no_grad():
        weight.copy_(kept)
    assert ours.generate(prompts(), max_new_tokens=8).tolist() == before


def test_tokens_and_scores_may_be_used_in_training(pairs: dict[str, Any]) -> None:
    _, ours = pairs["GPT-2"]
    found = ours.generate(
        prompts(), max_new_tokens=3, output_scores=True, logits_processor=[lambda ids, scores: scores.fill_(0.0)]
    )
    table = torch.nn.Embedding(hf.WORDS, 2)
    (table(found["sequences"]).sum() * found["scores"][0].sum()).backward()
    assert found["sequences"][:, 6:].eq(0).all() and table.weight.grad is not None


class Doubled(TransformerLayer):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = super().forward(*args, **kwargs)
        return (found[0] * 2, found[1]) if isinstance(found, tuple) else found * 2


def test_layers_of_ones_own_are_called(pairs: dict[str, Any]) -> None:
    _, ours = pairs["GPT-2"]
    layers = ours.GPT_model.transformer.layers
    before = ours.generate(prompts(), max_new_tokens=8).tolist()
    layers[0].__class__ = Doubled
    try:
        assert ours.cached_decoder(1, 9) is None
        found = ours.generate(prompts(), max_new_tokens=8).tolist()
        assert found == ours.generate(prompts(), max_new_tokens=8, use_cache=False).tolist() != before
    finally:
        layers[0].__class__ = TransformerLayer


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_a_text_longer_than_the_positions(name: str, pairs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a text of 46 tokens is longer than the 24 positions of the model"):
        pairs[name][1].generate(prompts(), max_new_tokens=40)


# --------------------------------------------------------------------------------------------- encoder and decoder


@pytest.fixture(scope="module")
def t5() -> Any:
    dist.setup_dist_util({})
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 24,
        "hidden_size": 16,
        "hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "max_position_embeddings": 16,
    }
    made = models.T5ForPreTraining(OmegaConf.merge(get_config("common/models/t5.py").cfg, sizes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape).to_global(parameter.placement, parameter.sbp) * 0.3)
    return made


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_beams": 3},
        {"num_beams": 2, "encoder_no_repeat_ngram_size": 1},
        {"eos_token_id": 9, "forced_bos_token_id": 4},
    ],
)
def test_an_encoder_and_a_decoder_with_a_cache_write_what_they_write_without(t5: Any, settings: dict[str, Any]) -> None:
    ids = torch.randint(6, 20, (3, 5), generator=torch.Generator().manual_seed(4))
    ids[0, 3:] = PAD
    said: dict[str, Any] = {"max_new_tokens": 6, "decoder_start_token_id": 2, "pad_token_id": PAD, **settings}
    found = t5.generate(ids, **said)
    assert found[:, 0].eq(2).all() and found.tolist() == t5.generate(ids, use_cache=False, **said).tolist()
    alone = t5.generate(ids[:1, :3], **said)
    assert found[0, : alone.shape[1]].tolist() == alone[0].tolist()
    first = t5.generate(ids, **{**said, "decoder_start_token_id": 3})
    given = t5.generate(ids, decoder_input_ids=torch.full((3, 1), 3), **{**said, "decoder_start_token_id": None})
    assert given.tolist() == first.tolist() != found.tolist()


@pytest.mark.parametrize("rows", [0, 1, 3, 100])
@pytest.mark.parametrize("shape", [(24, 8), (8, 24)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_of_few_rows_is_the_product(rows: int, shape: tuple[int, int], has_bias: bool) -> None:
    x, weight, bias = (
        torch.randn(max(rows, 1), shape[1]),
        torch.randn(shape),
        torch.randn(shape[0]) if has_bias else None,
    )
    torch.testing.assert_close(few_rows(weight, bias, rows)(x), torch.nn.functional.linear(x, weight, bias))
