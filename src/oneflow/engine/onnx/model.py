"""An ONNX model from plain values, and the file it is written to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from oneflow.engine.checkpoint.writing import beside
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.onnx.builder import TENSOR_TYPES, Node, Operand
from oneflow.engine.onnx.parts import FOREIGN_DOMAIN, OnnxParts

PRODUCER = "oneflow-torch"

# A protobuf message has less than 2 GiB; what is no weight finds room in the difference.
LARGEST_FILE = 2**31 - 2**26
# Smaller tensors stay in the model: shapes and axes must be known where shapes are inferred.
_LEAST_EXTERNAL = 1024
_ALIGNMENT = 4096  # of the pages that runtimes map

Weights = Mapping[str, torch.Tensor]
Fill = Callable[[Any, torch.Tensor], None]
"""Gives a TensorProto its data."""


def make_model(onnx: Any, parts: OnnxParts, weights: Weights, fill: Fill, job: str, doc: str, opset: int) -> Any:
    """The ModelProto of a job, module or graph."""
    helper = onnx.helper
    tensors = {**weights, **parts.constants}
    graph = helper.make_graph(
        [_node(onnx, node) for node in parts.nodes],
        job,
        [_value(onnx, value, parts) for value in parts.inputs],
        [_value(onnx, value, parts) for value in parts.outputs],
        [_tensor(onnx, name, tensor, fill) for name, tensor in tensors.items()],
        doc_string=doc,
        value_info=[_value(onnx, value, parts) for value in parts.values if value not in parts.outputs],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(FOREIGN_DOMAIN, 1)] if parts.foreign else [])
    model = helper.make_model(graph, opset_imports=opsets, producer_name=PRODUCER, doc_string=doc)
    model.ir_version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    helper.set_model_props(model, {"oneflow.engine.job": job, "oneflow.opset": str(opset)})
    return model


def _node(onnx: Any, node: Node) -> Any:
    attributes = {key: _attribute(onnx, value) for key, value in node.attributes.items()}
    return onnx.helper.make_node(node.kind, node.inputs, node.outputs, name=node.name, domain=node.domain, **attributes)


def _attribute(onnx: Any, value: Any) -> Any:
    return _tensor(onnx, "", value, inline) if isinstance(value, torch.Tensor) else value


def _value(onnx: Any, value: Operand, parts: OnnxParts) -> Any:
    unit = next((v.shape[dim] for v in parts.inputs for dim in sorted(v.batch_dims)), 1)
    shape = [_batch_name(n, unit) if dim in value.batch_dims else n for dim, n in enumerate(value.shape)]
    return onnx.helper.make_tensor_value_info(value.name, TENSOR_TYPES[value.dtype], shape)


def _batch_name(size: int, unit: int) -> str:
    """``batch``, and for another size that follows it ``3*batch``."""
    return "batch" if size == unit else f"{size // unit}*batch" if size % unit == 0 else f"{size}*batch/{unit}"


def _tensor(onnx: Any, name: str, tensor: torch.Tensor, fill: Fill) -> Any:
    proto = onnx.TensorProto(name=name, data_type=TENSOR_TYPES[tensor.dtype], dims=tensor.shape)
    fill(proto, tensor)
    return proto


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The values in C order."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def inline(proto: Any, tensor: torch.Tensor) -> None:
    """Puts the data into the model itself."""
    proto.raw_data = bytes(_bytes(tensor))


class ExternalData:
    """Puts the data of large tensors into one open file beside the model."""

    def __init__(self, onnx: Any, file: IO[bytes], location: str) -> None:
        self._external = onnx.TensorProto.EXTERNAL
        self._file = file
        self._location = location

    def __call__(self, proto: Any, tensor: torch.Tensor) -> None:
        data = _bytes(tensor)
        if data.nbytes < _LEAST_EXTERNAL:
            inline(proto, tensor)
            return
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        where = {"location": self._location, "offset": str(self._file.tell()), "length": str(data.nbytes)}
        self._file.write(data)
        proto.data_location = self._external
        for key, value in where.items():
            proto.external_data.add(key=key, value=value)


def write_model(
    onnx: Any, path: Path, is_external: bool, make: Callable[[Fill], Any], parts: OnnxParts, opset: int
) -> None:
    """Writes the model that ``make`` gives, and its external data, into a folder beside ``path``, has them checked and
    renames them.

    The data comes first: a model that is there has its data.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside(path) as folder:
            data = folder / f"{path.name}.data"
            if is_external:
                with _synced(data) as file:
                    model = make(ExternalData(onnx, file, data.name))
            else:
                model = make(inline)
            with _synced(folder / path.name) as file:
                file.write(model.SerializeToString())
            _check(onnx, folder / path.name, parts.lines, opset)
            for made in (data, folder / path.name):
                if made.exists():
                    os.replace(made, path.parent / made.name)
    except OSError as error:
        raise ArgumentError(
            f"cannot write an ONNX model to {str(path)!r}: {error.strerror}; choose another path"
        ) from None


@contextmanager
def _synced(path: Path) -> Iterator[IO[bytes]]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _check(onnx: Any, path: Path, lines: Mapping[str, str], opset: int) -> None:
    """ONNX's own checker, with shape and type inference: what an opset does not have is found here."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = " ".join(str(error).split())
        where = next((line for name, line in lines.items() if re.search(_named(name), reason)), None)
        raise UnsupportedError(
            f"{where + ': ' if where else ''}opset {opset} cannot express it, try a higher one; ONNX's checker says: "
            f"{reason}"
        ) from None


def _named(op: str) -> str:
    """How the checker names a node of this op."""
    return rf"(?:Name|node name): {re.escape(op)}(?:/\w+_\d+)?[ )]"
