"""Jobs whose ranks stand in several meshes: all process groups are made by all ranks, so that those of a later job come
about too."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from nets import LAYOUTS, ONE, Spread, begin, data, define, dense, mlp, variables

import oneflow as flow
import oneflow.typing as tp

STEPS = 3


def net(how: Spread, x: Any) -> Any:
    """Two ranks are a mesh of their own, and one row of a square that is split along both axes."""
    with flow.scope.placement("cpu", "0:0-1") if how.devices > 1 else nullcontext():
        first = dense(Spread(), flow.reshape(x, (x.shape[0], -1)), 10, "pair")
    with how.stage(0):
        return mlp(how, x) + first


def run(how: Spread) -> tuple[list[np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """The square trains; then a job on two ranks of different rows needs a group of its own."""
    begin(how.devices)
    train = define(net, how)
    losses = [train(*data(how.batch, step)) for step in range(STEPS)]
    values = variables()

    @flow.global_function("predict")
    def later(x: tp.Numpy.Placeholder((4, 144))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:1-2") if how.devices > 1 else nullcontext():
            w = flow.get_variable(
                "later", (10, 144), initializer=flow.random_normal_initializer(), parallel_distribution=("S(1)",)
            )
            return flow.matmul(x, w, transpose_b=True)

    return losses, values, later(data(4, 0)[0].reshape(4, -1))


def test_a_later_job_gets_its_groups() -> None:
    losses, values, results = run(LAYOUTS["dp x tp"])
    expected_losses, expected, expected_results = run(ONE)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5, atol=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(results, expected_results, rtol=1e-4, atol=1e-4)
