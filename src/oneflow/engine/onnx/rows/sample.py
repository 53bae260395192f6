"""Emitters of ``oneflow.engine.ops.sample``: there are none."""

from __future__ import annotations

from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()

for _name in ("bernoulli", "coin_flip", "shuffle", "generate_random_batch_permutation_indices"):
    EMITTERS.cannot(
        f"random.{_name}",
        "its random bits are a function of seed, step and index, which ONNX's random operators are not",
    )
