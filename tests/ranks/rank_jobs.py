"""What tests of jobs on several devices are written with."""

from __future__ import annotations

from typing import Any

import oneflow as flow


def weight(name: str, *shape: int, **more: Any) -> Any:
    return flow.get_variable(name, shape, initializer=flow.random_normal_initializer(0.0, 0.5), **more)


def rate(value: float) -> Any:
    return flow.optimizer.PiecewiseConstantScheduler([], [value])
