"""An exported T5, run by ONNX Runtime."""

from libai.onnx_export.onnx_inference.runtime import OnnxModel

__all__ = ["OnnxModel"]
