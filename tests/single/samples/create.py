"""Samples of ``oneflow.engine.ops.create``."""

from __future__ import annotations

import numpy as np
from sample import Sample, ints, rand

from oneflow import array
from oneflow.engine.core import dtype as dtypes


def _made(row, call, expected, *inputs):
    """A sample without gradients: no value of the inputs matters."""
    return Sample(row, call, inputs, lambda *_: expected, gradient=False)


SAMPLES = [
    _made("constant", lambda: array.constant(1.5, dtypes.float32), np.array([1.5], np.float32)),
    _made("constant", lambda: array.constant(3, dtypes.int8, (2, 3)), np.full((2, 3), 3, np.int8)),
    _made("constant", lambda: array.constant(3, dtype=dtypes.float64, shape=[4]), np.full(4, 3.0)),
    _made("constant", lambda: array.constant_scalar(2.0, dtypes.int32), np.array([2], np.int32)),
    _made("constant", lambda: array.zeros((2, 2)), np.zeros((2, 2), np.float32)),
    _made("constant", lambda: array.ones([3], dtypes.int64), np.ones(3, np.int64)),
    _made("constant", lambda x: array.elem_cnt(x), np.array([6], np.int32), rand(2, 3)),
    _made(
        "constant", lambda x: array.elem_cnt(x, dtypes.float32, axis=[0, -1]), np.array([10], np.float32), rand(2, 3, 5)
    ),
    _made("constant_like", lambda x: array.constant_like(x, 2.5), np.full((2, 3), 2.5, np.float32), rand(2, 3)),
    _made("constant_like", lambda x: array.constant_like(x, 2.5, dtypes.float64), np.full(3, 2.5), ints(3)),
    _made("constant_like", lambda x: array.zeros_like(x), np.zeros((2, 3), np.int32), ints(2, 3)),
    Sample("constant_like", lambda x: x * array.ones_like(x, dtypes.float32), (rand(2, 3),), lambda x: x),
    _made("range", lambda: array.range(5), np.arange(5)),
    _made("range", lambda: array.range(2, 9, 3, dtype=dtypes.int32), np.array([2, 5, 8], np.int32)),
    _made("range", lambda: array.range(0.5, 2.5, 0.5), np.array([0.5, 1, 1.5, 2], np.float32)),
    _made("range", lambda: array.range(3, 0, -1), np.array([3, 2, 1])),
]
