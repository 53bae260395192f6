"""``flow.onnx``: predict jobs as ONNX models, their check against ONNX Runtime, and weights out of ONNX models."""

from __future__ import annotations

from oneflow.onnx.check import check_equality
from oneflow.onnx.exporter import export, export_onnx_model
from oneflow.onnx.weights import load_weights

__all__ = ["check_equality", "export", "export_onnx_model", "load_weights"]
