"""T5 as an ONNX file: ``python -m libai.onnx_export.t5_to_onnx config.py t5.onnx``."""

from __future__ import annotations

from typing import Any

from libai.onnx_export.export import command, get_model
from oneflow import nn

__all__ = ["get_model", "t5Graph"]


class t5Graph(nn.Graph):
    """The scores of a T5, for ``flow.onnx.convert_to_onnx_and_check``."""

    def __init__(self, eager_model: nn.Module) -> None:
        super().__init__()
        self.model: Any = eager_model

    def build(
        self,
        encoder_input_ids: Any,
        encoder_attn_mask: Any,
        decoder_input_ids: Any,
        decoder_attn_mask: Any,
        encoder_decoder_attn_mask: Any,
    ) -> Any:
        found = self.model(
            encoder_input_ids, decoder_input_ids, encoder_attn_mask, decoder_attn_mask, encoder_decoder_attn_mask
        )
        return found["prediction_scores"]


if __name__ == "__main__":
    command("T5 as an ONNX file that takes any batch and length")
