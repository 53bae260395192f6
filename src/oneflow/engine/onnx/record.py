"""A job's body recorded anew with inputs of other shapes: to override shapes, and to see what follows the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.core.number import wholes
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_map
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.nodes import row_of
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.engine.job.job import Job
from oneflow.engine.onnx.lookup import input_names
from oneflow.typing.definitions import TensorDef

BatchDims = dict[fx.Node, tuple[frozenset[int], ...]]
"""For each result of a node the dims whose size follows the batch."""

_FACTOR = 2
# Rows whose emitters look at the shape of the result, not at these arguments.
_SHAPED_BY_RESULT = frozenset(["reshape"])


def record(job: Job, defs: Sequence[Any]) -> Graph:
    """The graph that the job's body records for inputs as ``defs`` declares them. Nothing of the session changes."""
    assert job.graph is not None and job.graph.placement is not None
    trace = Trace(job.name, copy.copy(job.settings), job.session.store.decls, job.graph.placement)
    graph = trace.graph
    try:
        with tracing(trace):
            returned = job.function(*tree_map(lambda definition: _input(trace, definition), list(defs)))
    finally:
        graph.close_sources()
    graph.results = None if returned is None else tree_map(lambda blob: blob.node, returned)
    graph.drop_unused_sources()
    return graph


def _input(trace: Trace, definition: TensorDef) -> Blob:
    node = trace.add_input(definition.name or trace.auto_name("Input"), definition.spec)
    change_op_note(node, batch_axis=definition.batch_axis, is_dynamic=definition.dynamic)
    return Blob(node)


def reshaped(definition: TensorDef, shape: Sequence[int]) -> TensorDef:
    """The same declaration with another shape."""
    new = copy.copy(definition)
    new.spec = TensorSpec(tuple(shape), definition.spec.dtype)
    return new


def overridden(job: Job, shapes: Mapping[str, Sequence[int]]) -> list[Any]:
    """The job's input definitions with the given shapes, by input name."""
    names = input_names(job)
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise ArgumentError(f"shape_override names the input {unknown[0]!r}; job {job.name!r} has the inputs {names}")
    following = iter(names)
    return _map_defs(job, lambda definition: _override(definition, next(following), shapes))


def _override(definition: TensorDef, name: str, shapes: Mapping[str, Sequence[int]]) -> TensorDef:
    if name not in shapes:
        return definition
    shape = wholes(shapes[name])
    if shape is None or len(shape) != len(definition.shape) or min(shape, default=1) < 1:
        raise ArgumentError(
            f"shape_override gives the input {name!r} {len(definition.shape)} ints > 0, got {shapes[name]!r}"
        )
    return reshaped(definition, shape)


def _map_defs(job: Job, function: Callable[[TensorDef], TensorDef]) -> list[Any]:
    return [tree_map(function, tree) for tree in job.signature.defs]


def batch_dims(job: Job, defs: Sequence[Any], graph: Graph) -> BatchDims:
    """Which dims of which blobs follow the batch: those that double when every input's batch axis does.

    The body runs once more with the doubled inputs. It must record the same ops with the same arguments, so that one
    file can hold them for every batch.
    """
    if graph.sources:
        raise UnsupportedError(
            f"dynamic_batch: job {job.name!r} reads data with batches of a fixed size; export a job that takes arrays "
            f"instead"
        )
    try:
        doubled = record(job, tree_map(_doubled, list(defs)))
    except OneFlowError as error:
        raise UnsupportedError(
            f"dynamic_batch: job {job.name!r} cannot be traced with {_FACTOR} times the batch: {error}. "
            "Inputs that have no batch are declared with batch_axis=None"
        ) from None
    pairs = _paired(job, graph, doubled)
    return {node: _follows(node, other) for node, other in pairs.items()}


def _doubled(definition: TensorDef) -> TensorDef:
    axis = definition.batch_axis
    if axis is None:
        return definition
    return reshaped(definition, [n * _FACTOR if dim == axis else n for dim, n in enumerate(definition.shape)])


def _paired(job: Job, graph: Graph, doubled: Graph) -> dict[fx.Node, fx.Node]:
    """The nodes of both graphs side by side."""
    nodes, others = list(graph.body.nodes), list(doubled.body.nodes)
    alike = len(nodes) == len(others) and all(
        a.target is b.target and op_note(a).name == op_note(b).name
        for a, b in zip(nodes, others)
        if a.op == "call_function"
    )
    if not alike:
        raise UnsupportedError(
            f"dynamic_batch: the body of job {job.name!r} records other ops with {_FACTOR} times the batch"
        )
    pairs = dict(zip(nodes, others))
    for node, other in pairs.items():
        if node.op == "call_function" and row_of(node).name not in _SHAPED_BY_RESULT:
            _require_same_arguments(node, other, pairs)
    return pairs


def _require_same_arguments(node: fx.Node, other: fx.Node, pairs: dict[fx.Node, fx.Node]) -> None:
    mine = fx.node.map_arg((node.args, node.kwargs), lambda n: pairs[n])
    if mine != (other.args, other.kwargs):
        raise UnsupportedError(
            f"{op_note(node).line}: dynamic_batch: an argument of {node.target} ({op_note(node).name!r}) is computed "
            f"from the batch size; "
            "write it without (such as -1, None or *_like), or export with dynamic_batch=False"
        )


def _follows(node: fx.Node, other: fx.Node) -> tuple[frozenset[int], ...]:
    specs, others = ((s if isinstance(s, tuple) else (s,)) for s in (op_note(node).spec, op_note(other).spec))
    return tuple(_dims(node, a.shape, b.shape) for a, b in zip(specs, others, strict=True))


def _dims(node: fx.Node, shape: tuple[int, ...], doubled: tuple[int, ...]) -> frozenset[int]:
    if len(shape) != len(doubled) or any(b not in (a, a * _FACTOR) for a, b in zip(shape, doubled)):
        raise UnsupportedError(
            f"{op_note(node).line}: dynamic_batch: with {_FACTOR} times the batch the shape of {op_note(node).name!r} "
            f"goes from "
            f"{shape} to {doubled}; a dim can follow the batch only in proportion. Export with dynamic_batch=False"
        )
    return frozenset(dim for dim, (a, b) in enumerate(zip(shape, doubled)) if a != b)
