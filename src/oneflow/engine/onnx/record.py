"""A job's body recorded again with inputs of other shapes: to override shapes, and to find what follows the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

from oneflow.engine.capture.forward_graph import Captured
from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.core.number import wholes
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import change_op_note
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.engine.job.job import Job
from oneflow.engine.onnx.aten.batch import FACTOR
from oneflow.engine.onnx.aten.builder import BatchSource
from oneflow.engine.onnx.lookup import input_names
from oneflow.engine.onnx.modules import AnyBatch
from oneflow.typing.definitions import TensorDef


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


def captured_for_any_batch(
    job: Job, defs: Sequence[Any], graph: Graph, trace: Callable[[Graph], Captured]
) -> tuple[Captured, AnyBatch | None]:
    """Traces a job, and once more with twice the batch of every input that has one, to find what follows the batch.

    Args:
        job: The job.
        defs: The definitions of its inputs, with the shapes to export for.
        graph: What its body recorded for them.
        trace: Gives the forward graph of a recorded body.

    Returns:
        The forward graph for a batch of two or more, since a batch of one may be broadcast, and the doubled one; None
        instead of that if no input has a batch.
    """
    if graph.sources:
        raise UnsupportedError(
            f"dynamic_batch: job {job.name!r} reads data with batches of a fixed size; export a job that takes arrays "
            f"instead"
        )
    batches = [
        (definition.shape[definition.batch_axis], definition.batch_axis, name)
        for name, definition in zip(input_names(job), tree_leaves(list(defs)), strict=True)
        if definition.batch_axis is not None
    ]
    if not batches:
        return trace(graph), None
    smallest, axis, name = min(batches)
    unit = gcd(*(size for size, _, _ in batches))
    times = 1 if smallest > 1 else FACTOR
    first = graph if times == 1 else _record_times(job, defs, times)
    doubled = _record_times(job, defs, times * FACTOR)
    return trace(first), AnyBatch(trace(doubled), unit * times, BatchSource(name, axis, smallest // unit))


def _record_times(job: Job, defs: Sequence[Any], times: int) -> Graph:
    try:
        return record(job, tree_map(lambda definition: _multiplied(definition, times), list(defs)))
    except OneFlowError as error:
        raise UnsupportedError(
            f"dynamic_batch: job {job.name!r} cannot be traced with {times} times the batch: {error}. "
            "Inputs that have no batch are declared with batch_axis=None"
        ) from None


def _multiplied(definition: TensorDef, times: int) -> TensorDef:
    axis = definition.batch_axis
    if axis is None:
        return definition
    return reshaped(definition, [n * times if dim == axis else n for dim, n in enumerate(definition.shape)])
