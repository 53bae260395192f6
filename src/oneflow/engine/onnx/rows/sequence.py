"""Why ``oneflow.engine.ops.sequence`` has no emitters."""

from __future__ import annotations

from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()
EMITTERS.cannot("ctc_loss", "ONNX has no operator for it; export the model without its loss")
EMITTERS.cannot("nn.ctc_greedy_decoder", "ONNX has no operator for it; export the scores and decode them outside")
