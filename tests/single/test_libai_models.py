"""LiBai's models of text: names of parameters, losses by their formulas in plain torch, what they may look at, caches,
and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from libai_formulas import Weights, below, norm, spread, transformer_layer, values
from libai_small_models import SMALL, Batch

import oneflow as flow
from libai import models
from libai.config import get_config, instantiate
from libai.config.errors import ConfigError
from libai.layers.attention import AttnMaskType
from libai.models.gpt_model import CasualMask
from libai.models.utils.stages import require_layers
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})
    torch.manual_seed(5)


def batch_of(name: str, rows: int = 3) -> Batch:
    return SMALL[name].batch(rows, torch.Generator().manual_seed(2))


def run(model: Any, batch: Batch, *without: str, **more: Any) -> dict[str, Any]:
    found = model(**{name: spread(field) for name, field in batch.items() if name not in without}, **more)
    return {
        name: value.to_local() if torch.is_tensor(value) and value.is_global else value for name, value in found.items()
    }


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------ names


def both(*names: str) -> set[str]:
    return {f"{name}.{kind}" for name in names for kind in ("weight", "bias")}


def layer(prefix: str, is_decoder: bool = False) -> set[str]:
    parts = [
        "input_layernorm",
        "post_attention_layernorm",
        "self_attention.query_key_value",
        "self_attention.dense",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    ]
    if is_decoder:
        parts += [
            "cross_attention.query",
            "cross_attention.key_value",
            "cross_attention.dense",
            "post_cross_attention_layernorm",
        ]
    return both(*(f"{prefix}.{part}" for part in parts))


def weights(*names: str) -> set[str]:
    return {f"{name}.weight" for name in names}


def bert(prefix: str) -> set[str]:
    tables = weights(*(f"{prefix}.embeddings.{kind}_embeddings" for kind in ("vocab", "position", "tokentype")))
    return tables | layer(f"{prefix}.encoders.0") | layer(f"{prefix}.encoders.1") | both(f"{prefix}.final_layernorm")


def llama(*more: str) -> set[str]:
    parts = (
        [f"self_attn.{kind}_proj" for kind in "qkvo"]
        + [f"mlp.{kind}_proj" for kind in ("gate", "up", "down")]
        + ["input_layernorm", "post_attention_layernorm"]
    )
    return weights(
        "model.embed_tokens", "model.norm", *more, *(f"model.layers.{i}.{part}" for i in (0, 1) for part in parts)
    )


_ROBERTA = bert("roberta") | both("lm_head.dense", "lm_head.layernorm") | {"lm_head.lm_logits.bias"}
KEYS = {
    "BERT": bert("bert")
    | both(
        "bert.pooler.dense", "cls_head.predictions.dense", "cls_head.predictions.layernorm", "cls_head.seq_relationship"
    )
    | {"cls_head.lm_logits.bias"},
    "BERT classifier": bert("bert") | both("bert.pooler.dense", "classifier"),
    "RoBERTa": _ROBERTA,
    "RoBERTa causal": _ROBERTA,
    "GPT": weights("GPT_model.embeddings.token_embeddings", "GPT_model.embeddings.position_embeddings")
    | layer("GPT_model.transformer.layers.0")
    | layer("GPT_model.transformer.layers.1")
    | both("GPT_model.transformer.layernorm_f"),
    "T5": weights("t5_model.embedding.word_embeddings", "t5_model.embedding.position_embeddings")
    | layer("t5_model.encoder.layers.0")
    | layer("t5_model.decoder.layers.0", is_decoder=True)
    | both("t5_model.encoder.final_layernorm", "t5_model.decoder.final_layernorm")
    | {"t5_model.lm_head.bias"},
    "Llama": llama("lm_head"),
    "Llama tied": llama(),
}


@pytest.mark.parametrize("name", SMALL)
def test_names_of_parameters(name: str) -> None:
    model = SMALL[name].make()
    assert set(model.state_dict()) == KEYS[name]
    assert all(tensor.is_global for tensor in model.state_dict().values())
    assert model.cfg.hidden_size == 16


# ------------------------------------------------------------------ losses by their formulas


def outer(mask: torch.Tensor) -> torch.Tensor:
    return (mask[:, None, :] * mask[:, :, None])[:, None].float()


def masked(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    each = F.cross_entropy(scores.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none")
    return (each * mask.flatten()).sum() / (mask.sum() + 1e-7)


def encoded(w: Weights, batch: Batch, positions: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    e = below(w, "embeddings")
    x = (
        e["vocab_embeddings.weight"][batch["input_ids"]]
        + e["position_embeddings.weight"][positions]
        + e["tokentype_embeddings.weight"][types]
    )
    for number in (0, 1):
        x = transformer_layer(below(w, f"encoders.{number}"), x, 4, mask)
    return norm(x, w, "final_layernorm")


def head(w: Weights, x: torch.Tensor, table: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return norm(F.gelu(x @ w["dense.weight"].T + w["dense.bias"]), w, "layernorm") @ table.T + bias


def test_bert_by_its_formula() -> None:
    batch, model = batch_of("BERT"), SMALL["BERT"].make().eval()
    w = values(model)
    x = encoded(below(w, "bert"), batch, torch.arange(6), batch["tokentype_ids"], outer(batch["attention_mask"]))
    pooled = torch.tanh(x[:, 0] @ w["bert.pooler.dense.weight"].T + w["bert.pooler.dense.bias"])
    order = pooled @ w["cls_head.seq_relationship.weight"].T + w["cls_head.seq_relationship.bias"]
    scores = head(
        below(w, "cls_head.predictions"), x, w["bert.embeddings.vocab_embeddings.weight"], w["cls_head.lm_logits.bias"]
    )
    losses = run(model, batch)
    assert set(losses) == {"lm_loss", "sop_loss"}
    near(losses["lm_loss"], masked(scores, batch["lm_labels"], batch["loss_mask"]))
    near(losses["sop_loss"], F.cross_entropy(order, batch["ns_labels"]))
    found = run(model, batch, "ns_labels", "lm_labels", "loss_mask")
    assert set(found) == {"prediction_scores", "seq_relationship_score"}
    near(found["prediction_scores"], scores)
    near(found["seq_relationship_score"], order)
    states, rest = model.bert(
        spread(batch["input_ids"]), spread(batch["attention_mask"]), spread(batch["tokentype_ids"])
    )
    near(states.to_local(), x)
    near(rest.to_local(), pooled)


def test_bert_without_the_order_of_sentences() -> None:
    model = SMALL["BERT"].make(add_binary_head=False)
    assert set(run(model, batch_of("BERT"))) == {"lm_loss"}
    plain = models.BertModel(SMALL["BERT"].config(), add_pooling_layer=False)
    assert plain.pooler is None and plain(spread(batch_of("BERT")["input_ids"]))[1] is None


def test_token_types_that_are_not_given_are_zero() -> None:
    batch, model = batch_of("BERT"), SMALL["BERT"].make().eval()
    zeros = {**batch, "tokentype_ids": torch.zeros_like(batch["tokentype_ids"])}
    near(run(model, batch, "tokentype_ids")["lm_loss"], run(model, zeros)["lm_loss"])


def test_a_classifier_by_its_formula() -> None:
    batch, model = batch_of("BERT classifier"), SMALL["BERT classifier"].make().eval()
    w = values(model)
    x = encoded(below(w, "bert"), batch, torch.arange(6), batch["tokentype_ids"], outer(batch["attention_mask"]))
    pooled = torch.tanh(x[:, 0] @ w["bert.pooler.dense.weight"].T + w["bert.pooler.dense.bias"])
    logits = pooled @ w["classifier.weight"].T + w["classifier.bias"]
    found = run(model, batch)
    near(found["logits"], logits)
    near(found["cls_loss"], F.cross_entropy(logits, batch["labels"]))
    assert set(run(model, batch, "labels")) == {"logits"} and set(run(model.train(), batch)) == {"cls_loss"}
    assert models.BertForClassification(SMALL["BERT classifier"].config(classifier_dropout=None)).dropout.p == 0.1


def roberta_positions(ids: torch.Tensor) -> torch.Tensor:
    """Tokens from 2, padding 1."""
    return torch.tensor(
        [
            [1 if token == 1 else 1 + sum(t != 1 for t in row[: i + 1]) for i, token in enumerate(row)]
            for row in ids.tolist()
        ]
    )


def test_roberta_by_its_formula() -> None:
    batch, model = batch_of("RoBERTa"), SMALL["RoBERTa"].make().eval()
    w = values(model)
    x = encoded(
        below(w, "roberta"),
        batch,
        roberta_positions(batch["input_ids"]),
        torch.zeros(3, 6, dtype=torch.long),
        outer(batch["attention_mask"]),
    )
    scores = head(below(w, "lm_head"), x, w["roberta.embeddings.vocab_embeddings.weight"], w["lm_head.lm_logits.bias"])
    near(run(model, batch)["lm_loss"], masked(scores, batch["lm_labels"], batch["loss_mask"]))
    near(run(model, batch, "lm_labels", "loss_mask")["prediction_scores"], scores)


def test_causal_roberta_by_its_formula() -> None:
    batch, model = batch_of("RoBERTa causal"), SMALL["RoBERTa causal"].make().eval()
    w = values(model)
    mask = outer(batch["attention_mask"]) * torch.ones(6, 6).tril()
    x = encoded(
        below(w, "roberta"), batch, roberta_positions(batch["input_ids"]), torch.zeros(3, 6, dtype=torch.long), mask
    )
    scores = head(below(w, "lm_head"), x, w["roberta.embeddings.vocab_embeddings.weight"], w["lm_head.lm_logits.bias"])
    near(run(model, batch)["lm_loss"], F.cross_entropy(scores[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()))
    counted = batch["attention_mask"].clone()
    near(
        run(model, {**batch, "loss_mask": counted})["lm_loss"],
        masked(scores[:, :-1], batch["labels"][:, 1:], counted[:, 1:]),
    )
    near(run(model, batch, "labels")["prediction_scores"], scores)
    other = {**batch, "position_ids": torch.arange(6).expand(3, 6)}
    assert (run(model, other, "labels")["prediction_scores"] - scores).abs().max() > 1e-3


def test_gpt_by_its_formula() -> None:
    batch, model = batch_of("GPT"), SMALL["GPT"].make().eval()
    w = values(model)
    g = below(w, "GPT_model")
    x = g["embeddings.token_embeddings.weight"][batch["input_ids"]] + g["embeddings.position_embeddings.weight"][:6]
    for number in (0, 1):
        x = transformer_layer(below(g, f"transformer.layers.{number}"), x, 4, torch.ones(6, 6).tril())
    scores = norm(x, g, "transformer.layernorm_f") @ g["embeddings.token_embeddings.weight"].T
    for mode in (
        model.eval(),
        SMALL["GPT"]
        .make(
            embedding_dropout_prob=0.0,
            attention_dropout_prob=0.0,
            output_dropout_prob=0.0,
            scale_mask_softmax_fusion=True,
        )
        .train(),
    ):
        mode.load_state_dict(model.state_dict())
        near(
            run(mode, batch)["lm_loss"], F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())
        )  # with labels a loss, also where it evaluates
        near(run(mode, batch, "labels")["prediction_scores"], scores)


def test_t5_by_its_formula() -> None:
    batch, model = batch_of("T5"), SMALL["T5"].make().eval()
    w = values(model)
    t = below(w, "t5_model")
    table, places = t["embedding.word_embeddings.weight"], t["embedding.position_embeddings.weight"]
    memory = table[batch["encoder_input_ids"]] + places[:5]
    memory = transformer_layer(below(t, "encoder.layers.0"), memory, 4, batch["encoder_attn_mask"][:, None].float())
    memory = norm(memory, t, "encoder.final_layernorm")
    x = table[batch["decoder_input_ids"]] + places[:4]
    x = transformer_layer(
        below(t, "decoder.layers.0"),
        x,
        4,
        batch["decoder_attn_mask"][:, None].float(),
        memory,
        batch["encoder_decoder_attn_mask"][:, None].float(),
    )
    scores = norm(x, t, "decoder.final_layernorm") @ table.T + t["lm_head.bias"]
    near(run(model, batch)["masked_lm_loss"], masked(scores, batch["lm_labels"], batch["loss_mask"]))
    near(run(model, batch, "lm_labels", "loss_mask")["prediction_scores"], scores)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "num_key_value_heads": None, "attention_bias": True},
        {
            "rope_theta": 500.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8,
            },
        },
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "mlp_bias": True, "head_dim": 8},
    ],
)
def test_llama_is_that_of_transformers(changes: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    batch, model = batch_of("Llama"), SMALL["Llama"].make(**changes).eval()
    told = {name: value for name, value in model.cfg.items() if name not in ("hidden_layers", "rope_scaling")}
    scaling = model.cfg.get("rope_scaling")
    told["rope_scaling"] = None if scaling is None else dict(scaling)
    twin = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_hidden_layers=2, bos_token_id=0, eos_token_id=0, **told)
    ).eval()
    missing = twin.load_state_dict(values(model), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}
    twin.tie_weights()
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        near(run(model, batch, "labels")["prediction_scores"], twin(input_ids=batch["input_ids"]).logits)
        padded = twin(
            input_ids=batch["input_ids"], attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)
        ).logits
    found = run(model, {**batch, "attention_mask": mask}, "labels")["prediction_scores"]
    near(found[mask == 1], padded[mask == 1])
    labels = torch.where(torch.rand(3, 6) < 0.3, -100, batch["labels"])
    scores = run(model, batch, "labels")["prediction_scores"]
    near(run(model, {**batch, "labels": labels})["lm_loss"], F.cross_entropy(scores.flatten(0, 1), labels.flatten()))


# ------------------------------------------------------------------ what may be looked at, caches


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["GPT", "RoBERTa causal", "Llama"])
def test_no_position_sees_what_comes_behind_it(name: str, fused: bool) -> None:
    batch, model = batch_of(name), SMALL[name].make(scale_mask_softmax_fusion=fused).eval()
    changed = batch["input_ids"].clone()
    changed[:, 4] = (changed[:, 4] + 1) % 14 + 2
    first, second = (
        run(model, {**batch, "input_ids": ids}, "labels")["prediction_scores"] for ids in (batch["input_ids"], changed)
    )
    tokens = (
        batch.get("attention_mask", torch.ones(3, 6))[:, :4] == 1
    )  # padding, which sees no token, looks at all of them alike
    near(first[:, :4][tokens], second[:, :4][tokens])
    assert (first[:, 4:] - second[:, 4:]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["GPT", "Llama", "Llama tied"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_cache_gives_what_the_whole_text_gives(name: str, is_padded: bool) -> None:
    batch, model = batch_of(name), SMALL[name].make().eval()
    ids = spread(batch["input_ids"])
    mask = spread(torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])) if is_padded else None
    expected = model(ids, attention_mask=mask)["prediction_scores"].to_local()
    cache, found = None, []
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        out = model(
            ids[:, start:stop],
            attention_mask=None if mask is None else mask[:, :stop],
            past_key_values=cache,
            use_cache=True,
        )
        cache = out["past_key_values"]
        found.append(out["prediction_scores"].to_local())
    seen = torch.ones(3, 6, dtype=torch.bool) if mask is None else mask.to_local() == 1
    near(torch.cat(found, 1)[seen], expected[seen])
    assert len(cache) == 2 and cache[0][0].shape == (3, 2 if name.startswith("Llama") else 4, 6, 4)


def test_padding_before_a_text_changes_nothing() -> None:
    model = SMALL["GPT"].make().eval()
    text = torch.randint(2, 16, (1, 4))
    padded, mask = torch.cat([torch.zeros(1, 2, dtype=torch.long), text], 1), torch.tensor([[0, 0, 1, 1, 1, 1]])
    expected = run(model, {"input_ids": text})["prediction_scores"]
    near(run(model, {"input_ids": padded, "attention_mask": mask})["prediction_scores"][:, 2:], expected)


def test_t5_with_a_cache_leaves_the_encoder_out() -> None:
    batch, model = batch_of("T5"), SMALL["T5"].make().eval()
    inputs = {name: spread(field) for name, field in batch.items() if name not in ("lm_labels", "loss_mask")}
    expected = model(**inputs)["prediction_scores"].to_local()
    found = []
    for stop in range(1, 5):
        now = {
            **inputs,
            "encoder_input_ids": inputs["encoder_input_ids"] if stop == 1 else None,
            "decoder_input_ids": inputs["decoder_input_ids"][:, stop - 1 : stop],
            "decoder_attn_mask": inputs["decoder_attn_mask"][:, :stop, :stop],
            "encoder_decoder_attn_mask": inputs["encoder_decoder_attn_mask"][:, :stop],
        }
        found.append(model(**now, use_cache=True)["prediction_scores"].to_local())
    tokens = batch["loss_mask"] == 1
    near(torch.cat(found, 1)[tokens], expected[tokens])
    assert model.t5_model.past_length == 4 and len(model.t5_model.past_key_values[0]) == 4
    near(model(**inputs)["prediction_scores"].to_local(), expected)  # without a cache it is as if there were none
    model.set_cache(None, None)
    assert model.t5_model.past_length == 0
    near(model(**inputs, use_cache=True)["prediction_scores"].to_local(), expected)
    with pytest.raises(ArgumentError, match="what each of 1 layers of the decoder keeps, got 2"):
        model.set_cache(None, [(), ()])


def test_the_mask_of_gpt() -> None:
    ids, keys = spread(torch.zeros(2, 2, dtype=torch.long)), torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert CasualMask()(ids, past_length=1).to_local().tolist() == [[[[1, 1, 0], [1, 1, 1]]]]
    assert CasualMask()(ids, 1, spread(keys)).to_local().tolist() == [
        [[[0, 1, 0], [0, 1, 1]]],
        [[[1, 1, 0], [1, 1, 1]]],
    ]


# ------------------------------------------------------------------ local tensors, refusals, configs


@pytest.mark.parametrize("name", SMALL)
def test_models_compute_with_local_tensors_too(name: str) -> None:
    batch, model = batch_of(name), SMALL[name].make().eval()
    expected = run(model, batch)
    found = model.to_local()(**batch)
    for key, value in expected.items():
        assert not found[key].is_global
        near(found[key], value)


@pytest.mark.parametrize("name", ["BERT", "GPT", "T5", "Llama"])
def test_more_positions_than_a_model_has_are_refused(name: str) -> None:
    batch = {
        key: field.repeat(*([1] * (field.ndim - 1)), 4) if field.ndim > 1 else field
        for key, field in batch_of(name).items()
    }
    with pytest.raises(ArgumentError, match=r"positions, but the model has 10; shorten the text"):
        run(SMALL[name].make(), batch)


def test_heads_of_llama_share_evenly() -> None:
    with pytest.raises(ArgumentError, match="hidden_size must be divisible by num_key_value_heads"):
        SMALL["Llama"].make(num_key_value_heads=3)
    with pytest.raises(ArgumentError, match='"linear" or "llama3", got \'yarn\''):
        SMALL["Llama"].make(rope_scaling={"rope_type": "yarn", "factor": 2.0})


def test_a_model_takes_arguments_in_place_of_a_config() -> None:
    model = models.GPTModel(hidden_layers=1, vocab_size=8, hidden_size=4, ffn_hidden_size=8, num_attention_heads=2)
    assert model(spread(torch.zeros(1, 3, dtype=torch.long))).shape == (1, 3, 8)
    with pytest.raises(Exception, match="hidden_size"):
        models.GPTModel(SMALL["BERT"].config(hidden_size="???"))


def test_the_layers_of_a_pipeline_are_those_of_the_model() -> None:
    model = SMALL["GPT"].make()
    with flow.planned_world(2):
        dist.setup_dist_util({"pipeline_parallel_size": 2, "pipeline_num_layers": 3})
        with pytest.raises(ConfigError, match="pipeline_num_layers=3, but GPTForPreTraining has 2 layers; set it to 2"):
            require_layers(model)
        dist.setup_dist_util({"pipeline_parallel_size": 2, "pipeline_num_layers": 2})
        require_layers(model)
        require_layers(torch.nn.Linear(2, 2))  # numbers no layers


@pytest.mark.parametrize(
    ("file", "name", "kind", "sizes"),
    [
        ("bert", "pretrain_model", models.BertForPreTraining, (24, 768, 12)),
        ("bert", "bert_model", models.BertModel, (24, 768, 12)),
        ("gpt", "pretrain_model", models.GPTForPreTraining, (6, 384, 12)),
        ("gpt", "gpt_model", models.GPTModel, (6, 384, 12)),
        ("roberta", "pretrain_model", models.RobertaForPreTraining, (12, 768, 12)),
        ("roberta", "roberta_model", models.RobertaModel, (12, 768, 12)),
        ("roberta", "roberta_causal_lm", models.RobertaForCausalLM, (12, 768, 12)),
        ("t5", "pretrain_model", models.T5ForPreTraining, (6, 768, 16)),
        ("t5", "t5_model", models.T5Model, (6, 768, 16)),
        ("llama", "pretrain_model", models.LlamaForCausalLM, (12, 768, 12)),
        ("llama", "llama_model", models.LlamaModel, (12, 768, 12)),
    ],
)
def test_configs_of_models(file: str, name: str, kind: type[Any], sizes: tuple[int, int, int]) -> None:
    cfg = get_config(f"common/models/{file}.py")
    assert (cfg.cfg.hidden_layers, cfg.cfg.hidden_size, cfg.cfg.num_attention_heads) == sizes
    with flow.planned_world(1):  # no memory
        model = instantiate(cfg[name])
    assert type(model) is kind
    count = sum(
        isinstance(module, torch.nn.Module) and getattr(module, "attn_mask_type", None) is AttnMaskType.causal
        for module in model.modules()
    )
    assert bool(count) == (kind in (models.GPTModel, models.GPTForPreTraining, models.RobertaForCausalLM))
