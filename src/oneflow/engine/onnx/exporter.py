"""A predict job and its weights as an ONNX file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oneflow.engine.checkpoint.folder import read_checkpoint
from oneflow.engine.core.errors import ArgumentError, CheckpointError, JobError, UnsupportedError
from oneflow.engine.core.number import whole
from oneflow.engine.job.job import Job
from oneflow.engine.onnx.lookup import predict_job
from oneflow.engine.onnx.packages import onnx_package

LEAST_OPSET = 11
DEFAULT_OPSET = 17
LARGEST_OPSET = 21

StrPath = str | os.PathLike[str]


def export_job(
    job_func: Callable[..., Any],
    model_save_dir: StrPath | None,
    onnx_filename: StrPath,
    continue_on_error: bool = False,
    opset: int | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Mapping[str, Sequence[int]] | None = None,
    external_data: bool = False,
    *,
    dynamic_batch: bool = False,
) -> None:
    """Writes a predict job with its weights as an ONNX model.

    The arguments are those of ``flow.onnx.export``. The model keeps the names of ops, variables and inputs; its outputs
    are the job's results in order.
    """
    # What traces is loaded when something is exported.
    from oneflow.engine.onnx.jobs import capture_job, needed_variables, plain_attributes
    from oneflow.engine.onnx.modules import export_graph
    from oneflow.engine.onnx.record import captured_for_any_batch, overridden, record

    version = opset_version(onnx_package("flow.onnx.export"), opset)
    if extra_opset:
        raise UnsupportedError(
            f"extra_opset is not supported, ops are expressed by ONNX's own operators; got {extra_opset!r}"
        )
    job = predict_job(job_func, "flow.onnx.export")
    defs = overridden(job, shape_override) if shape_override else list(job.signature.defs)
    graph = record(job, defs) if shape_override else job.graph
    assert graph is not None
    if not graph.result_nodes():
        raise JobError(
            f"{job.line}: job {job.name!r} returns nothing, so there is nothing to export; return the network's outputs"
        )
    weights = _weights(job, needed_variables(graph), model_save_dir)
    trace = partial(capture_job, job, weights=weights, doc=inspect.getdoc(job.function) or f"job {job.name}")
    foreign = plain_attributes(graph) if continue_on_error else None
    captured, any_batch = captured_for_any_batch(job, defs, graph, trace) if dynamic_batch else (trace(graph), None)
    export_graph(captured, onnx_filename, version, any_batch, external_data, foreign)


def export_onnx_model(
    job_func: Callable[..., Any],
    flow_weight_dir: StrPath | None = None,
    onnx_model_path: StrPath = "/tmp",
    opset: int | None = None,
    external_data: bool = False,
) -> None:
    """``export`` as programs since June 2021 call it: writes ``<onnx_model_path>/model.onnx``."""
    export_job(
        job_func, flow_weight_dir, Path(onnx_model_path) / "model.onnx", opset=opset, external_data=external_data
    )


def opset_version(onnx: Any, opset: Any) -> int:
    """The operator set that the user asks for; 17 if none."""
    if opset is None or opset == 0:  # both meant "choose one" from the start
        return DEFAULT_OPSET
    version = whole("opset", opset)
    if not LEAST_OPSET <= version <= LARGEST_OPSET:
        raise ArgumentError(
            f"opset is an int from {LEAST_OPSET} to {LARGEST_OPSET}, or None for {DEFAULT_OPSET}; got {opset!r}"
        )
    known = onnx.defs.onnx_opset_version()
    if version > known:
        raise ArgumentError(
            f"the installed onnx {onnx.__version__} knows opsets up to {known}, got {version}; install a newer one"
        )
    return version


def _weights(job: Job, names: list[str], folder: StrPath | None) -> dict[str, torch.Tensor]:
    """The values of these variables, from a checkpoint or the session."""
    store = job.session.store
    if folder is None:
        return {name: torch.from_numpy(store.numpy(name)) for name in names}
    found = read_checkpoint(folder)
    missing = [name for name in names if name not in found]
    if missing:
        raise CheckpointError(
            f"checkpoint {os.fspath(folder)!r} has no variable {missing[0]!r}, job {job.name!r} needs it as "
            f"{store.decls[missing[0]].spec} "
            f"({len(missing)} missing of {len(names)}); export the job whose variables were saved there"
        )
    return {name: torch.from_numpy(found[name].numpy(store.decls[name].spec)) for name in names}
