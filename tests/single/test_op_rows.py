"""Every op row against its reference: on the logical graph, and compiled as a job, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import runner
import torch
from families import BY_FILE, SAMPLES, owners, rows_without_a_sample, samples_of_no_row
from sample import Sample

import oneflow as flow
from oneflow.engine.core import dtype as dtypes

IDS = [f"{s.row}-{i}" for i, s in enumerate(SAMPLES)]

PREDICT_ONLY = {"layers.batch_norm_infer"}  # a train job records another row in its place


def test_every_row_has_a_sample() -> None:
    missing = rows_without_a_sample(owners(), {sample.row for sample in SAMPLES})
    missing += samples_of_no_row(BY_FILE)
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_row_equals_its_reference(sample: Sample) -> None:
    runner.check(sample)


class Given:
    """An initializer that gives exactly these values."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def draw(self, spec: Any, generator: Any) -> torch.Tensor:
        return torch.from_numpy(self.value.copy())


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_compiled_row_equals_its_reference(sample: Sample) -> None:
    """The same through a job: the joint graph, its clean-up and the generated program change nothing."""
    theirs = runner.leaves(sample)
    expected = sample.expect(*theirs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    differentiable = [e for e in expected if isinstance(e, torch.Tensor) and e.requires_grad]
    train = sample.is_train or (bool(differentiable) and sample.row not in PREDICT_ONLY)
    got, grads = run_as_job(sample, train)
    for g, e in zip(got, expected, strict=True):
        e = torch.as_tensor(e).detach()
        np.testing.assert_allclose(g, e.numpy(), sample.rtol, sample.atol)
    if sample.gradient and train:
        for g, e in zip(grads, runner.gradients(expected, theirs), strict=True):
            np.testing.assert_allclose(g, e, max(sample.rtol, 1e-4), max(sample.atol, 1e-5))


def run_as_job(sample: Sample, train: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The sample's results, and with ``train`` the gradients of its float inputs, which become variables of the job."""
    flow.clear_default_session()
    defs = [flow.FixedTensorDef(a.shape, dtypes.from_numpy(a.dtype)) for a in sample.inputs] or [
        flow.FixedTensorDef((1,))
    ]
    fed = list(sample.inputs) or [np.zeros(1, np.float32)]
    seen: dict[int, np.ndarray] = {}

    def body(xs=defs):  # type: ignore[no-untyped-def]
        blobs = [
            _variable(i, a) if train and a.dtype == np.float32 else x for i, (a, x) in enumerate(zip(sample.inputs, xs))
        ]
        out = sample.call(*blobs)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if train:
            _train(blobs, outs, sample.inputs, seen)
        return outs

    job = flow.global_function(type="train" if train else "predict")(body)
    results = [r.numpy() for r in job(fed).get()]
    return results, [seen[i] for i in sorted(seen)]


def _variable(index: int, value: np.ndarray) -> Any:
    return flow.get_variable(f"given{index}", value.shape, initializer=Given(value))


def _train(blobs: list[Any], outs: list[Any], inputs: tuple[np.ndarray, ...], seen: dict[int, np.ndarray]) -> None:
    total = flow.get_variable("anchor", (1,), initializer=flow.zeros_initializer()) * 1.0
    for out in outs:
        if out.dtype.is_floating_point:
            count = int(np.prod(out.shape))
            weights = flow.reshape(
                flow.range(0, count, dtype=flow.float32) * (1.0 / max(count - 1, 1)) + 0.5, out.shape
            )
            total = total + flow.math.reduce_sum(flow.cast(out, flow.float32) * weights)
    for i, (blob, array) in enumerate(zip(blobs, inputs)):
        if array.dtype == np.float32:
            total = total + flow.math.reduce_sum(blob) * 0.0  # every input is on the way to the loss, if only by this
            flow.watch_diff(blob, lambda g, i=i: seen.__setitem__(i, g.numpy().copy()))
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0]), momentum=0.0).minimize(total)
