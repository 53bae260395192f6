"""A slim network as a module.

A network is written once, as a function that names its layers while it calls them (``lenet.py`` and its neighbours). It
runs a first time on a picture without data, which makes the modules, each where its scope says; every call after that
finds them there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.models.slim.layers import BatchNorm, Conv, Dense, Layer, Norm, SeparableConv, Style
from flowvision.models.slim.padding import Pair, pair
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError, nearest

EndPoints = dict[str, Tensor]
Body = Callable[..., tuple[Tensor, EndPoints]]


@dataclass(frozen=True)
class Description:
    """A network's row: ``body(layers, x, num_classes, **options)``, and slim's own numbers."""

    body: Body
    image_size: int
    weight_decay: float
    style: Style
    options: Mapping[str, Any] = field(default_factory=dict)  # where this name differs from the defaults of ``body``


class Layers:
    """One run of a network's body: finds the layers by scope, or makes them on the first run."""

    def __init__(self, root: nn.Module, style: Style, is_building: bool) -> None:
        self._root, self._is_building = root, is_building
        self._scopes: list[str] = []
        self.style = style
        self.rate = 1  # of convolutions that do not say theirs: the distance between a filter's pixels
        self.end_points: EndPoints = {}

    @property
    def is_training(self) -> bool:
        return self._root.training

    @contextmanager
    def scope(self, *names: str) -> Iterator[None]:
        self._scopes += names
        yield
        del self._scopes[-len(names) :]

    def path(self, *names: str) -> str:
        return "/".join([*self._scopes, *names])

    def note(self, name: str, x: Tensor) -> Tensor:
        """Makes ``x`` an end point."""
        self.end_points[name] = x
        return x

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel: int | Pair,
        scope: str,
        stride: int = 1,
        style: Style | None = None,
        rate: int | None = None,
        has_biases: bool = True,
    ) -> Tensor:
        style = style or self.style
        return self._layer(
            scope, lambda: Conv(x.shape[1], channels, pair(kernel), pair(stride), rate or self.rate, has_biases, style)
        )(x)

    def separable_conv(
        self,
        x: Tensor,
        channels: int | None,
        kernel: int,
        scope: str,
        stride: int = 1,
        multiplier: int = 1,
        style: Style | None = None,
        has_biases: bool = True,
    ) -> Tensor:
        style = style or self.style
        return self._layer(
            scope,
            lambda: SeparableConv(x.shape[1], channels, pair(kernel), multiplier, pair(stride), has_biases, style),
        )(x)

    def dense(self, x: Tensor, features: int, scope: str, style: Style | None = None) -> Tensor:
        style = style or self.style
        return self._layer(scope, lambda: Dense(x.shape[1], features, style))(x)

    def batch_norm(self, x: Tensor, scope: str, norm: Norm) -> Tensor:
        return self._layer(scope, lambda: BatchNorm(x.shape[1], norm))(x)

    def dropout(self, x: Tensor, keep: float) -> Tensor:
        return F.dropout(x, 1 - keep, self.is_training)

    def global_step(self) -> Tensor:
        """How many training passes there were, this one not counted: a buffer, so that a graph sees it change."""
        if self._is_building:
            self._root.register_buffer("global_step", torch.zeros((), dtype=torch.float64))
        step = self._root.get_buffer("global_step")
        if self.is_training and not self._is_building:
            step, _ = step.clone(), step.add_(1)
        return step

    def _layer(self, scope: str, make: Callable[[], Layer]) -> Layer:
        names = [*self._scopes, *scope.split("/")]
        if self._is_building:
            return _add(self._root, names, make())
        module: Any = self._root
        for name in names:
            module = module._modules[name]
        return module


def _add(module: nn.Module, names: list[str], layer: Layer) -> Layer:
    for name in names[:-1]:
        if name not in module._modules:
            module.add_module(name, nn.Module())
        module = module.get_submodule(name)
    if names[-1] in module._modules:
        raise ArgumentError(f"the network has two layers called {'/'.join(names)}")
    module.add_module(names[-1], layer)
    return layer


class SlimNetwork(nn.Module):
    """A network of slim's: takes pictures (batch, channels, height, width) and returns ``(logits, end_points)``.

    Without classes (``num_classes`` None or 0) the features before the classifier take the place of the logits.
    """

    def __init__(
        self,
        name: str,
        description: Description,
        num_classes: int | None,
        is_training: bool,
        image_size: int,
        in_channels: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self.name, self.num_classes, self.image_size = name, num_classes, image_size
        self.default_image_size, self.default_weight_decay = description.image_size, description.weight_decay
        self._description = description
        self._options = {**description.options, **_checked_options(name, description, options)}
        self.training = is_training
        device = torch.get_default_device()
        with torch.device("meta"):
            self._build(flow.empty(2, in_channels, image_size, image_size))
        self.train(is_training)  # the layers too
        if device.type != "meta":
            self.to_empty(device=device)
            self.reset_parameters()

    def forward(self, x: Tensor) -> tuple[Tensor, EndPoints]:
        return self._run(x, is_building=False)

    def _build(self, x: Tensor) -> None:
        try:
            self._run(x, is_building=True)
        except RuntimeError as error:
            size = f"{x.shape[2]}x{x.shape[3]}"
            raise ArgumentError(
                f"{self.name} cannot be built for pictures of {size} ({error}); slim's size is "
                f"{self.default_image_size}"
            ) from None

    def _run(self, x: Tensor, is_building: bool) -> tuple[Tensor, EndPoints]:
        layers = Layers(self, self._description.style, is_building)
        return self._description.body(layers, x, self.num_classes, **self._options)

    def reset_parameters(self) -> None:
        """Draws every variable anew, by slim's initializers."""
        for _, layer in self._layers():
            layer.reset_parameters()
        for name, buffer in self.named_buffers(recurse=False):
            if name == "global_step":
                buffer.zero_()

    def regularized_variables(self) -> dict[str, Tensor]:
        """Those that slim's weight decay touches, by slim's names."""
        return {f"{path}/{name}": getattr(layer, name) for path, layer in self._layers() for name in layer.regularized}

    def regularization_loss(self, weight_decay: float | None = None) -> Tensor:
        """slim's L2 terms: ``weight_decay`` times half the sum of squares of every regularised variable; None takes the
        network's own coefficient."""
        decay = self.default_weight_decay if weight_decay is None else weight_decay
        squares = [variable.square().sum() for variable in self.regularized_variables().values()]
        return torch.stack(squares).sum() * (decay / 2)

    def slim_variables(self) -> dict[str, np.ndarray]:
        """Every variable by slim's name as an array in TensorFlow's layout, moving statistics included."""
        return {
            f"{path}/{name}": np.ascontiguousarray(layer.to_slim(name, tensor.detach().cpu().numpy()))
            for path, layer in self._layers()
            for name, tensor in _own_tensors(layer)
        }

    def load_slim_variables(self, mapping: Mapping[str, Any], exclude: tuple[str, ...] = ()) -> None:
        """Takes the value of every variable from ``mapping`` (slim's names, TensorFlow's layout), all or nothing.

        ``exclude`` has the scopes that keep the values they have, as in fine-tuning: ``("InceptionV3/Logits",
        "InceptionV3/AuxLogits")``. Names that the network has not, such as ``global_step`` or an optimizer's, are
        passed over.
        """
        wanted = {
            f"{path}/{name}": (layer, name, tensor)
            for path, layer in self._layers()
            for name, tensor in _own_tensors(layer)
            if not any(f"{path}/{name}".startswith(scope.rstrip("/") + "/") for scope in exclude)
        }
        _require_all(self.name, wanted, mapping)
        values = []
        for full, (layer, name, tensor) in wanted.items():
            array = np.asarray(mapping[full])
            expected = layer.to_slim(name, np.empty(tuple(tensor.shape), np.float32)).shape
            if array.shape != expected:
                raise ArgumentError(
                    f"{self.name} has {full} of shape {list(expected)}; the value to load has "
                    f"{list(array.shape)}{_hint(full)}"
                )
            values.append((tensor, np.array(layer.from_slim(name, array), np.float32)))
        with flow.no_grad():
            for tensor, value in values:
                tensor.copy_(torch.from_numpy(value))

    def set_global_step(self, step: int) -> None:
        """Tells a network with a drop-path schedule how many steps it has been trained; training passes count on from
        there."""
        if "global_step" not in self._buffers:
            raise ArgumentError(f"{self.name} has no schedule that follows the global step")
        self.get_buffer("global_step").fill_(step)

    def _layers(self) -> Iterator[tuple[str, Layer]]:
        for path, module in self.named_modules():
            if isinstance(module, Layer):
                yield path.replace(".", "/"), module

    def extra_repr(self) -> str:
        return f"name={self.name!r}, num_classes={self.num_classes}, image_size={self.image_size}"


def _own_tensors(layer: Layer) -> Iterator[tuple[str, Tensor]]:
    yield from layer.named_parameters(recurse=False)
    yield from layer.named_buffers(recurse=False)


def _require_all(network: str, wanted: Mapping[str, object], mapping: Mapping[str, Any]) -> None:
    missing = [name for name in wanted if name not in mapping]
    if not missing:
        return
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    if len(missing) == len(wanted):
        given = next(iter(mapping), "nothing")
        raise ArgumentError(
            f"none of the {len(wanted)} variables of {network} is there: it has {missing[0]}, and what was given "
            f"begins with {given}"
        )
    raise ArgumentError(
        f"{network} has variables that are missing: {missing[0]}{more}.{nearest(missing[0], mapping)} exclude= names "
        f"scopes that keep their values"
    )


def _hint(name: str) -> str:
    is_head = any(part in name.lower() for part in ("logits", "fc4", "fc8", "/fc/"))
    return "; another number of classes? exclude= keeps a classifier's own values" if is_head else ""


def _checked_options(name: str, description: Description, options: dict[str, Any]) -> dict[str, Any]:
    known = list(inspect.signature(description.body).parameters)[3:]
    for option in options:
        if option not in known:
            raise ArgumentError(
                f"{name} has no option {option!r}.{nearest(option, known)} It has {', '.join(sorted(known))}, "
                f"image_size and in_channels"
            )
    return options
