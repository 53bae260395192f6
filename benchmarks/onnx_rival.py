"""ONNX Runtime as a rival: our own export, with as many threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import oneflow as flow


def by_onnx_runtime(model: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    """A call that runs the exported module on ``x``."""
    with tempfile.TemporaryDirectory() as folder:
        flow.onnx.export(model, x, Path(folder) / "net.onnx")
        return running_file(Path(folder) / "net.onnx", x.numpy())


def running_file(path: Path, x: np.ndarray) -> Callable[[], object]:
    """A call that runs a model's file on ``x``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feed)
