"""The executor of one rank: steps that fail, what is known to be old, and micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from one_rank import session_variables

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import RunError
from oneflow.engine.job.local import LocalJob, LocalProgram
from oneflow.engine.step.executor import StepNumbers

RATE = 0.1
X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def sgd(**more: Any) -> Any:
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [RATE]), momentum=0.0, **more)


def weight() -> Any:
    return flow.get_variable("w", (3, 2), initializer=flow.random_normal_initializer())


def w() -> np.ndarray:
    return np.array(flow.get_all_variables()["w"].numpy())


def train_job(micro_batches: int = 1, seen: list[np.ndarray] | None = None, **more: Any) -> Callable[..., Any]:
    """The loss is w's product with a row, squared and summed."""
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(micro_batches)

    @flow.global_function("train", config)
    def train(x=flow.FixedTensorDef((4 // micro_batches, 3))) -> tp.Numpy:
        y = flow.matmul(x, weight())
        loss = flow.math.reduce_sum(flow.math.square(y), axis=[1])
        if seen is not None:
            flow.watch(y, lambda got: seen.append(np.array(got)))
        sgd(**more).minimize(loss)
        return loss

    return train


def updated(before: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A step by hand: the loss of a job is the mean of what it minimizes."""
    return before - RATE * 2 * x.T @ (x @ before) / len(x)


def program_of(job: Any) -> LocalProgram:
    opened = job.job.opened
    assert isinstance(opened, LocalJob)
    (program,) = opened.programs.by_shapes.values()
    return program


def feeds(*shapes: tuple[int, ...]) -> list[list[torch.Tensor]]:
    return [[torch.ones(shape)] for shape in shapes]


# ------------------------------------------------------------------ steps that fail


def test_a_step_that_fails_in_its_second_micro_batch_updates_nothing_and_the_next_is_right() -> None:
    train = train_job(2)
    train(X)
    before, version = w(), session_variables().version
    executor = program_of(train).executor
    for wrong in (feeds((2, 3), (2, 5)), feeds((2, 5), (2, 3))):
        with pytest.raises(RunError, match=r"job 'train' failed at step 7 in .*matmul.*test_executor\.py"):
            executor.run(StepNumbers(7, (RATE,), 1.0), wrong)
    np.testing.assert_array_equal(w(), before)
    assert session_variables().version == version + 2
    losses = train(X)
    np.testing.assert_allclose(losses, ((X @ before) ** 2).sum(1), rtol=1e-5)
    np.testing.assert_allclose(w(), updated(before, X), rtol=1e-5)


def test_a_failed_step_of_a_job_that_writes_nothing_makes_nothing_old() -> None:
    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.math.relu(flow.matmul(x, weight()))

    predict(X)
    version = session_variables().version
    with pytest.raises(RunError, match="job 'predict' failed at step 3 in "):
        program_of(predict).executor.run(StepNumbers(3, (), 1.0), feeds((4, 5)))
    assert session_variables().version == version
    np.testing.assert_allclose(predict(X), np.maximum(X @ w(), 0), rtol=1e-5)


# ------------------------------------------------------------------ what is known to be old


def test_every_change_of_variables_is_counted_and_nothing_else_is() -> None:
    train = train_job()

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.matmul(x, weight())

    @flow.global_function()
    def double(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        flow.assign(weight(), weight() * 2.0)
        return x

    flow.get_all_variables()
    variables = session_variables()

    def raised_by(change: Callable[[], object]) -> int:
        before = variables.version
        change()
        return variables.version - before

    assert raised_by(lambda: predict(X)) == raised_by(w) == 0
    assert raised_by(lambda: train(X)) == raised_by(lambda: double(X)) == 1
    assert raised_by(lambda: flow.load_variables({"w": np.ones((3, 2), np.float32)})) == 1
    assert raised_by(lambda: flow.train.CheckPoint().init()) == 1


# ------------------------------------------------------------------ micro-batches


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_results_and_watched_values_are_those_of_all_micro_batches_in_order(micro_batches: int) -> None:
    seen: list[np.ndarray] = []
    train = train_job(micro_batches, seen)
    for step in range(2):
        before = np.array(w())
        x = X + step
        losses = train(x)
        np.testing.assert_allclose(losses, ((x @ before) ** 2).sum(1), rtol=1e-5)
        np.testing.assert_allclose(seen.pop(), x @ before, rtol=1e-5)
        assert not seen
        np.testing.assert_allclose(w(), updated(before, x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_step_that_overflows_gives_its_results_and_changes_nothing_but_the_scale(micro_batches: int) -> None:
    """The scale is halved where a gradient is no number, also if only the last micro-batch has one."""
    seen: list[np.ndarray] = []
    train = train_job(micro_batches, seen, loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale(8.0, 100))
    scale = "System-Train-DynamicLossScale-train-LossScale"
    before = np.array(w())
    bad = X.copy()
    bad[3, 0] = np.inf
    losses = train(bad)
    np.testing.assert_allclose(losses[:3], ((X @ before) ** 2).sum(1)[:3], rtol=1e-5)
    assert not np.isfinite(losses[3]) and len(seen) == 1
    np.testing.assert_array_equal(w(), before)
    assert flow.get_all_variables()[scale].numpy().item() == 4.0
    train(X)
    np.testing.assert_allclose(w(), updated(before, X), rtol=1e-5)
    assert flow.get_all_variables()[scale].numpy().item() == 4.0
