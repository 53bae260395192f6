"""Micro-batches by hand: ``unpack`` and ``repeat``, ``pack`` and ``acc``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import ArgumentError, JobError, UnsupportedError

X = np.random.RandomState(0).rand(8, 3).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_parts_are_put_together_and_added_up(count: int) -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Bundle[tp.Numpy]:
        part, same = flow.unpack(x, count), flow.repeat(x, count)
        assert part.shape == (8 // count, 3) and same.shape == (8, 3)
        largest = flow.math.reduce_max(part, [0], keepdims=True)
        return flow.acc(same, count), flow.pack(part * 2 + largest, count), flow.acc(largest, count)

    repeated, joined, added = job(X)
    parts = X.reshape(count, 8 // count, 3)
    np.testing.assert_allclose(repeated, X * count, rtol=1e-6)
    np.testing.assert_allclose(joined, (parts * 2 + parts.max(1, keepdims=True)).reshape(8, 3), rtol=1e-6)
    np.testing.assert_allclose(added, parts.max(1).sum(0, keepdims=True), rtol=1e-6)


def losses(count: int) -> np.ndarray:
    flow.clear_default_session()

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (2, 3), initializer=flow.random_normal_initializer())
        predicted = flow.matmul(flow.unpack(x, count), flow.repeat(w, count), transpose_b=True)
        loss = flow.math.reduce_mean(flow.math.square(predicted - 1.0), [1])
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.5])).minimize(loss)
        return flow.pack(loss, count)

    return np.stack([job(X) for _ in range(3)])


def test_training_in_parts_is_training_on_the_whole() -> None:
    whole = losses(1)
    for count in (2, 4):
        np.testing.assert_allclose(losses(count), whole, rtol=1e-5)
    assert whole[-1].mean() < whole[0].mean()


def test_each_micro_batch_drops_other_elements() -> None:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((512,))) -> tp.Numpy:
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0])).minimize(w * 1.0)
        return flow.pack(flow.nn.dropout(flow.unpack(x, 2), 0.5), 2)

    first, second = job(np.ones(512, np.float32)).reshape(2, 256) != 0
    assert 0.3 < (first == second).mean() < 0.7


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "alone": (lambda x: flow.unpack(x, 2), JobError, "is one of 2 micro-batches; put them together with flow.pack or flow.acc before it is returned"),
    "no parts": (lambda x: flow.acc(x, 2), UnsupportedError, "flow.acc puts 2 micro-batches together, but 'Input_0' is the same in all micro-batches"),
    "other parts": (lambda x: flow.pack(flow.unpack(x, 2), 4), UnsupportedError, "flow.pack puts 4 micro-batches together, but .* is one of 2 micro-batches"),
    "a rest": (lambda x: flow.unpack(x, 3), ArgumentError, "unpack cuts the first axis into 3 equal parts"),
    "both": (lambda x: flow.unpack(x, 2) + flow.unpack(flow.concat([x, x]), 4), JobError, "an op takes blobs of 2 and of 4 micro-batches"),
    "none": (lambda x: flow.repeat(x, 0), ArgumentError, "repeat's number of micro-batches is an int > 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused(case: str) -> None:
    body, error, message = REFUSED[case]

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:
        return body(x)

    with pytest.raises(error, match=message):
        job(X)


def test_batch_normalisation_sees_each_part_by_itself() -> None:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((8, 3))) -> tp.Numpy:
        y = flow.layers.batch_normalization(flow.unpack(x, 2), momentum=0.5, epsilon=1e-5, name="norm")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0])).minimize(y)
        return flow.pack(y, 2)

    parts = X.reshape(2, 4, 3)
    expected = (parts - parts.mean(1, keepdims=True)) / np.sqrt(parts.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(job(X), expected.reshape(8, 3), 1e-4, 1e-5)
    mean = 0.5 * (0.5 * parts[0].mean(0)) + 0.5 * parts[1].mean(0)  # one after the other
    np.testing.assert_allclose(flow.get_all_variables()["norm-moving_mean"].numpy(), mean, rtol=1e-5)


def test_what_a_part_assigns_is_refused() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((8, 3))) -> None:
        flow.assign(flow.get_variable("w", (4, 3), initializer=flow.ones_initializer()), flow.unpack(x, 2))

    with pytest.raises(
        JobError, match="is one of 2 micro-batches; .* before it is returned, watched or assigned to a variable"
    ):
        job(X)
