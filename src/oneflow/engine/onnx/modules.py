"""A forward graph of aten ops, with its parameters, as an ONNX file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oneflow.engine.capture.forward_graph import Captured, functional
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.onnx.aten.batch import paired
from oneflow.engine.onnx.aten.emit import AtenGraphEmitter
from oneflow.engine.onnx.emit import OnnxParts
from oneflow.engine.onnx.model import LARGEST_FILE, make_model, write_model
from oneflow.engine.onnx.packages import onnx_package


@dataclass(frozen=True)
class AnyBatch:
    """The same forward pass traced with twice the batch, which was ``size``; ``inputs`` are those whose first dim is
    the batch."""

    doubled: Captured
    size: int
    inputs: tuple[str, ...]


def export_graph(
    captured: Captured,
    path: str | os.PathLike[str],
    opset: int,
    any_batch: AnyBatch | None = None,
    external_data: bool = False,
) -> None:
    """Writes a forward graph as an ONNX model, which ONNX's checker has seen, beside ``path`` and renames it.

    Parameters and buffers become initializers under the names that ``captured.constants`` gives them. With
    ``any_batch`` the model takes any batch size: what doubled with the batch follows it.
    """
    onnx = onnx_package("flow.onnx.export")
    _require_outputs(captured)
    parts = parts_of(captured, opset, any_batch)
    weights = {name: captured.constants[name].detach().cpu() for name in parts.variables}
    is_external = external_data or sum(t.nbytes for t in weights.values()) > LARGEST_FILE
    make = partial(make_model, onnx, parts, weights, job=captured.title, doc=captured.doc, opset=opset)
    write_model(onnx, Path(path), is_external, make, parts, opset)


def parts_of(captured: Captured, opset: int, any_batch: AnyBatch | None = None) -> OnnxParts:
    """The ONNX graph as plain values, without the weights."""
    plain = functional(captured)
    if any_batch is None:
        return AtenGraphEmitter(plain, opset).run()
    pairing = paired(plain, functional(any_batch.doubled), any_batch.size)
    return AtenGraphEmitter(plain, opset, pairing, any_batch.inputs).run()


def _require_outputs(captured: Captured) -> None:
    if not captured.outputs:
        raise ArgumentError(
            f"{captured.title} returns no tensor, so there is nothing to export; return the network's outputs"
        )
