"""A forward graph of aten ops, with its parameters, as an ONNX file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oneflow.engine.capture.forward_graph import Captured, functional
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.onnx.aten.batch import paired
from oneflow.engine.onnx.aten.builder import BatchSource
from oneflow.engine.onnx.aten.emit import AtenGraphEmitter, Attributes
from oneflow.engine.onnx.model import LARGEST_FILE, make_model, write_model
from oneflow.engine.onnx.packages import onnx_package
from oneflow.engine.onnx.parts import OnnxParts


@dataclass(frozen=True)
class AnyBatch:
    """The same forward pass traced with twice the batch, which was ``size``; the model reads it from ``source``."""

    doubled: Captured
    size: int
    source: BatchSource


def export_graph(
    captured: Captured,
    path: str | os.PathLike[str],
    opset: int,
    any_batch: AnyBatch | None = None,
    external_data: bool = False,
    foreign: Attributes | None = None,
) -> None:
    """Writes a forward graph as an ONNX model, atomically and after ONNX's checker has accepted it.

    Args:
        captured: The graph. Its ``constants`` become initializers under their names.
        path: The file to write.
        opset: The version of ONNX's operator set.
        any_batch: What doubled with the batch follows it; None exports for the traced batch only.
        external_data: Whether weights go into a file of their own.
        foreign: The plain arguments of a job's ops by name: an op that ONNX cannot express then becomes an operator of
            another domain. None makes it an error.
    """
    onnx = onnx_package("flow.onnx.export")
    _require_outputs(captured)
    parts = parts_of(captured, opset, any_batch, foreign)
    weights = {name: captured.constants[name].detach().cpu() for name in parts.variables}
    is_external = external_data or sum(t.nbytes for t in weights.values()) > LARGEST_FILE
    make = partial(make_model, onnx, parts, weights, job=captured.title, doc=captured.doc, opset=opset)
    write_model(onnx, Path(path), is_external, make, parts, opset)


def parts_of(
    captured: Captured, opset: int, any_batch: AnyBatch | None = None, foreign: Attributes | None = None
) -> OnnxParts:
    """The ONNX graph as plain values, without the weights."""
    plain = functional(captured)
    if any_batch is None:
        return AtenGraphEmitter(plain, opset, foreign=foreign).run()
    pairing = paired(plain, functional(any_batch.doubled), any_batch.size)
    return AtenGraphEmitter(plain, opset, pairing, any_batch.source, foreign).run()


def _require_outputs(captured: Captured) -> None:
    if not captured.outputs:
        raise ArgumentError(
            f"{captured.title} returns no tensor, so there is nothing to export; return the network's outputs"
        )
