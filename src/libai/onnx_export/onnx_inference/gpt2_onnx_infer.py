"""An exported GPT, run by ONNX Runtime."""

from libai.onnx_export.onnx_inference.runtime import OnnxModel

__all__ = ["OnnxModel"]
