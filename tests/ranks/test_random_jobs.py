"""Jobs drawn at random give on many devices what they give on one: views, values that are read again, hints and
placements in any order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from nets import begin

import oneflow as flow
import oneflow.typing as tp

ROWS, COLUMNS, OPS = 7, 6, 14
PLACES = ["0:0", "0:1", "0:0-3", ["0:2", "0:1"]]
NORMAL = flow.random_normal_initializer(0.0, 0.4)
Value = Any


def halves(a: Value, b: Value) -> Value:
    left, right = (flow.slice_v2(value, [(None, None, None), part]) for value, part in ((a, (0, 3, 1)), (b, (3, 6, 1))))
    return flow.concat([left, flow.nn.relu(right)], axis=1)


MAKE: list[Callable[[Value, Value, str], Value]] = [
    lambda a, b, name: flow.nn.relu(a),
    lambda a, b, name: a + b,
    lambda a, b, name: flow.math.tanh(a) * b,
    lambda a, b, name: flow.math.sigmoid(a) - b,
    lambda a, b, name: a / (flow.math.square(b) + 1.0),
    lambda a, b, name: flow.reshape(flow.nn.relu(flow.reshape(a, (ROWS * COLUMNS,))), (ROWS, COLUMNS)),
    lambda a, b, name: flow.transpose(flow.math.tanh(flow.transpose(a, (1, 0))) + flow.transpose(b, (1, 0)), (1, 0)),
    lambda a, b, name: flow.matmul(a, flow.get_variable(name, (COLUMNS, COLUMNS), initializer=NORMAL)),
    lambda a, b, name: flow.matmul(
        a, flow.get_variable(name, (COLUMNS, COLUMNS), initializer=NORMAL, distribute=flow.distribute.split(0))
    ),
    lambda a, b, name: a + flow.get_variable(name, (COLUMNS,), initializer=NORMAL),
    lambda a, b, name: (
        flow.reshape(
            flow.nn.relu(flow.reshape(a.with_distribute(flow.distribute.split(0)), (ROWS, 3, 2))), (ROWS, COLUMNS)
        )
        + b
    ),
    lambda a, b, name: flow.nn.relu(a.with_distribute(flow.distribute.broadcast())),
    lambda a, b, name: a - flow.math.reduce_mean(b, axis=0, keepdims=True),
    lambda a, b, name: halves(a, b),
]


def trained(seed: int, places: list[Any]) -> list[np.ndarray]:
    """What three steps of the job of that number give and leave. The ops are the same wherever they are placed."""
    drawn = np.random.default_rng(seed)
    picks = [
        (drawn.integers(len(MAKE)), drawn.integers(number + 1, size=2), drawn.integers(len(PLACES)))
        for number in range(OPS)
    ]

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((ROWS, COLUMNS))):
        values = [x]
        for number, (kind, (first, second), place) in enumerate(picks):
            with flow.scope.placement("cpu", places[place]) if places else nullcontext():
                values.append(MAKE[kind](values[first], values[second], f"v{number}"))
        used = flow.math.tanh(values[-1] + values[-2] * values[-3] + values[-5])
        loss = flow.math.square(flow.matmul(used, flow.get_variable("last", (COLUMNS, 4), initializer=NORMAL)))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.02]), momentum=0.9).minimize(loss)
        return loss, values[3], values[8], used

    inputs = drawn.normal(size=(3, ROWS, COLUMNS)).astype(np.float32)
    results = [result.numpy() for x in inputs for result in job(x).get()]
    return results + [variable.numpy() for _, variable in sorted(flow.get_all_variables().items())]


@pytest.mark.parametrize("places", [[], PLACES], ids=["everywhere", "anywhere"])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_job_gives_on_many_devices_what_it_gives_on_one(seed: int, places: list[Any]) -> None:
    begin(1)
    expected = trained(seed, [])
    begin(4)
    for mine, theirs in zip(trained(seed, places), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)
