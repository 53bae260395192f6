"""The mirrored view on two devices: copies of a job that share their variables, trained by the sum of their
gradients."""

from __future__ import annotations

import numpy as np
import pytest
from mirrored_jobs import RATE, X, batches, close, mirrored, sgd, variable

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.lowering import bucket


@pytest.fixture(autouse=True)
def two_devices():
    flow.config.cpu_device_num(2)


def values(*names):
    every = flow.get_all_variables()
    return [every[name].numpy() for name in names]


class Linear:
    """loss = rows of ((x w + b) s) squared; its training written out, with gradients summed over devices."""

    def __init__(self):
        self.w, self.b, self.s = np.ones((3, 2)), np.ones((1, 2)), np.full((1, 2), 0.5)
        self.velocity = [np.zeros_like(v) for v in (self.w, self.b, self.s)]

    def gradients(self, x, divisor):
        hidden = x @ self.w + self.b
        out = 2 * hidden * self.s / divisor
        inner = out * self.s
        return [x.T @ inner, inner.sum(0, keepdims=True), (out * hidden).sum(0, keepdims=True)]

    def losses(self, x):
        return (((x @ self.w + self.b) * self.s) ** 2).sum(1)

    def step(self, fed, momentum=0.0, clip=None):
        total = [sum(parts) for parts in zip(*(self.gradients(x, len(x)) for x in fed))]
        if clip is not None:
            norm = np.sqrt(sum((g**2).sum() for g in total))
            total = [g * min(1, clip / norm) for g in total]
        for value, velocity, g in zip((self.w, self.b, self.s), self.velocity, total):
            velocity[:] = momentum * velocity - RATE * g
            value += velocity


def linear(x, optimizer):
    hidden = flow.matmul(x, variable("w", (3, 2))) + variable("b", (1, 2))
    # In this order the gradient of b is made before that of s from a batch of one, and after it from any other.
    out = variable("s", (1, 2), 0.5) * hidden
    loss = flow.math.reduce_sum(out * out, axis=1)
    optimizer.minimize(loss)
    return loss


@pytest.mark.parametrize("in_one_bucket", [True, False])
def test_gradients_are_summed_over_devices_and_divided_by_the_batch_of_each(in_one_bucket, monkeypatch):
    if not in_one_bucket:
        monkeypatch.setattr(bucket, "FIRST_BYTES", 1)  # then the first holds one gradient, a second the others

    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return linear(x, sgd())

    expected = Linear()
    for number, rows in enumerate([(4, 4), (1, 3), (2, 1), (1, 1)]):
        fed = batches(*rows, seed=number)
        for got, x in zip(train(fed), fed):
            close(got, expected.losses(x))
        expected.step(fed)
        for got, value in zip(values("w", "b", "s"), (expected.w, expected.b, expected.s)):
            close(got, value)


def test_large_gradients_of_different_programs_are_summed():
    """A device meets a batch size for the first time in a step in which the other does not."""

    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 300))) -> tp.ListNumpy:
        y = flow.math.reduce_sum(flow.matmul(x, variable("w", (300, 300))), axis=1)
        sgd().minimize(y)
        return y

    expected = np.ones((300, 300))
    for number, rows in enumerate([(4, 4), (4, 2), (2, 4), (3, 3)]):
        fed = [
            np.random.default_rng([number, rank]).normal(size=(count, 300)).astype(np.float32)
            for rank, count in enumerate(rows)
        ]
        for got, x in zip(train(fed), fed):
            np.testing.assert_allclose(got, (x @ expected).sum(1), rtol=1e-3, atol=1e-2)
        expected = expected - RATE * sum(x.mean(0) for x in fed)[:, None]
        np.testing.assert_allclose(values("w")[0], expected, rtol=1e-4, atol=1e-4)


def test_accumulation_clipping_loss_scale_and_shared_states_do_what_they_do_elsewhere():
    config = mirrored()
    config.train.num_gradient_accumulation_steps(2)
    config.optimizer_placement_optimization_mode("distributed_split")
    config.optimizer_placement_optimization_threshold(1)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        clip = flow.optimizer.grad_clipping.by_global_norm(0.7)
        scale = flow.optimizer.loss_scale.dynamic_loss_scale(initial_loss_scale=1024.0)
        return linear(x, sgd(momentum=0.9, grad_clipping=clip, loss_scale_policy=scale))

    expected = Linear()
    for number, rows in enumerate([(4, 4), (2, 4), (4, 2)]):
        fed = batches(*rows, seed=number)
        got = train(fed)
        assert [len(piece) for piece in got] == list(rows)
        expected.step(fed, momentum=0.9, clip=0.7)
    for got, value in zip(values("w", "b", "s"), (expected.w, expected.b, expected.s)):
        close(got, value)


def test_jobs_of_the_other_view_see_the_same_variables():
    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4,))) -> None:
        sgd().minimize(variable("w", (1,)) * x)

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((5,))) -> tp.Numpy:
        return variable("w", (1,)) * x

    train([np.array([1, 3], np.float32), np.array([4], np.float32)])
    close(predict(np.arange(5, dtype=np.float32)), np.arange(5) * (1 - RATE * (2 + 4)))


def test_each_device_keeps_its_own_batch_statistics_and_the_first_ones_are_saved():
    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        y = flow.layers.batch_normalization(x, axis=1, momentum=0.5, epsilon=1e-6, name="bn")
        sgd().minimize(y)
        return y

    @flow.global_function(function_config=mirrored())
    def means(x: tp.ListNumpy.Placeholder((1, 3))) -> tp.ListNumpy:
        return flow.layers.batch_normalization(
            x, axis=1, momentum=0.5, epsilon=1e-6, training=False, center=False, scale=False, name="bn"
        )

    fed = batches(4, 3)
    for got, x in zip(train(fed), fed):
        np.testing.assert_allclose(got, (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    close(values("bn-moving_mean")[0], fed[0].mean(0) / 2)
    flow.load_variables({"bn-moving_variance": np.ones(3, np.float32)})
    for got, x in zip(means([np.zeros((1, 3), np.float32)] * 2), fed):
        close(got, [-x.mean(0) / 2])


def test_random_numbers_differ_between_devices_and_follow_from_the_seed():
    def masks():
        flow.clear_default_session()
        flow.config.cpu_device_num(2)

        @flow.global_function(function_config=mirrored())
        def job(x: tp.ListNumpy.Placeholder((64,))) -> tp.ListNumpy:
            return flow.random.bernoulli(x, seed=7)

        return [piece.tolist() for _ in range(2) for piece in job([np.full(64, 0.5, np.float32)] * 2)]

    first = masks()
    assert len({tuple(mask) for mask in first}) == 4
    assert masks() == first


def test_random_numbers_that_nothing_reads():
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        flow.random.bernoulli(x)
        return x

    assert [piece.tolist() for piece in job([X, X])] == [X.tolist()] * 2


def test_on_one_device_both_views_are_the_same():
    def trained(config):
        flow.clear_default_session()
        flow.config.cpu_device_num(1)

        @flow.global_function(type="train", function_config=config)
        def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
            return linear(flow.nn.dropout(flow.cast_to_current_logical_view(x), 0.5), sgd())

        losses = [train(batches(rows))[0].tolist() for rows in (4, 2)]
        return losses, [value.tolist() for value in values("w", "b", "s")]

    assert trained(mirrored()) == trained(flow.function_config())


def test_a_copy_on_one_of_several_devices_is_as_on_one_alone():
    config = mirrored()
    config.default_placement_scope(flow.scope.placement("cpu", "0:1"))

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.ListNumpy.Placeholder((4, 3))):
        return linear(x, sgd())

    expected, (fed,) = Linear(), batches(3)
    result = train([fed]).get()
    close(result, expected.losses(fed))
    assert result.parallel_num() == 1
    expected.step([fed])
    close(values("w")[0], expected.w)
