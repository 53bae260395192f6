"""The packages behind ``flow.onnx``, imported when they are used."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.optional import optional_package


def onnx_package(needed_for: str) -> Any:
    """The package that knows the file format, its checker included."""
    return optional_package("onnx", "onnx", needed_for)


def runtime_package(needed_for: str) -> Any:
    """ONNX Runtime."""
    return optional_package("onnxruntime", "onnx", needed_for)
