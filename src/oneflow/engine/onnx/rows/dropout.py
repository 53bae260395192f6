"""Emitters of ``oneflow.engine.ops.dropout``."""

from __future__ import annotations

from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()

EMITTERS.cannot("nn.dropout", "only a train job records it; in a predict job dropout is the blob itself")
EMITTERS.cannot(
    "nn.random_mask_like",
    "its random bits are a function of seed, step and index, which ONNX's random operators are not",
)
