"""What tests of the mirrored view are written with."""

from __future__ import annotations

import numpy as np

import oneflow as flow

RATE = 0.1
X = np.zeros((2, 3), np.float32)


def mirrored(view=None):
    config = flow.function_config()
    config.default_logical_view(view or flow.scope.mirrored_view())
    return config


def sgd(momentum=0.0, **more):
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [RATE]), momentum=momentum, **more)


def variable(name, shape, value=1.0):
    return flow.get_variable(name, shape, initializer=flow.constant_initializer(value))


def batches(*rows, columns=3, seed=0):
    random = np.random.default_rng([seed, *rows])
    return [random.standard_normal((n, columns)).astype(np.float32) for n in rows]


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
