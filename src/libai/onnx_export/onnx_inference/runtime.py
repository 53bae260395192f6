"""An ONNX file, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.optional import optional_package


class OnnxModel:
    """``forward`` takes arrays or tensors in the order of the model's inputs, or by name, and gives its outputs in
    order. ``providers`` are those of ONNX Runtime, CPU if none are named; ``ort_optimize=False`` runs the model as it
    stands."""

    def __init__(self, onnx_filename: str, providers: Sequence[str] | None = None, ort_optimize: bool = True) -> None:
        runtime = optional_package("onnxruntime", "onnx", "OnnxModel")
        options = runtime.SessionOptions()
        if not ort_optimize:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.sess = runtime.InferenceSession(
            str(onnx_filename), options, providers=list(providers or ["CPUExecutionProvider"])
        )
        self.names = [one.name for one in self.sess.get_inputs()]

    def forward(self, input_list: Sequence[Any] | Mapping[str, Any]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        if not isinstance(input_list, Mapping) and len(input_list) != len(self.names):
            raise ArgumentError(
                f"the model takes {len(self.names)} inputs, {', '.join(self.names)}; got {len(input_list)}"
            )
        given = dict(input_list) if isinstance(input_list, Mapping) else dict(zip(self.names, input_list))
        found: list[np.ndarray] = self.sess.run(None, {name: np.asarray(value) for name, value in given.items()})
        return found
