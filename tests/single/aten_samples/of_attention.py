"""Samples of ``onnx/aten/attention.py``."""

import torch
import torch.nn.functional as nn_f

from aten_samples.sample import AtenSample, call, randn

F = randn


def qkv(n: int, heads: int = 2) -> list[torch.Tensor]:
    return [F(n, 2, 5, 4), F(n, heads, 6, 4), F(n, heads, 6, 4)]


def mask(n: int) -> torch.Tensor:
    seen = torch.rand(n, 1, 5, 6) > 0.3
    seen[:, :, 0] = False  # a row of which nothing is left
    return seen


def as_floats(seen: torch.Tensor) -> torch.Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, -float("inf"))


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return nn_f.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale), torch.zeros(0)


def efficient(q, k, v, bias, log_sum, dropout_p=0.0, is_causal=False, *, scale=None):
    return nn_f.scaled_dot_product_attention(q, k, v, bias, is_causal=is_causal, scale=scale), torch.zeros(0)


NAME = "_scaled_dot_product_flash_attention_for_cpu.default"

SAMPLES = [
    AtenSample(NAME, lambda n: call(*qkv(n))),
    AtenSample(NAME, lambda n: call(*qkv(n), 0.0, True), results=(0,)),
    AtenSample(NAME, lambda n: call(*qkv(n), attn_mask=as_floats(mask(n)), scale=0.3), results=(0,)),
    AtenSample("_scaled_dot_product_attention_math.default", lambda n: call(*qkv(n), as_floats(mask(n)))),
    AtenSample("_scaled_dot_product_attention_math.default", lambda n: call(*qkv(n), mask(n))),  # adds 0 and 1
    AtenSample(
        "_scaled_dot_product_attention_math.default", lambda n: call(*qkv(n, 1), None, 0.0, True, enable_gqa=True)
    ),
    AtenSample("scaled_dot_product_attention.default", lambda n: call(*qkv(n), mask(n), scale=0.7)),
    AtenSample("scaled_dot_product_attention.default", lambda n: call(*qkv(n, 1), enable_gqa=True)),
    AtenSample("scaled_dot_product_attention.default", lambda n: call(F(n, 5, 4), F(n, 6, 4), F(n, 6, 4))),
    AtenSample(
        "_scaled_dot_product_flash_attention.default", lambda n: call(*qkv(n), 0.0, True), results=(0,), expect=flash
    ),
    *(
        AtenSample(
            f"_scaled_dot_product_{kind}_attention.default",
            lambda n: call(*qkv(n), F(n, 2, 5, 6), False),
            results=(0,),
            expect=efficient,
        )
        for kind in ("efficient", "cudnn")
    ),
]
