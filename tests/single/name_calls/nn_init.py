"""``oneflow.nn.init``: every function writes once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import oneflow as flow
from oneflow.nn import init

FIRST, LAST = (64, 16, 3, 3), (64, 3, 3, 16)  # one convolution's weight, channels first and last
FAN_IN, FAN_OUT = 16 * 9, 64 * 9


def as_torch(name: str, *args: Any, **kwargs: Any) -> None:
    given = getattr(init, name)(torch.empty(8, 6), *args, generator=torch.Generator().manual_seed(0), **kwargs)
    wanted = getattr(torch.nn.init, name)(
        torch.empty(8, 6), *args, generator=torch.Generator().manual_seed(0), **kwargs
    )
    torch.testing.assert_close(given, wanted)


def spread(name: str, stddev: float, **kwargs: Any) -> None:
    """The same numbers in both layouts, of the standard deviation that the formula says."""
    first = getattr(init, name)(torch.empty(FIRST), generator=torch.Generator().manual_seed(0), **kwargs)
    last = getattr(init, name)(
        torch.empty(LAST), generator=torch.Generator().manual_seed(0), data_format="NHWC", **kwargs
    )
    assert torch.equal(first.flatten(), last.flatten())
    assert float(first.std()) == pytest.approx(stddev, rel=0.02) and abs(float(first.mean())) < 0.05 * stddev
    if "uniform" in name:
        assert float(first.abs().max()) == pytest.approx(math.sqrt(3) * stddev, rel=0.001)


def filled(name: str, value: float, *args: float) -> None:
    assert getattr(init, name)(torch.empty(2, 3), *args).tolist() == [[value] * 3] * 2


def eye() -> None:
    assert init.eye_(torch.empty(2, 2)).tolist() == [[1, 0], [0, 1]]


def orthogonal() -> None:
    made = init.orthogonal_(torch.empty(4, 6), gain=2.0)
    torch.testing.assert_close(made @ made.t(), 4 * torch.eye(4), atol=1e-5, rtol=0)


def gain() -> None:
    assert init.calculate_gain("leaky_relu", 0.5) == pytest.approx(math.sqrt(2 / 1.25))


def tensor() -> None:
    assert init.Tensor is torch.Tensor


def fans() -> None:
    assert [init.calc_fan(FIRST, mode, "NCHW") for mode in ("fan_in", "fan_out", "fan_avg")] == [
        FAN_IN,
        FAN_OUT,
        (FAN_IN + FAN_OUT) / 2,
    ]
    assert init.calc_fan(LAST, "fan_out", "NHWC") == FAN_OUT and init.calc_fan((5, 3), "fan_in", "") == 3
    with pytest.raises(flow.errors.ArgumentError, match="mode is one of 'fan_in', 'fan_out', 'fan_avg'; got 'fan'"):
        init.calc_fan(FIRST, "fan", "NCHW")


def data_formats() -> None:
    assert [init.get_data_format(name) for name in ("NCHW", "NHWC", "NDHWC", "channels_last", "")] == [
        "channels_first", "channels_last", "channels_last", "channels_last", "",
    ]  # fmt: skip
    with pytest.raises(
        flow.errors.ArgumentError, match="data_format begins with 'NC' or has the form 'N...C', got 'HWCN'"
    ):
        init.get_data_format("HWCN")


CALLS: dict[str, Callable[[], None]] = {
    f"oneflow.nn.init.{name}": call
    for name, call in {
        "Tensor": tensor,
        "calc_fan": fans,
        "get_data_format": data_formats,
        "calculate_gain": gain,
        "constant_": partial(filled, "constant_", 2.5, 2.5),
        "ones_": partial(filled, "ones_", 1.0),
        "zeros_": partial(filled, "zeros_", 0.0),
        "eye_": eye,
        "orthogonal_": orthogonal,
        "normal_": partial(as_torch, "normal_", 1.0, 0.5),
        "uniform_": partial(as_torch, "uniform_", -1.0, 0.5),
        "trunc_normal_": partial(as_torch, "trunc_normal_", 0.0, 1.0, -0.5, 0.5),
        "kaiming_normal_": partial(spread, "kaiming_normal_", math.sqrt(2 / FAN_IN)),
        "kaiming_uniform_": partial(
            spread, "kaiming_uniform_", math.sqrt(2 / FAN_OUT), mode="fan_out", nonlinearity="relu"
        ),
        "xavier_normal_": partial(spread, "xavier_normal_", math.sqrt(2 / (FAN_IN + FAN_OUT))),
        "xavier_uniform_": partial(spread, "xavier_uniform_", 3 * math.sqrt(2 / (FAN_IN + FAN_OUT)), gain=3.0),
    }.items()
}
