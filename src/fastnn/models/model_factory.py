"""Networks by name: ``models_map``, to which a program may add its own, and ``get_model_fn``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fastnn.errors import FlagError
from flowvision.models import slim
from oneflow.engine.core.errors import nearest

EndPoints = Mapping[str, Any]


def _slim(name: str) -> Callable[..., nn.Module]:
    return functools.partial(slim.create_model, name)


models_map: dict[str, Callable[..., nn.Module]] = {name: _slim(name) for name in slim.list_models()}
"""Name -> ``f(num_classes=..., is_training=...)`` that gives a module: a function or a class. slim's modules take
(batch, channels, height, width); one of your own takes pictures as preprocessing gives them, (batch, height, width,
channels), and gives logits, or logits and a dictionary of end points. It, or its module, has ``default_image_size``."""

arg_scopes_map: dict[str, Callable[..., Mapping[str, Any]]] = {}
"""Name -> ``f(weight_decay=...)`` that gives further arguments of the model's function; for a model that takes none it
is left out."""


class NetworkFn:
    """A network as a function of NHWC pictures: ``logits, end_points = network_fn(images)``. ``module`` has its
    parameters."""

    def __init__(self, name: str, module: nn.Module, weight_decay: float, is_nhwc: bool, image_size: int) -> None:
        self.name, self.module = name, module
        self.weight_decay = weight_decay
        self.default_image_size = image_size
        self._is_nhwc = is_nhwc

    def __call__(self, images: Tensor) -> tuple[Tensor, EndPoints]:
        """The permuted batch is a view: its memory is what torch calls channels-last."""
        outputs = self.module(images if self._is_nhwc else images.permute(0, 3, 1, 2))
        return outputs if isinstance(outputs, tuple) else (outputs, {})

    def regularization_loss(self) -> Tensor | None:
        """The L2 of the variables that the network regularises: slim's own choice, or of a module that does not say,
        all of two dims and more."""
        if not self.weight_decay:
            return None
        own: Callable[[float], Tensor] | None = getattr(self.module, "regularization_loss", None)
        if own is not None:
            return own(self.weight_decay)
        squares = [p.square().sum() for p in self.module.parameters() if p.ndim > 1]
        return torch.stack(squares).sum() * (self.weight_decay / 2) if squares else None

    def variables(self) -> dict[str, Tensor]:
        """The trainable variables by name: slim's names for slim's networks."""
        return (
            {slim_name(name): p for name, p in self.module.named_parameters()}
            if self.is_slim
            else dict(self.module.named_parameters())
        )

    @property
    def is_slim(self) -> bool:
        """Whether this is one of slim's networks, whose variables slim's checkpoints have."""
        return isinstance(self.module, slim.SlimNetwork)

    @property
    def slim_module(self) -> slim.SlimNetwork:
        """The module of one of slim's networks."""
        assert isinstance(self.module, slim.SlimNetwork)
        return self.module


def slim_name(name: str) -> str:
    """A parameter's name as slim writes it."""
    return name.replace(".", "/")


def get_model_fn(
    name: str,
    num_classes: int | None,
    weight_decay: float = 0.0,
    is_training: bool = False,
    image_size: int | None = None,
    **options: Any,
) -> NetworkFn:
    """The network ``name`` with variables drawn anew. Without classes (None or 0) it gives the features before the
    classifier. ``image_size`` is the side of the pictures where it is not the network's own; ``options`` go to the
    model's function."""
    if name not in models_map:
        raise FlagError(
            f"--model_name={name}: there is no such network.{nearest(name, models_map)} Add it to models_map; there "
            f"are {', '.join(models_map)}"
        )
    function = models_map[name]
    scope = dict(arg_scopes_map[name](weight_decay=weight_decay)) if name in arg_scopes_map else {}
    if name in slim.list_models() and image_size is not None:
        scope["image_size"] = image_size
    module = function(num_classes=num_classes, is_training=is_training, **scope, **options)
    if not isinstance(module, nn.Module):
        raise FlagError(
            f"models_map[{name!r}] gives a torch.nn.Module when it is called with num_classes= and is_training=, got "
            f"{type(module).__name__}"
        )
    size = image_size or getattr(module, "default_image_size", None) or getattr(function, "default_image_size", None)
    if not isinstance(size, int):
        raise FlagError(
            f"the network {name!r} does not say the size of its pictures; give its function or its module "
            f"default_image_size"
        )
    return NetworkFn(name, module, weight_decay, not isinstance(module, slim.SlimNetwork), size)
