"""ONNX Runtime as a rival: a module's own export, with as many threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import oneflow as flow


def by_onnx_runtime(model: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    """A call that runs the exported module on ``x``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        flow.onnx.export(model, x, Path(folder) / "net.onnx")
        session = onnxruntime.InferenceSession(str(Path(folder) / "net.onnx"), options)
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)
