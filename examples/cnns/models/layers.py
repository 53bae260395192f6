"""What the networks are built of: convolutions, batch normalisations and pools in one layout, with one set of numbers a
network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import oneflow as flow


@dataclass(frozen=True)
class Options:
    """What every network is told. A fused layer is one op to the reader; its variables carry the names of the fused
    layer."""

    num_classes: int = 1000
    data_format: str = "NCHW"
    fuse_bn_relu: bool = False
    fuse_bn_add_relu: bool = False


@dataclass(frozen=True)
class Layers:
    """The layers of one network. ``l2`` of all variables is the published rate of that network, 0 where it has none."""

    options: Options
    l2: float = 0.0
    bn_momentum: float = 0.9
    bn_epsilon: float = 1e-5

    @property
    def channel_axis(self) -> int:
        return 1 if self.options.data_format == "NCHW" else 3

    @property
    def regularizer(self) -> Any:
        return flow.regularizers.l2(self.l2) if self.l2 else None

    def conv(
        self,
        x: Any,
        name: str,
        filters: int,
        kernel: int | tuple[int, ...],
        strides: int = 1,
        padding: Any = "SAME",
        **more: Any,
    ) -> Any:
        """A convolution without bias, drawn by He's rule, unless ``more`` says otherwise."""
        given: dict[str, Any] = {
            "use_bias": False,
            "kernel_initializer": self._he(),
            "kernel_regularizer": self.regularizer,
        } | more
        return flow.layers.conv2d(x, filters, kernel, strides, padding, self.options.data_format, name=name, **given)

    def bn(self, x: Any, name: str, **more: Any) -> Any:
        return flow.layers.batch_normalization(x, name=f"{name}_bn", **self._bn_numbers(), **more)

    def bn_relu(self, x: Any, name: str, **more: Any) -> Any:
        if self.options.fuse_bn_relu:
            return flow.layers.batch_normalization_relu(x, name=f"{name}_bn_relu", **self._bn_numbers(), **more)
        return flow.nn.relu(self.bn(x, name, **more), name=f"{name}_relu")

    def bn_add_relu(self, x: Any, addend: Any, name: str, **more: Any) -> Any:
        if self.options.fuse_bn_add_relu:
            return flow.layers.batch_normalization_add_relu(
                x, addend, name=f"{name}_bn_add_relu", **self._bn_numbers(), **more
            )
        return flow.nn.relu(
            flow.math.add_n([self.bn(x, name, **more), addend], name=f"{name}_add"), name=f"{name}_relu"
        )

    def max_pool(self, x: Any, size: int, strides: int, padding: str, name: str) -> Any:
        return flow.nn.max_pool2d(x, size, strides, padding, self.options.data_format, name=name)

    def avg_pool(self, x: Any, size: int | tuple[int, ...], strides: int, padding: str, name: str) -> Any:
        return flow.nn.avg_pool2d(x, size, strides, padding, self.options.data_format, name=name)

    def mean_pixel(self, x: Any, name: str) -> Any:
        """(N, channels): the mean over all that is left of the picture, 7 x 7 of one of 224 x 224."""
        height_and_width = x.shape[2:] if self.channel_axis == 1 else x.shape[1:3]
        return self.flat(self.avg_pool(x, height_and_width, 1, "VALID", name))

    def flat(self, x: Any) -> Any:
        return flow.reshape(x, (x.shape[0], -1))

    def concat(self, branches: Sequence[Any], name: str) -> Any:
        return flow.concat(branches, axis=self.channel_axis, name=name)

    def dense(self, x: Any, name: str, units: int, **more: Any) -> Any:
        """A dense layer with bias, drawn by He's rule, unless ``more`` says otherwise."""
        given: dict[str, Any] = {
            "kernel_initializer": flow.variance_scaling_initializer(2.0, "fan_in", "random_normal"),
            "bias_initializer": flow.zeros_initializer(),
            "kernel_regularizer": self.regularizer,
            "bias_regularizer": self.regularizer,
        }
        return flow.layers.dense(x, units, name=name, **(given | more))

    def _he(self) -> Any:
        return flow.variance_scaling_initializer(2.0, "fan_in", "random_normal", self.options.data_format)

    def _bn_numbers(self) -> dict[str, Any]:
        return {
            "axis": self.channel_axis,
            "momentum": self.bn_momentum,
            "epsilon": self.bn_epsilon,
            "gamma_regularizer": self.regularizer,
            "beta_regularizer": self.regularizer,
        }
