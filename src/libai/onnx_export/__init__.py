"""Models as ONNX files that take any batch and length, and their use by ONNX Runtime."""

from libai.onnx_export.export import export_to_onnx

__all__ = ["export_to_onnx"]
