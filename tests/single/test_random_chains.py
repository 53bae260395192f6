"""Jobs that are chains of ops drawn at random, against plain torch on the same values: whatever order the dims of a
value lie in in memory.

Values have four dims, of which transposes change the order; sizes differ so that none is taken for another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import oneflow as flow

OPS = 10
SHAPE = (4, 6, 5, 7)
EPSILON = 1e-3


@dataclass(frozen=True, eq=False)
class Given:
    """An initializer that gives one known array."""

    array: np.ndarray

    def draw(self, spec: Any, generator: Any) -> Tensor:
        return torch.from_numpy(self.array.copy())


class Drawn:
    """The numbers of one case: what ops ask for in the job they ask for again, in the same order, in torch."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.weights: dict[str, np.ndarray] = {}

    def choice(self, count: int) -> int:
        return int(self._random.integers(count))

    def order(self) -> tuple[int, ...]:
        return tuple(int(dim) for dim in self._random.permutation(4))

    def weight(self, name: str, shape: tuple[int, ...]) -> Given:
        self.weights[name] = self._random.normal(scale=0.4, size=shape).astype(np.float32)
        return Given(self.weights[name])


Step = tuple[Callable[[Any], Any], Callable[[Tensor, dict[str, Tensor]], Tensor]]
"""An op in a job, and in torch given the variables by name."""


def transpose(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    order = drawn.order()
    return lambda x: flow.transpose(x, order), lambda x, w: x.permute(order)


def reshape(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    """Through another shape that joins two neighbours, as the op between two such does something to it."""
    first = drawn.choice(3)
    joined = (*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :])
    return lambda x: flow.reshape(
        flow.math.tanh(flow.reshape(x, joined)), shape
    ), lambda x, w: x.reshape(joined).tanh().reshape(shape)


def softmax(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    axis = drawn.choice(4)
    if drawn.choice(2):
        return lambda x: flow.nn.logsoftmax(x, axis), lambda x, w: x.log_softmax(axis)
    return lambda x: flow.nn.softmax(x, axis) * 4.0, lambda x, w: x.softmax(axis) * 4.0


def batch_norm(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    axis = drawn.choice(4)
    gamma, beta = (drawn.weight(f"{name}-{part}", (shape[axis],)) for part in ("gamma", "beta"))

    def job(x: Any) -> Any:
        return flow.layers.batch_normalization(
            x, axis, epsilon=EPSILON, gamma_initializer=gamma, beta_initializer=beta, name=name
        )

    def plain(x: Tensor, w: dict[str, Tensor]) -> Tensor:
        dims = [dim for dim in range(4) if dim != axis]
        mean, variance = (
            (x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True))
            if "train" in w
            else (0.0, torch.ones(()))
        )
        shaped = [
            w[f"{name}-{part}"].reshape([-1 if dim == axis else 1 for dim in range(4)]) for part in ("gamma", "beta")
        ]
        return (x - mean) / (variance + EPSILON).sqrt() * shaped[0] + shaped[1]

    return job, plain


def layer_norm(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    first = 1 + drawn.choice(3)
    return lambda x: flow.nn.layer_norm(x, begin_norm_axis=first, epsilon=EPSILON), lambda x, w: F.layer_norm(
        x, shape[first:], eps=EPSILON
    )


def group_norm(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    groups = [n for n in range(1, shape[1] + 1) if shape[1] % n == 0][drawn.choice(2)]

    def plain(x: Tensor, w: dict[str, Tensor]) -> Tensor:
        rows = x.reshape(shape[0], groups, -1)
        variance = rows.var(-1, correction=0, keepdim=True)
        return ((rows - rows.mean(-1, keepdim=True)) / (variance + EPSILON).sqrt()).reshape(shape)

    return lambda x: flow.nn.GroupNorm(x, groups, eps=EPSILON, affine=False, name=name), plain


def conv(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    size = 1 + 2 * drawn.choice(2)
    given = drawn.weight(name, (shape[1], shape[1], size, size))

    def job(x: Any) -> Any:
        return flow.nn.conv2d(x, flow.get_variable(name, given.array.shape, initializer=given), 1, "SAME")

    return job, lambda x, w: F.conv2d(x, w[name], padding=size // 2)


def pool(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    if drawn.choice(2):
        return lambda x: flow.nn.max_pool2d(x, 3, 1, "SAME"), lambda x, w: F.max_pool2d(x, 3, 1, 1)
    return lambda x: flow.nn.avg_pool2d(x, 3, 1, "SAME"), lambda x, w: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def gather(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    axis = drawn.choice(4)
    places = [drawn.choice(shape[axis]) for _ in range(shape[axis])]

    def job(x: Any) -> Any:
        indices = flow.concat([flow.constant(place, flow.int32, (1,)) for place in places], axis=0)
        return flow.gather(x, indices, axis=axis)

    return job, lambda x, w: x.index_select(axis, torch.tensor(places))


def concat(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    axis = drawn.choice(4)
    cut = 1 + drawn.choice(shape[axis] - 1)

    def part(x: Any, first: int, size: int) -> Any:
        return flow.slice(
            x,
            [first if dim == axis else 0 for dim in range(4)],
            [size if dim == axis else n for dim, n in enumerate(shape)],
        )

    def job(x: Any) -> Any:
        return flow.concat([part(x, cut, shape[axis] - cut), flow.math.sigmoid(part(x, 0, cut))], axis=axis)

    return job, lambda x, w: torch.cat([x.narrow(axis, cut, shape[axis] - cut), x.narrow(axis, 0, cut).sigmoid()], axis)


def reduce(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    axis = drawn.choice(4)
    return lambda x: x - flow.math.reduce_mean(x, axis, keepdims=True), lambda x, w: x - x.mean(axis, keepdim=True)


def elementwise(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    return [
        (lambda x: flow.nn.relu(x) + x * 0.5, lambda x, w: x.relu() + x * 0.5),
        (lambda x: flow.nn.elu(x, 1.0), lambda x, w: F.elu(x)),
        (lambda x: flow.nn.hardtanh(x, -1.0, 2.0), lambda x, w: F.hardtanh(x, -1.0, 2.0)),
        (lambda x: flow.nn.hardswish(x), lambda x, w: F.hardswish(x)),
        (lambda x: flow.math.softplus(x), lambda x, w: F.softplus(x)),
        (lambda x: flow.math.log_sigmoid(x), lambda x, w: F.logsigmoid(x)),
        (lambda x: flow.math.gelu(x), lambda x, w: F.gelu(x)),
    ][drawn.choice(7)]


def scaled(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    given = drawn.weight(name, shape)
    return lambda x: x * flow.get_variable(name, shape, initializer=given) + x, lambda x, w: x * w[name] + x


def dense(drawn: Drawn, shape: tuple[int, ...], name: str) -> Step:
    given = drawn.weight(name, (shape[3], shape[3]))
    return lambda x: flow.matmul(
        x, flow.get_variable(name, given.array.shape, initializer=given)
    ), lambda x, w: x @ w[name]


MAKERS = [
    transpose,
    reshape,
    softmax,
    batch_norm,
    layer_norm,
    group_norm,
    conv,
    pool,
    gather,
    concat,
    reduce,
    elementwise,
    scaled,
    dense,
]


def chain(drawn: Drawn) -> list[Step]:
    """The ops of a case; every other one is a transpose or a reshape, or it would be few."""
    shape, steps = SHAPE, []
    for number in range(OPS):
        make = MAKERS[drawn.choice(2) if number % 2 else drawn.choice(len(MAKERS))]
        steps.append(make(drawn, shape, f"v{number}"))
        shape = tuple(steps[-1][1](torch.zeros(shape), {**zeroed(drawn.weights)}).shape)
    return steps


def zeroed(weights: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.zeros(array.shape) for name, array in weights.items()}


def in_torch(steps: list[Step], x: np.ndarray, weights: dict[str, Tensor]) -> Tensor:
    value = torch.from_numpy(x).double()
    for _, plain in steps:
        value = plain(value, weights)
    return value.reshape(value.shape[0], -1)


def in_job(steps: list[Step], x: Any) -> Any:
    for op, _ in steps:
        x = op(x)
    return flow.reshape(x, (x.shape[0], -1))


def inputs(seed: int) -> np.ndarray:
    return np.random.default_rng(1000 + seed).normal(size=SHAPE).astype(np.float32)


@pytest.mark.parametrize("seed", range(24))
def test_a_predict_job_gives_what_torch_does(seed: int) -> None:
    drawn = Drawn(seed)
    steps = chain(drawn)

    @flow.global_function("predict")
    def job(x=flow.FixedTensorDef(SHAPE)):
        return in_job(steps, x)

    weights = {name: torch.from_numpy(array).double() for name, array in drawn.weights.items()}
    expected = in_torch(steps, inputs(seed), weights).numpy()
    np.testing.assert_allclose(job(inputs(seed)).get().numpy(), expected, 1e-3, 1e-4 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("seed", range(24, 80))
def test_a_train_job_computes_and_learns_as_torch_does(seed: int) -> None:
    drawn = Drawn(seed)
    first = drawn.weight("first", SHAPE)
    steps = chain(drawn)

    @flow.global_function("train")
    def job(x=flow.FixedTensorDef(SHAPE)):
        y = in_job(steps, x * flow.get_variable("first", SHAPE, initializer=first) + x)
        uneven = flow.reshape(
            flow.range(0, y.shape[0] * y.shape[1], dtype=flow.float32) * (1.0 / (y.shape[0] * y.shape[1])) + 0.5,
            y.shape,
        )
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0.0).minimize(
            flow.math.reduce_sum(y * uneven)
        )
        return y

    weights = {name: torch.from_numpy(array).double().requires_grad_() for name, array in drawn.weights.items()}
    x = inputs(seed)
    value = torch.from_numpy(x).double() * weights["first"] + torch.from_numpy(x)
    for _, plain in steps:
        value = plain(value, {**weights, "train": torch.ones(())})
    expected = value.reshape(value.shape[0], -1)
    count = expected.numel()
    (expected * (torch.arange(count).double() / count + 0.5).reshape(expected.shape)).sum().backward()
    got = job(x).get().numpy()
    np.testing.assert_allclose(
        got, expected.detach().numpy(), 1e-3, 1e-4 * max(1.0, float(expected.detach().abs().max()))
    )
    after = {name: variable.numpy() for name, variable in flow.get_all_variables().items()}
    for name, array in drawn.weights.items():
        gradient = weights[name].grad.numpy()
        np.testing.assert_allclose(
            array - after[name], gradient, 2e-3, 1e-3 * max(1.0, np.abs(gradient).max()), err_msg=name
        )
