"""GPT as an ONNX file: ``python -m libai.onnx_export.gpt2_to_onnx config.py gpt2.onnx``."""

from __future__ import annotations

from typing import Any

from libai.onnx_export.export import command, get_model
from oneflow import nn

__all__ = ["get_model", "gpt2Graph"]


class gpt2Graph(nn.Graph):
    """The scores of a GPT, for ``flow.onnx.convert_to_onnx_and_check``."""

    def __init__(self, eager_model: nn.Module) -> None:
        super().__init__()
        self.model: Any = eager_model

    def build(self, input_ids: Any) -> Any:
        return self.model(input_ids)["prediction_scores"]


if __name__ == "__main__":
    command("GPT as an ONNX file that takes any batch and length")
