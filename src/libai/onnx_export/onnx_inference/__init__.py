"""Exported models, run by ONNX Runtime."""
