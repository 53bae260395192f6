"""The layers of libai against plain torch, in a process alone: values, caches, keys, first values, and what they
refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from libai_formulas import attention, spread, transformer_layer, values

from libai import layers
from libai.layers.activation import Activation
from libai.layers.attention import AttnMaskType, MultiheadAttention
from libai.models.utils import init_method_normal, scaled_init_method_normal
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError


@pytest.fixture(autouse=True)
def one_rank() -> None:
    dist.setup_dist_util({})
    torch.manual_seed(5)


def same(found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.to_local(), expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------ linear layers


@pytest.mark.parametrize("parallel", ["col", "row", "data"])
def test_linear_layers_multiply_and_add(parallel: str) -> None:
    x = torch.randn(3, 5, 8)
    linear, conv = layers.Linear(8, 6, parallel=parallel), layers.Conv1D(8, 6, parallel=parallel)
    w, c = values(linear), values(conv)
    same(linear(spread(x)), x @ w["weight"].T + w["bias"])
    same(conv(spread(x)), x @ c["weight"] + c["bias"])
    assert (tuple(w["weight"].shape), tuple(c["weight"].shape)) == ((6, 8), (8, 6))


@pytest.mark.parametrize("kind", [layers.Linear, layers.Conv1D])
def test_a_bias_may_be_given_back_or_left_out(kind: Any) -> None:
    x = torch.randn(3, 8)
    layer = kind(8, 6, skip_bias_add=True, parallel="row")
    w = values(layer)
    product, bias = layer(spread(x))
    same(product, x @ (w["weight"] if kind is layers.Conv1D else w["weight"].T))
    same(bias, w["bias"])
    assert set(kind(8, 6, bias=False).state_dict()) == {"weight"}
    assert kind(8, 6, bias=False, skip_bias_add=True)(spread(x))[1] is None


@pytest.mark.parametrize("kind", [layers.Linear, layers.Conv1D])
def test_an_unknown_way_to_cut_a_layer_is_refused(kind: Any) -> None:
    with pytest.raises(KeyError, match=r'parallel is "col" .* got \'cols\''):
        kind(8, 6, parallel="cols")


def test_linear_is_linear_1d() -> None:
    assert layers.Linear is layers.Linear1D
    assert "parallel=col" in repr(layers.Linear(8, 6, parallel="col")) and "in_features=8" in repr(layers.Conv1D(8, 6))


# ------------------------------------------------------------------ norms and embeddings


def test_layer_norm_is_that_of_torch() -> None:
    x, norm = torch.randn(3, 8), layers.LayerNorm(8, eps=1e-6)
    w = values(norm)
    same(norm(spread(x)), F.layer_norm(x, (8,), w["weight"], w["bias"], 1e-6))
    same(layers.LayerNorm((3, 8), elementwise_affine=False)(spread(x)), F.layer_norm(x, (3, 8)))
    assert not layers.LayerNorm(8, elementwise_affine=False).state_dict()


def test_a_layer_norm_without_bias_keeps_a_frozen_zero() -> None:
    norm = layers.LayerNorm(8, bias=False)
    assert set(norm.state_dict()) == {"weight", "bias"} and not norm.bias.requires_grad and not norm.bias.any()


def test_rms_norm_has_no_mean_and_no_bias() -> None:
    x, norm = torch.randn(3, 8), layers.RMSLayerNorm(8)
    same(norm(spread(x)), F.rms_norm(x, (8,), eps=1e-6))
    assert set(norm.state_dict()) == {"weight"}


@pytest.mark.parametrize("kind", [layers.Embedding, layers.VocabEmbedding])
def test_embeddings_look_rows_up(kind: Any) -> None:
    table, ids = kind(10, 4, padding_idx=0), torch.randint(10, (2, 3))
    same(table(spread(ids)), table.weight.to_local()[ids])
    assert table.weight.to_local()[0].abs().sum() > 0  # a row like the others
    assert "padding_idx=0" in repr(table)


def test_sine_positions_are_waves() -> None:
    table = layers.SinePositionalEmbedding(7, 6)
    found = table(spread(torch.arange(7))).to_local()
    for position in range(7):
        for pair in range(3):
            angle = position / 10000 ** (2 * pair / 6)
            assert (
                abs(found[position, 2 * pair] - math.sin(angle)) < 1e-5
                and abs(found[position, 2 * pair + 1] - math.cos(angle)) < 1e-5
            )
    assert set(table.state_dict()) == {"position_embedding"} and not list(table.parameters())


def test_patches_are_a_convolution_without_overlap() -> None:
    x, patches = torch.randn(2, 3, 8, 4), layers.PatchEmbedding((8, 4), 2, 3, 5)
    w = values(patches)
    expected = F.conv2d(x, w["proj.weight"], w["proj.bias"], stride=2)
    same(patches(spread(x)), expected.flatten(2).transpose(1, 2))
    assert patches.num_patches == 8 and patches.grid_size == (4, 2)
    pictures = layers.PatchEmbedding((8, 4), 2, 3, 5, flatten=False)
    assert pictures(spread(x)).shape == (2, 5, 4, 2)
    normed = layers.PatchEmbedding((8, 4), 2, 3, 5, norm_layer=layers.LayerNorm)
    assert abs(normed(spread(x)).mean(-1)).max().item() < 1e-5
    with pytest.raises(ArgumentError, match="pictures of 8x4, got 8x8"):
        patches(spread(torch.randn(2, 3, 8, 8)))


# ------------------------------------------------------------------ activations, drop path, losses


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", torch.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("leaky_relu", lambda x: F.leaky_relu(x, 0.01)),
        ("squared_relu", lambda x: torch.relu(x) ** 2),
        ("tanh", torch.tanh),
        ("quick_gelu", lambda x: x / (1 + torch.exp(-1.702 * x))),
        (None, lambda x: x),
    ],
)
def test_an_activation_by_name(name: str | None, formula: Any) -> None:
    x = torch.randn(9)
    torch.testing.assert_close(layers.build_activation(name)(x), formula(x))


def test_activations_are_named_or_refused() -> None:
    assert isinstance(layers.build_activation(Activation.GeLU), torch.nn.GELU)
    with pytest.raises(KeyError, match="activation is one of .* got 'gelo'. Did you mean 'gelu'"):
        layers.build_activation("gelo")


def test_drop_path_leaves_whole_samples_out() -> None:
    x = torch.ones(2000, 2, 3)
    found = layers.drop_path(x, 0.25, training=True)
    kept = found[:, 0, 0] > 0
    assert torch.equal(found, kept[:, None, None].expand_as(x) / 0.75) and abs(kept.float().mean() - 0.75) < 0.05
    assert set(layers.drop_path(x, 0.25, training=True, scale_by_keep=False).unique().tolist()) == {0.0, 1.0}
    assert layers.DropPath(0.25).eval()(x) is x and layers.DropPath(0.0)(x) is x


def test_the_cross_entropy_of_each_token() -> None:
    logits, target = torch.randn(2, 3, 7), torch.randint(7, (2, 3))
    target[0, 1] = -1  # counts as 0
    found = layers.ParallelCrossEntropyLoss()(spread(logits), spread(target.int()))
    same(found, F.cross_entropy(logits.flatten(0, 1), target.clamp(min=0).flatten(), reduction="none"))
    with pytest.raises(
        ArgumentError,
        match=r"\(batch, length, vocabulary\) and targets of \(batch, length\), got \(2, 3, 7\) and \(6,\)",
    ):
        layers.ParallelCrossEntropyLoss()(spread(logits), spread(target.flatten()))


def test_logits_are_products_with_the_table() -> None:
    x, table = torch.randn(2, 3, 4), torch.randn(9, 4)
    logits = layers.LMLogits(9, bias=True)
    bias = values(logits)["bias"]
    same(logits(spread(x), spread(table)), x @ table.T + bias)
    assert not layers.LMLogits(9).state_dict()


# ------------------------------------------------------------------ attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
def test_self_attention_is_its_formula(dtype: torch.dtype) -> None:
    """Where a position may look at nothing, it looks at everything alike."""
    x, layer = (
        torch.randn(2, 5, 8),
        MultiheadAttention(8, 2, apply_query_key_layer_scaling=True, layer_idx=3, scale_mask_softmax_fusion=True),
    )
    w = values(layer)
    mask = (torch.rand(2, 1, 5, 5) < 0.6).to(dtype)
    mask[1, 0, 2] = 0
    same(layer(spread(x), attention_mask=spread(mask)), attention(w, x, 2, mask.float()))
    same(layer(spread(x)), attention(w, x, 2, None))


def test_causal_attention_looks_at_nothing_behind_it() -> None:
    x, mask = torch.randn(2, 5, 8), torch.ones(2, 1, 1, 5)
    mask[0, ..., 1] = 0
    tril = torch.ones(5, 5).tril()
    for fused in (False, True):
        layer = MultiheadAttention(8, 2, attn_mask_type=AttnMaskType.causal, scale_mask_softmax_fusion=fused)
        w = values(layer)
        same(layer(spread(x)), attention(w, x, 2, tril))
        same(layer(spread(x), attention_mask=spread(mask)), attention(w, x, 2, tril * mask))


def test_cross_attention_is_its_formula() -> None:
    x, memory, layer = torch.randn(2, 3, 8), torch.randn(2, 5, 8), MultiheadAttention(8, 2, is_cross_attention=True)
    w = values(layer)
    assert set(w) == {f"{name}.{kind}" for name in ("query", "key_value", "dense") for kind in ("weight", "bias")}
    mask = torch.ones(2, 1, 3, 5)
    mask[..., 4] = 0
    expected = attention(w, x, 2, mask, memory)
    found, cache = layer(spread(x), spread(memory), spread(mask), use_cache=True)
    same(found, expected)
    same(layer(spread(x), attention_mask=spread(mask), past_key_value=cache), expected)
    with pytest.raises(ArgumentError, match="called with encoder_states, or with past_key_value"):
        layer(spread(x))


def test_heads_share_the_width_evenly() -> None:
    with pytest.raises(
        ArgumentError,
        match="hidden_size must be divisible by num_attention_heads, got hidden_size=10 and num_attention_heads=4",
    ):
        MultiheadAttention(10, 4)


def test_dropout_of_attention_keeps_the_mean() -> None:
    x, layer = (
        torch.randn(1, 6, 8),
        MultiheadAttention(8, 2, attention_dropout_prob=0.3, attn_mask_type=AttnMaskType.causal),
    )
    expected = layer.eval()(spread(x)).to_local()
    layer.train()
    many = layer(spread(x.expand(400, -1, -1).contiguous())).to_local().detach()
    assert (many[0] - many[1]).abs().max() > 1e-3 and (many.mean(0) - expected).abs().max() < 0.1


# ------------------------------------------------------------------ whole layers


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_transformer_layer_is_its_formula(is_decoder: bool, behind: bool) -> None:
    x, memory, mask = torch.randn(2, 4, 8), torch.randn(2, 3, 8), torch.ones(4, 4).tril()
    layer = layers.TransformerLayer(
        8,
        12,
        2,
        is_decoder=is_decoder,
        apply_residual_post_layernorm=behind,
        bias_gelu_fusion=True,
        bias_dropout_fusion=True,
    )
    w = values(layer)
    expected = transformer_layer(w, x, 2, mask, memory if is_decoder else None, behind=behind)
    same(layer(spread(x), spread(mask), spread(memory) if is_decoder else None), expected)


def test_the_activation_of_a_layer_is_chosen_by_name() -> None:
    x, layer = torch.randn(2, 4, 8), layers.TransformerLayer(8, 12, 2, activation="gelu_tanh").mlp
    w = values(layer)
    up = F.gelu(x @ w["dense_h_to_4h.weight"].T + w["dense_h_to_4h.bias"], approximate="tanh")
    same(layer(spread(x)), up @ w["dense_4h_to_h.weight"].T + w["dense_4h_to_h.bias"])


@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_layer_with_a_cache_goes_on_where_it_was(is_decoder: bool) -> None:
    """In parts of any length, drop path or not: what it gives for the whole."""
    x, memory = spread(torch.randn(2, 6, 8)), spread(torch.randn(2, 3, 8)) if is_decoder else None
    layer = layers.TransformerLayer(
        8, 12, 2, is_decoder=is_decoder, drop_path_prob=0.2, attn_mask_type=AttnMaskType.causal
    ).eval()
    expected = layer(x, encoder_states=memory).to_local()
    cache, found = None, []
    for part in (x[:, :3], x[:, 3:5], x[:, 5:]):
        states, cache = layer(part, encoder_states=memory, past_key_value=cache, use_cache=True)
        found.append(states.to_local())
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-5, atol=1e-5)
    assert len(cache) == (4 if is_decoder else 2) and cache[0].shape == (2, 2, 6, 4)
    layer.train()(x, encoder_states=memory, use_cache=True)  # drop path takes the branch alone


def test_layers_compute_with_local_tensors_too() -> None:
    x, layer = torch.randn(2, 4, 8), layers.TransformerLayer(8, 12, 2, attn_mask_type=AttnMaskType.causal)
    expected = layer(spread(x)).to_local()
    found = layer.to_local()(x)
    assert not found.is_global
    torch.testing.assert_close(found, expected)


# ------------------------------------------------------------------ first values


def test_first_values_go_by_the_seed() -> None:
    def made(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        layers.Linear(4, 4)
        return layers.Linear(50, 70, init_method=init_method_normal(0.02, mean=1.0)).weight.to_local()

    one = made(1)
    assert torch.equal(one, made(1)) and not torch.equal(one, made(2))
    assert abs(one.mean() - 1) < 2e-3 and abs(one.std() - 0.02) < 2e-3
    scaled = layers.Linear(50, 70, init_method=scaled_init_method_normal(0.08, 8)).weight.to_local()
    assert abs(scaled.std() - 0.02) < 2e-3
    xavier = layers.Embedding(50, 70).weight.to_local()
    assert abs(xavier.std() - math.sqrt(2 / 120)) < 0.01


def test_first_values_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEFLOW_LINEAR_EMBEDDING_SKIP_INIT", "1")
    calls: list[Any] = []
    for kind in (layers.Linear, layers.Conv1D, layers.Embedding, layers.VocabEmbedding):
        kind(4, 4, init_method=calls.append)
    assert not calls
