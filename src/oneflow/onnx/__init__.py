"""``flow.onnx``: predict jobs, modules and graphs as ONNX models, their check against ONNX Runtime, and weights out of
ONNX models."""

from __future__ import annotations

from oneflow.engine.onnx.check import check_equality
from oneflow.engine.onnx.convert import convert_to_onnx_and_check
from oneflow.engine.onnx.dispatch import export
from oneflow.engine.onnx.exporter import export_onnx_model
from oneflow.engine.onnx.weights import load_weights

__all__ = ["check_equality", "convert_to_onnx_and_check", "export", "export_onnx_model", "load_weights"]
