"""Training steps on several devices that once differed from those on one: layouts, buckets, clipping, hand-overs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from nets import begin
from rank_jobs import rate, weight

import oneflow as flow
import oneflow.typing as tp


def trained_by(devices: int, body: Callable[[Any], Any], shape: tuple[int, ...], **scope: Any) -> dict[str, np.ndarray]:
    """The variables after a step of a job that minimizes what the body makes of its input."""
    begin(devices)

    @flow.global_function("train")
    def job(x=flow.FixedTensorDef(shape)):
        with flow.scope.placement("cpu", f"0:0-{devices - 1}", **scope) if scope and devices > 1 else nullcontext():
            loss = body(x)
            flow.optimizer.SGD(rate(0.1), momentum=0.0).minimize(loss)
        return loss

    job(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def assert_trained_as_by_one(devices: int, body: Callable[[Any], Any], shape: tuple[int, ...], **scope: Any) -> None:
    assert_same(trained_by(devices, body, shape, **scope), trained_by(1, body, shape))


def assert_same(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_group_norm_of_a_value_that_was_sent_has_the_gradient_of_one_device():
    """A convolution gives its result in another order of memory than a boxing does, and the kernel takes both for
    one."""

    def net(x: Any) -> Any:
        y = flow.nn.conv2d(x, weight("c", 6, 2, 3, 3), 1, "SAME", "NCHW").with_distribute(flow.distribute.broadcast())
        z = flow.nn.GroupNorm(y, num_groups=2, affine=False, name="gn")
        return flow.math.square(flow.matmul(flow.reshape(z, (4, -1)), weight("v", 216, 4)))

    assert_trained_as_by_one(2, net, (4, 2, 6, 6))


@pytest.mark.parametrize("batch", [4, 7])
def test_batch_norm_of_one_sample_on_a_device_has_the_gradient_of_one_device(batch: int) -> None:
    """The gradient has its channels innermost, and the stride of a dim of one sample, by which the kernel takes it for
    contiguous."""

    def net(x: Any) -> Any:
        y = flow.layers.batch_normalization(x * weight("s", 1, 4, 16, 16), axis=1, name="norm")
        rows = flow.transpose(flow.reshape(y, (batch, 4, 256)), (0, 2, 1))
        made = flow.math.tanh(flow.matmul(flow.reshape(rows, (batch * 256, 4)), weight("d", 4, 3)))
        return flow.math.square(flow.matmul(flow.reshape(made, (batch, 768)), weight("v", 768, 4)))

    assert_trained_as_by_one(4, net, (batch, 4, 16, 16))


def test_gradients_that_are_boxed_along_two_axes_go_through_buckets():
    def net(x: Any) -> Any:
        for i, shape in enumerate([(6, 6), (6, 6), (6, 4)]):
            x = flow.math.tanh(flow.matmul(x, weight(f"w{i}", *shape, parallel_distribution=["S(0)", "B"])))
        return x

    assert_trained_as_by_one(4, net, (8, 6), hierarchy=(2, 2))


def test_a_bucket_of_empty_parts_is_no_trouble():
    assert_trained_as_by_one(
        4, lambda x: flow.math.tanh(x * weight("w", 1, parallel_distribution=["S(0)", "B"])), (8, 6), hierarchy=(2, 2)
    )


def test_ranks_may_have_the_gradient_of_a_weight_in_different_strides():
    """The part that a rank keeps is channels_last, as a convolution returned it; what it sends arrives contiguous."""

    def net(x: Any, others: str = "0:0-1") -> Any:
        with flow.scope.placement("cpu", "0:0"):
            h = flow.nn.conv2d(x, weight("a", 8, 4, 3, 3), 1, "VALID", name="a")
        with flow.scope.placement("cpu", others):
            return flow.math.tanh(
                flow.nn.conv2d_transpose(
                    h, weight("b", 8, 6, 2, 2), output_shape=(8, 6, 12, 12), strides=2, padding="VALID", name="b"
                )
            )

    assert_same(trained_by(2, net, (8, 4, 8, 8)), trained_by(1, lambda x: net(x, "0:0"), (8, 4, 8, 8)))


def test_clipping_by_the_norm_of_all_gradients_is_exact_in_float64():
    def trained(devices: int) -> np.ndarray:
        begin(devices)

        @flow.global_function("train")
        def job(x: tp.Numpy.Placeholder((8, 6), dtype=flow.float64)) -> tp.Numpy:
            loss = flow.math.square(flow.matmul(x, weight("w", 6, 4, dtype=flow.float64)))
            clipping = flow.optimizer.grad_clipping.by_global_norm(0.01)
            flow.optimizer.SGD(rate(0.1), momentum=0.0, grad_clipping=clipping).minimize(loss)
            return loss

        for _ in range(3):
            job(np.random.default_rng(0).normal(size=(8, 6)))
        return flow.get_all_variables()["w"].numpy()

    np.testing.assert_allclose(trained(2), trained(1), rtol=0, atol=1e-14)


def test_several_devices_share_what_a_single_one_hands_over():
    def net(x: Any, others: str = "0:1-3") -> Any:
        with flow.scope.placement("cpu", "0:0"):
            h = flow.nn.relu(flow.matmul(x, weight("a", 6, 16)))
        with flow.scope.placement("cpu", others):
            return flow.math.square(flow.matmul(h, weight("b", 16, 4)))

    assert_same(trained_by(4, net, (8, 6)), trained_by(1, lambda x: net(x, "0:0"), (8, 6)))
    begin(4)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((8, 6))) -> tp.Numpy:
        return net(x)

    plan = flow.plan(job)
    assert [op.sbp for op in plan.ops if op.aten.startswith("aten.mm")] == [("B",), ("S(0)",)]
    assert next(rank for rank in plan.ranks if rank.ranks == "0").communicated["send"].bytes == 8 * 16 * 4
