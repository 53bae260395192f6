"""Parts of a job on devices of their own: whatever goes where, it computes what one device does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from nets import begin, variables

import oneflow as flow
import oneflow.typing as tp

On = Callable[..., AbstractContextManager]
"""The scope of a placement, given its devices; on one device no scope at all."""


def weight(name: str, *shape: int, **more: Any) -> Any:
    return flow.get_variable(name, shape, initializer=flow.random_normal_initializer(0.0, 0.3), **more)


def sgd(**more: Any) -> Any:
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.9, **more)


X = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def skips(on: On, x: Any) -> Any:
    """What the first stage makes is read by the second and the third."""
    with on("0:0"):
        first = flow.math.tanh(flow.matmul(x, weight("a", 8, 8)))
    with on("0:1"):
        second = flow.math.tanh(flow.matmul(first, weight("b", 8, 8)))
    with on("0:2"):
        return flow.matmul(first + second, weight("c", 8, 3))


def tied(on: On, x: Any) -> Any:
    """One weight in two stages."""
    with on("0:0"):
        h = flow.math.tanh(flow.matmul(x, weight("shared", 8, 8)))
    with on("0:1"):
        h = flow.math.tanh(flow.matmul(h, weight("own", 8, 8)))
        return flow.matmul(h, flow.get_variable("shared"), transpose_b=True)


def to_and_fro(on: On, x: Any) -> Any:
    """No pipeline: back to where it began."""
    with on("0:0"):
        h = flow.math.tanh(flow.matmul(x, weight("a", 8, 8)))
    with on("0:1"):
        h = flow.math.tanh(flow.matmul(h, weight("b", 8, 8)))
    with on("0:0"):
        return flow.matmul(h, weight("c", 8, 3))


def elsewhere(on: On, x: Any) -> Any:
    """Variables made under one placement and used under another."""
    with on("0:1-2"):
        a, b = weight("a", 8, 8), weight("b", 8, 3)
    with on("0:0"):
        h = flow.math.tanh(flow.matmul(x, a))
    with on("0:0-1"):
        return flow.matmul(h, b)


def overlapping(on: On, x: Any) -> Any:
    """Placements that share some of their devices, whose weights are split."""
    with on("0:0-1"):
        h = flow.math.tanh(flow.matmul(x, weight("a", 8, 8, distribute=flow.distribute.split(1))))
    with on("0:1-3"):
        h = flow.math.tanh(flow.matmul(h, weight("b", 8, 8, distribute=flow.distribute.split(0))))
    with on(["0:3", "0:0"]):
        return flow.matmul(h, weight("c", 8, 3))


def descending(on: On, x: Any) -> Any:
    """Devices in another order than that of their numbers, parts of uneven sizes."""
    with on(["0:2", "0:0", "0:1"]):
        h = flow.math.tanh(flow.matmul(x, weight("a", 8, 7, distribute=flow.distribute.split(1))))
        h = h.with_distribute(flow.distribute.split(0)).with_distribute(flow.distribute.split(1))
        return flow.matmul(h, weight("b", 7, 4, distribute=flow.distribute.split(0)))


def partly(on: On, x: Any) -> Any:
    """Some devices have no part in the job."""
    with on("0:1-2"):
        return flow.matmul(flow.math.tanh(flow.matmul(x, weight("a", 8, 8))), weight("b", 8, 3))


def branches(on: On, x: Any) -> Any:
    """Two ways that do not depend on each other."""
    with on("0:0"):
        left = flow.math.tanh(flow.matmul(x, weight("a", 8, 8)))
    with on("0:1"):
        right = flow.math.sigmoid(flow.matmul(x, weight("b", 8, 8)))
    with on("0:2-3"):
        return flow.matmul(flow.concat([left, right], 1), weight("c", 16, 3))


def axes(on: On, x: Any) -> Any:
    """From two axes to one and back."""
    with on("0:0-3", (2, 2)):
        x = flow.hierarchical_parallel_cast(x, ["S(0)", "B"])
        h = flow.math.tanh(flow.matmul(x, weight("a", 8, 8, parallel_distribution=["B", "S(1)"])))
    with on("0:0-3"):
        h = flow.math.tanh(flow.matmul(h, weight("b", 8, 8)))
    with on("0:0-3", (2, 2)):
        return flow.matmul(h, weight("c", 8, 3, parallel_distribution=["S(1)", "S(0)"]))


PROGRAMS = [skips, tied, to_and_fro, elsewhere, overlapping, descending, partly, branches, axes]
CLIP = flow.optimizer.grad_clipping.by_global_norm(0.5)
DYNAMIC = flow.optimizer.loss_scale.dynamic_loss_scale(1024.0, 2)
WAYS = {
    "plain": (1, lambda: sgd()),
    "clipped": (1, lambda: sgd(grad_clipping=CLIP)),
    "micro-batches": (3, lambda: sgd()),
    "dynamic scale": (2, lambda: sgd(loss_scale_policy=DYNAMIC, grad_clipping=CLIP)),
}


def train(program: Callable[[On, Any], Any], devices: int) -> dict[str, Any]:
    """The program trained in every way, each a job with variables of its own: losses, and all variables at the end."""
    begin(devices)
    on: On = (lambda *where: nullcontext()) if devices == 1 else (lambda *where: flow.scope.placement("cpu", *where))
    jobs = {way: _job(program, on, way) for way in WAYS}
    losses = {
        way: np.stack([job(np.concatenate([X] * WAYS[way][0]) * (step + 1) / 3) for step in range(3)])
        for way, job in jobs.items()
    }
    return {**losses, **variables()}


def _job(program: Callable[[On, Any], Any], on: On, way: str) -> Any:
    micro_batches, optimizer = WAYS[way]
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(micro_batches)
    definition = flow.FixedTensorDef((6, 8))

    def body(x=definition) -> tp.Numpy:  # type: ignore[no-untyped-def]
        with flow.scope.namespace(way):
            loss = program(on, x)
        optimizer().minimize(loss)
        return loss

    body.__name__ = f"job_{list(WAYS).index(way)}"
    return flow.global_function("train", config)(body)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_any_placement_computes_what_one_device_does(program: Callable[[On, Any], Any]) -> None:
    got, expected = train(program, 4), train(program, 1)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, 1e-5, 1e-5, err_msg=name)
