"""Every op row on two and four ranks against one device: values and gradients, with inputs split over the batch and
over other dims.

All samples of a file are one job, which is traced, compiled and started once.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from families import BY_FILE, FILES
from nets import begin
from sample import Sample

import oneflow as flow
from oneflow.engine.core import dtype as dtypes

PREDICT_ONLY = {"layers.batch_norm_infer"}  # a train job records another row in its place
OTHER_DIMS = [
    "activation",
    "conv",
    "dropout",
    "index",
    "loss",
    "matmul",
    "norm",
    "pool",
    "scatter",
    "sort",
    "structure",
]
FOUR_RANKS = ["conv", "dropout", "loss", "matmul", "norm", "sampling"]


@dataclass(frozen=True)
class Outcome:
    """What a job of samples gave: results and gradients, each by the sample it belongs to."""

    results: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]


def named_samples(file: str) -> dict[str, Sample]:
    return {f"{sample.row}-{i}": sample for i, sample in enumerate(BY_FILE[file])}


def run_samples(file: str, devices: int, dim: int | None = None) -> Outcome:
    """All samples of a file, in a job that trains and one that does not. ``dim`` is what every input is split along."""
    begin(devices)
    found = Outcome({}, {})
    samples = named_samples(file)
    for train in (True, False):
        chosen = {name: s for name, s in samples.items() if (s.row not in PREDICT_ONLY) == train}
        if chosen:
            _run(chosen, train, dim, found)
    return found


def _run(samples: dict[str, Sample], train: bool, dim: int | None, found: Outcome) -> None:
    arrays = {(name, i): array for name, sample in samples.items() for i, array in enumerate(sample.inputs)}
    defs = {f"{name}/{i}": flow.FixedTensorDef(a.shape, dtypes.from_numpy(a.dtype)) for (name, i), a in arrays.items()}

    def body(fed=defs):  # type: ignore[no-untyped-def]
        outputs: dict[str, Any] = {}
        total = flow.get_variable("anchor", (1,), initializer=flow.zeros_initializer()) * 1.0
        for number, (name, sample) in enumerate(samples.items()):
            with flow.scope.namespace(f"sample{number}"), _scope(sample):
                blobs = [_split(fed[f"{name}/{i}"], dim) for i in range(len(sample.inputs))]
                made = sample.call(*blobs)
                made = list(made) if isinstance(made, (tuple, list)) else [made]
                outputs.update({f"{name}:{i}": blob for i, blob in enumerate(made)})
                if train:
                    total = total + _loss(blobs, made)
        if train:
            for key, blob in fed.items():
                if blob.dtype is flow.float32:
                    flow.watch_diff(blob, lambda g, key=key: found.gradients.__setitem__(key, g.numpy().copy()))
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0]), momentum=0.0).minimize(total)
        return outputs

    body.__name__ = f"samples_{train}"
    job = flow.global_function(type="train" if train else "predict")(body)
    results = job({f"{name}/{i}": array for (name, i), array in arrays.items()}).get()
    found.results.update({name: result.numpy() for name, result in results.items()})


def _scope(sample: Sample) -> Any:
    """Samples of layouts speak of two axes."""
    devices = flow.scope.current_scope().size
    return flow.scope.placement("cpu", f"0:0-{devices - 1}", (1, devices)) if sample.row == "layout" else nullcontext()


def _split(blob: Any, dim: int | None) -> Any:
    if dim is None or len(blob.shape) <= dim or blob.shape[dim] < 2:
        return blob
    return blob.with_distribute(flow.distribute.split(dim))


def _loss(inputs: list[Any], outputs: list[Any]) -> Any:
    """A number in which every element of every output weighs differently, and which every input is on the way to."""
    total = flow.constant(0.0, flow.float32, (1,))
    for out in outputs:
        if out.dtype.is_floating_point:
            count = int(np.prod(out.shape))
            weights = flow.reshape(
                flow.range(0, count, dtype=flow.float32) * (1.0 / max(count - 1, 1)) + 0.5, out.shape
            )
            total = total + flow.math.reduce_sum(flow.cast(out, flow.float32) * weights)
    for blob in inputs:
        if blob.dtype is flow.float32:
            total = total + flow.math.reduce_sum(blob) * 0.0
    return total


@lru_cache(maxsize=None)
def on_one_device(file: str) -> Outcome:
    return run_samples(file, 1)


def check(file: str, got: Outcome) -> None:
    expected, samples = on_one_device(file), named_samples(file)
    assert got.results.keys() == expected.results.keys() and got.gradients.keys() == expected.gradients.keys()
    for name, value in expected.results.items():
        sample = samples[name.rpartition(":")[0]]
        assert got.results[name].dtype == value.dtype
        np.testing.assert_allclose(got.results[name], value, sample.rtol, sample.atol, err_msg=name)
    for name, value in expected.gradients.items():
        sample = samples[name.rpartition("/")[0]]
        np.testing.assert_allclose(
            got.gradients[name], value, max(sample.rtol, 1e-4), max(sample.atol, 1e-5), err_msg=f"gradient of {name}"
        )


@pytest.mark.parametrize("file", FILES)
def test_rows_on_two_ranks_equal_one_device(file: str) -> None:
    check(file, run_samples(file, 2))


@pytest.mark.parametrize("file", OTHER_DIMS)
def test_rows_whose_inputs_are_split_along_dim_1_equal_one_device(file: str) -> None:
    check(file, run_samples(file, 2, dim=1))


@pytest.mark.parametrize("file", FOUR_RANKS)
def test_rows_on_four_ranks_equal_one_device(file: str) -> None:
    check(file, run_samples(file, 4))
