"""``flow.onnx.check_equality``: a job and an ONNX model on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from oneflow.engine.core.errors import ArgumentError, RunError, UnsupportedError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.job.job import Job
from oneflow.engine.job.result import JobFuture
from oneflow.engine.onnx.compare import Difference, Equality, described, difference, run_model
from oneflow.engine.onnx.lookup import input_names, predict_job
from oneflow.engine.onnx.packages import runtime_package
from oneflow.typing.definitions import TensorDef

_WRAPS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda a: a,
    "list": lambda a: [a],
    "list of lists": lambda a: [[a]],
}
"""What a call gives for one array, by the kind of the input's definition."""


@entry
def check_equality(
    job_func: Callable[..., Any],
    onnx_filename: str | os.PathLike[str],
    inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> Equality:
    """Runs a predict job, with the values that its variables have now, and ONNX Runtime on the same inputs.

    ``inputs`` are arrays by input name or in order; without them random ones are drawn, the same every time. Outputs
    that are further apart than ``atol + rtol * |value|``, and than rounding leaves of their largest value, are an error
    that names the largest difference.
    """
    runtime = runtime_package("flow.onnx.check_equality")
    job = predict_job(job_func, "flow.onnx.check_equality")
    _require_no_sources(job)
    arrays = _arrays(job, inputs)
    expected = _run_job(job, job_func, arrays)
    names, found = run_model(runtime, os.fspath(onnx_filename), dict(zip(input_names(job), arrays)))
    if len(found) != len(expected):
        raise ArgumentError(
            f"model {os.fspath(onnx_filename)!r} has {len(found)} outputs, job {job.name!r} returns {len(expected)} "
            f"blobs"
        )
    compared: list[Difference] = [
        difference(name, want, got, rtol, atol, "the job's") for name, want, got in zip(names, expected, found)
    ]
    apart = [found for found in compared if not found.is_close]
    if apart:
        raise RunError(
            f"model {os.fspath(onnx_filename)!r} and job {job.name!r} differ in {len(apart)} of {len(compared)} "
            f"outputs: "
            f"{described(max(apart, key=lambda d: d.largest))}. Were the variables changed since the export, or is the "
            f"model another job's?"
        )
    return Equality(tuple(compared))


def _require_no_sources(job: Job) -> None:
    assert job.graph is not None
    if job.graph.sources:
        raise UnsupportedError(
            f"job {job.name!r} reads its data itself, so a model cannot be given the same; check a job that takes "
            f"arrays"
        )


def _arrays(job: Job, inputs: Any) -> list[np.ndarray]:
    """One array per input, in order. Their shapes and dtypes are checked by the call of the job."""
    names = input_names(job)
    if inputs is None:
        random = np.random.default_rng(0)
        return [_drawn(random, definition) for definition in tree_leaves(job.signature.defs)]
    if isinstance(inputs, Mapping):
        if set(inputs) != set(names):
            raise ArgumentError(f"job {job.name!r} has the inputs {names}, got {sorted(inputs)}")
        return [inputs[name] for name in names]
    if not isinstance(inputs, (list, tuple)) or len(inputs) != len(names):
        raise ArgumentError(
            f"inputs is a list of {len(names)} arrays, for {names}, or a dictionary by name; got {inputs!r}"[:400]
        )
    return list(inputs)


def _drawn(random: np.random.Generator, definition: TensorDef) -> np.ndarray:
    """Normal floats; whole numbers that are class numbers and indices in any model, or pixels."""
    dtype = definition.spec.dtype.numpy
    if dtype is None:
        raise UnsupportedError(f"numpy has no {definition.spec.dtype.name}, so nothing can be drawn for {definition!r}")
    if definition.dtype.is_floating_point:
        return random.standard_normal(definition.shape).astype(dtype)
    return random.integers(0, 256 if dtype == np.uint8 else 2, definition.shape).astype(dtype)


def _run_job(job: Job, job_func: Callable[..., Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    following: Iterator[np.ndarray] = iter(arrays)
    returned = job_func(*tree_map(lambda definition: _WRAPS[definition.kind](next(following)), job.signature.defs))
    if isinstance(returned, JobFuture):
        returned = returned.get()
    elif callable(returned):  # annotated as a callback
        kept: list[Any] = []
        returned(kept.append)
        returned = kept
    return [np.asarray(result) for result in tree_leaves(returned)]
