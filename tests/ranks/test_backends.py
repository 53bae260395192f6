"""What a session runs jobs on: when it goes over to workers, and what both kinds of backend do with jobs that
change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mirrored_jobs import mirrored
from nets import begin

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import JobError
from oneflow.engine.job.driven import DrivenBackend, DrivenJob
from oneflow.engine.job.function import default_session
from oneflow.engine.job.local import LocalBackend

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
DEVICES = pytest.mark.parametrize("devices", [1, 2])


def weight() -> Any:
    return flow.get_variable("w", (3, 2), initializer=flow.random_normal_initializer())


def w() -> np.ndarray:
    return np.array(flow.get_all_variables()["w"].numpy())


def constant(rate: float) -> Any:
    return flow.optimizer.PiecewiseConstantScheduler([], [rate])


def gradient(before: np.ndarray, x: np.ndarray) -> np.ndarray:
    """That of the mean of the rows' sums of squares."""
    return 2 * x.T @ (x @ before) / len(x)


def minimized(x: Any, optimizer: Any) -> Any:
    loss = flow.math.reduce_sum(flow.math.square(flow.matmul(x, weight())), axis=[1])
    optimizer.minimize(loss)
    return loss


# ------------------------------------------------------------------ over to workers


def placed(devices: str) -> Any:
    @flow.global_function("predict")
    def both(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        with flow.scope.placement("cpu", devices):
            return flow.matmul(x, weight())

    return both


def test_a_session_without_variables_goes_over_to_workers_and_its_jobs_go_on() -> None:
    begin(2)

    @flow.global_function("predict")
    def alone(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:0"):
            return x * 2.0

    np.testing.assert_array_equal(alone(X), X * 2)
    assert isinstance(default_session().backend, LocalBackend)
    both = placed("0:0-1")
    np.testing.assert_allclose(both(X), X @ w(), rtol=1e-5)
    assert isinstance(default_session().backend, DrivenBackend)
    np.testing.assert_array_equal(alone(X), X * 2)
    assert isinstance(alone.job.opened, DrivenJob)


def test_a_session_that_has_values_stays_where_they_are() -> None:
    begin(2)

    @flow.global_function("predict")
    def alone(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:0"):
            return flow.matmul(x, weight())

    expected = alone(X)
    both = placed("0:0-1")
    late = "a job on several devices comes too late: jobs ran on one device already; define it before the first job is called"
    with pytest.raises(JobError, match=rf"test_backends\.py:\d+: {late}$"):
        both(X)
    assert isinstance(default_session().backend, LocalBackend)
    np.testing.assert_array_equal(placed("0:0")(X), expected)
    np.testing.assert_allclose(expected, X @ w(), rtol=1e-5)


# ------------------------------------------------------------------ jobs that change


@DEVICES
def test_a_job_that_is_defined_again_runs_as_it_was_defined_last(devices: int) -> None:
    begin(devices)
    made = []
    for factor in (2.0, 3.0):

        @flow.global_function("predict")
        def job(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
            return flow.matmul(x, weight()) * factor  # noqa: B023 - it is traced before the next one is made

        made.append(job)
        np.testing.assert_allclose(job(X), X @ w() * factor, rtol=1e-5)
    line = r".*test_backends\.py:\d+"
    with pytest.raises(JobError, match=f"job 'job' of {line} was replaced by another definition at {line}"):
        made[0](X)
    np.testing.assert_allclose(made[1](X), X @ w() * 3, rtol=1e-5)


@DEVICES
def test_eager_execution_takes_changed_numbers_into_the_same_graph(devices: int) -> None:
    """Rate, momentum, clipping: the graph that the body records is the same, what is made of it is not."""
    begin(devices)
    flow.enable_eager_execution()
    clip = flow.optimizer.grad_clipping.by_global_norm
    optimizers = [
        flow.optimizer.SGD(constant(0.1), momentum=0.0),
        flow.optimizer.SGD(constant(0.5), momentum=0.0),
        flow.optimizer.SGD(constant(0.5), momentum=0.0, grad_clipping=clip(0.01)),
        flow.optimizer.SGD(constant(0.1), momentum=0.0),
    ]
    turn = iter(optimizers)

    @flow.global_function("train")
    def train(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return minimized(x, next(turn))

    before = None
    for rate, limit in ((0.1, None), (0.5, None), (0.5, 0.01), (0.1, None)):
        losses = train(X)
        after = w()
        if before is not None:
            step = gradient(before, X)
            step = step if limit is None else step * limit / np.linalg.norm(step)
            np.testing.assert_allclose(after, before - rate * step, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(losses, ((X @ before) ** 2).sum(1), rtol=1e-4)
        before = after
    assert flow.get_all_variables()["System-Train-TrainStep-train"].numpy().item() == 4


def test_eager_execution_of_a_mirrored_job_takes_a_changed_rate() -> None:
    begin(2)
    flow.enable_eager_execution()
    rates = iter([0.1, 0.5, 0.5])

    @flow.global_function("train", mirrored())
    def train(x=flow.MirroredTensorDef((2, 3))):
        return minimized(x, flow.optimizer.SGD(constant(next(rates)), momentum=0.0))

    before = None
    for rate in (0.1, 0.5, 0.5):
        train([X[:2], X[2:]]).get()
        after = w()
        if before is not None:
            added = gradient(before, X[:2]) + gradient(before, X[2:])
            np.testing.assert_allclose(after, before - rate * added, rtol=1e-4, atol=1e-6)
        before = after


# ------------------------------------------------------------------ steps that all ranks skip, micro-batches that all
# ranks watch


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_gradient_that_overflows_on_one_rank_is_skipped_by_all(micro_batches: int) -> None:
    """Only the last row, which the second rank has, is no number."""
    begin(2)
    seen: list[np.ndarray] = []
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(micro_batches)
    scale = flow.optimizer.loss_scale.dynamic_loss_scale(8.0, 100)

    @flow.global_function("train", config)
    def train(x=flow.FixedTensorDef((4 // micro_batches, 3))) -> tp.Numpy:
        flow.watch(x, lambda got: seen.append(np.array(got)))
        return minimized(x, flow.optimizer.SGD(constant(0.1), momentum=0.0, loss_scale_policy=scale))

    before = w()
    bad = X.copy()
    bad[3, 0] = np.inf
    losses = train(bad)
    np.testing.assert_allclose(losses[:3], ((X @ before) ** 2).sum(1)[:3], rtol=1e-5)
    np.testing.assert_array_equal(seen.pop(), bad)
    np.testing.assert_array_equal(w(), before)
    train(X)
    np.testing.assert_array_equal(seen.pop(), X)
    np.testing.assert_allclose(w(), before - 0.1 * gradient(before, X), rtol=1e-5)
    assert flow.get_all_variables()["System-Train-DynamicLossScale-train-LossScale"].numpy().item() == 4.0


def test_a_gradient_that_overflows_in_the_part_of_one_rank_is_skipped_by_all() -> None:
    """The variable is split: the first rank never meets what is no number, and must not update its part."""
    begin(2)

    @flow.global_function("train")
    def train(x: tp.Numpy.Placeholder((3, 4))) -> tp.Numpy:
        v = flow.get_variable("v", (4,), initializer=flow.random_normal_initializer(), parallel_distribution=("S(0)",))
        loss = flow.math.square(x * v)
        scale = flow.optimizer.loss_scale.dynamic_loss_scale(8.0, 100)
        flow.optimizer.SGD(constant(0.1), momentum=0.0, loss_scale_policy=scale).minimize(loss)
        return loss

    def v() -> np.ndarray:
        return np.array(flow.get_all_variables()["v"].numpy())

    x, before = X.reshape(3, 4), v()
    bad = x.copy()
    bad[2, 3] = np.inf
    train(bad)
    np.testing.assert_array_equal(v(), before)
    train(x)
    np.testing.assert_allclose(v(), before - 0.1 * 2 * before * (x**2).sum(0) / x.size, rtol=1e-5)
