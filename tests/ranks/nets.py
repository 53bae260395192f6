"""Small networks that run on any layout, and what a run of one gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import oneflow as flow
import oneflow.typing as tp

BATCH = 8


@dataclass(frozen=True)
class Spread:
    """How a network lies over devices: nothing but this differs between two runs.

    ``weights`` is how weights lie on every axis of the placement, such as ("S(0)",). ``stages`` are the placements of
    the parts of the network. ``hierarchy`` gives the devices axes; ``shares_states`` shares optimizer state out.
    """

    devices: int = 1
    weights: tuple[str, ...] | None = None
    stages: tuple[str, ...] = ()
    hierarchy: tuple[int, ...] | None = None
    shares_states: bool = False
    micro_batches: int = 1
    batch: int = BATCH

    @contextmanager
    def stage(self, number: int) -> Iterator[None]:
        """The ops inside belong to part ``number`` of the network."""
        if self.stages:
            scope: Any = flow.scope.placement("cpu", self.stages[number * len(self.stages) // 2])
        elif self.hierarchy:
            scope = flow.scope.placement("cpu", f"0:0-{self.devices - 1}", self.hierarchy)
        else:
            scope = nullcontext()
        with scope:
            yield

    def variable(self, name: str, shape: tuple[int, ...], scale: float = 0.1) -> Any:
        """A weight, split where that is asked for and it has rows enough."""
        lies = self.weights if self.weights is not None and shape[0] >= self.devices else None
        initializer = flow.random_normal_initializer(0.0, scale) if scale else flow.zeros_initializer()
        if lies is not None and lies[0] == "auto":
            return flow.get_variable(name, shape, initializer=initializer, distribute=flow.distribute.auto())
        return flow.get_variable(name, shape, initializer=initializer, parallel_distribution=lies)

    def config(self) -> Any:
        config = flow.function_config()
        if self.shares_states:
            config.optimizer_placement_optimization_mode("distributed_split")
            config.optimizer_placement_optimization_threshold(16)
        if self.micro_batches > 1:
            config.train.num_gradient_accumulation_steps(self.micro_batches)
        return config


ONE = Spread()
LAYOUTS = {
    "dp2": Spread(2),
    "dp4": Spread(4),
    "tp2": Spread(2, ("S(0)",)),
    "dp x tp": Spread(4, ("B", "S(0)"), hierarchy=(2, 2)),
    "zero": Spread(2, shares_states=True),
    "pp2": Spread(2, stages=("0:0", "0:1")),
}


def dense(how: Spread, x: Any, units: int, name: str) -> Any:
    weight = how.variable(f"{name}-weight", (units, x.shape[1]))
    bias = how.variable(f"{name}-bias", (units,), 0.0)
    return flow.nn.bias_add(flow.matmul(x, weight, transpose_b=True), bias, "NCHW")


def conv(how: Spread, x: Any, filters: int, size: int, name: str) -> Any:
    weight = how.variable(f"{name}-weight", (filters, x.shape[1], size, size))
    bias = how.variable(f"{name}-bias", (filters,), 0.0)
    return flow.nn.bias_add(flow.nn.conv2d(x, weight, 1, "SAME", "NCHW"), bias, "NCHW")


def lenet(how: Spread, x: Any) -> Any:
    with how.stage(0):
        h = flow.nn.max_pool2d(flow.nn.relu(conv(how, x, 6, 5, "conv1")), 2, 2, "SAME", "NCHW")
        h = flow.nn.max_pool2d(flow.nn.relu(conv(how, h, 10, 5, "conv2")), 2, 2, "SAME", "NCHW")
    with how.stage(1):
        h = flow.reshape(h, (h.shape[0], -1))
        return dense(how, flow.nn.relu(dense(how, h, 30, "dense1")), 10, "dense2")


def mlp(how: Spread, x: Any) -> Any:
    with how.stage(0):
        h = flow.math.tanh(dense(how, flow.reshape(x, (x.shape[0], -1)), 24, "first"))
    with how.stage(1):
        h = flow.nn.gelu(dense(how, h, 17, "second"))
        return dense(how, h, 10, "third")


def batch_normed(how: Spread, x: Any) -> Any:
    with how.stage(0):
        h = conv(how, x, 6, 3, "conv1")
        h = flow.nn.relu(flow.layers.batch_normalization(h, axis=1, momentum=0.9, name="norm1"))
    with how.stage(1):
        h = flow.nn.relu(
            flow.layers.batch_normalization(conv(how, h, 6, 3, "conv2"), axis=1, momentum=0.9, name="norm2")
        )
        h = flow.nn.avg_pool2d(h, 2, 2, "SAME", "NCHW")
        return dense(how, flow.reshape(h, (h.shape[0], -1)), 10, "dense")


def dropped_out(how: Spread, x: Any) -> Any:
    with how.stage(0):
        h = flow.nn.dropout(flow.nn.relu(dense(how, flow.reshape(x, (x.shape[0], -1)), 32, "first")), 0.5)
    with how.stage(1):
        h = flow.nn.dropout(flow.nn.relu(dense(how, h, 20, "second")), 0.3)
        return dense(how, h, 10, "third")


NETS = {"lenet": lenet, "mlp": mlp, "batch norm": batch_normed, "dropout": dropped_out}
Net = Callable[[Spread, Any], Any]


def data(batch: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(step)
    return random.normal(size=(batch, 1, 12, 12)).astype(np.float32), random.integers(0, 10, batch).astype(np.int32)


def sgd() -> Any:
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.05]), momentum=0.9)


@dataclass(frozen=True)
class Run:
    """The losses of every step, and every variable at the end."""

    losses: np.ndarray
    variables: dict[str, np.ndarray]


def define(net: Net, how: Spread, optimizer: Callable[[], Any] = sgd) -> Any:
    """The train job of a network in the session at hand, which is to have the layout's devices."""

    images, labels = flow.FixedTensorDef((how.batch, 1, 12, 12)), flow.FixedTensorDef((how.batch,), flow.int32)

    @flow.global_function("train", how.config())
    def train(x=images, y=labels) -> tp.Numpy:  # type: ignore[no-untyped-def]
        logits = net(how, x)
        with how.stage(1):
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            optimizer().minimize(loss)
        return loss

    return train


def begin(devices: int) -> None:
    """A session of its own with so many devices."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)


def variables() -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in flow.get_all_variables().items()}


def run(net: Net, how: Spread, steps: int, optimizer: Callable[[], Any] = sgd) -> Run:
    """A run from the start, in a session of its own. The first batches come again and again, so that there is something
    to learn."""
    begin(how.devices)
    job = define(net, how, optimizer)
    losses = np.stack([job(*data(how.batch * how.micro_batches, step % 3)) for step in range(steps)])
    return Run(losses, variables())


@lru_cache(maxsize=None)
def on_one_device(
    net: Net, steps: int, micro_batches: int = 1, batch: int = BATCH, optimizer: Callable[[], Any] = sgd
) -> Run:
    """The run that all others must equal."""
    return run(net, Spread(micro_batches=micro_batches, batch=batch), steps, optimizer)


def assert_equal(got: Run, expected: Run, tolerance: float = 1e-5) -> None:
    """Within ``tolerance``; 0 asks for the same bits."""
    np.testing.assert_allclose(got.losses, expected.losses, tolerance, tolerance, err_msg="losses")
    assert got.variables.keys() == expected.variables.keys()
    for name, value in expected.variables.items():
        np.testing.assert_allclose(got.variables[name], value, tolerance, tolerance, err_msg=name)
