"""Which preprocessing a network has: ``preprocessing_fn_map``, to which a program may add its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastnn.errors import FlagError
from fastnn.preprocessing import cifarnet_preprocessing, inception_preprocessing, lenet_preprocessing, vgg_preprocessing
from oneflow.engine.core.errors import nearest

_INCEPTION = (
    *("inception", "inception_v1", "inception_v2", "inception_v3", "inception_v4", "inception_resnet_v2"),
    *(
        "mobilenet_v1",
        "mobilenet_v1_075",
        "mobilenet_v1_050",
        "mobilenet_v1_025",
        "mobilenet_v2",
        "mobilenet_v2_140",
        "mobilenet_v2_035",
    ),
    *("nasnet_mobile", "nasnet_large", "pnasnet_mobile", "pnasnet_large", "alexnet_v2", "overfeat"),
)
_VGG = (
    *("vgg", "vgg_a", "vgg_16", "vgg_19"),
    *(f"resnet_v{v}_{depth}" for v in (1, 2) for depth in (50, 101, 152, 200)),
)

preprocessing_fn_map: dict[str, Any] = {
    "cifarnet": cifarnet_preprocessing,
    "nasnet_cifar": cifarnet_preprocessing,
    "lenet": lenet_preprocessing,
    **dict.fromkeys(_INCEPTION, inception_preprocessing),
    **dict.fromkeys(_VGG, vgg_preprocessing),
}
"""Name -> a module with ``preprocess_image(image, height, width, is_training, **kw)``, or such a function. One that
takes ``draws``, a function that gives uniform numbers, is repeatable by seed and goes on exactly after a stop."""


def get_preprocessing(name: str, is_training: bool = False, use_grayscale: bool = False) -> Callable[..., Any]:
    """``f(image, height, width, **kw)`` for pictures (height, width, channels), arrays or tensors; it gives float32 of
    the same kind."""
    if name not in preprocessing_fn_map:
        raise FlagError(
            f"preprocessing {name!r} was not recognized.{nearest(name, preprocessing_fn_map)} Add it to "
            f"preprocessing_fn_map"
        )
    found = preprocessing_fn_map[name]
    function = getattr(found, "preprocess_image", found)
    if not callable(function):
        raise FlagError(
            f"preprocessing_fn_map[{name!r}] is a module with preprocess_image(image, height, width, is_training), or "
            f"such a function; got {found!r}"
        )
    if use_grayscale and not takes(function, "use_grayscale"):
        raise FlagError(f"the preprocessing {name!r} does not take use_grayscale=")

    def preprocessing_fn(image: Any, output_height: int, output_width: int, **kwargs: Any) -> Any:
        if use_grayscale:
            kwargs["use_grayscale"] = True
        if isinstance(image, torch.Tensor) and is_own(function):
            made = function(image.numpy(), output_height, output_width, is_training=is_training, **kwargs)
            return torch.from_numpy(np.ascontiguousarray(made))
        return function(image, output_height, output_width, is_training=is_training, **kwargs)

    preprocessing_fn.takes_draws = takes(function, "draws")  # type: ignore[attr-defined]
    return preprocessing_fn


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a function has an argument of this name."""
    return argument in inspect.signature(function).parameters


def is_own(function: Callable[..., Any]) -> bool:
    """Those here work on arrays; what a user writes gets what the data set gives."""
    return function.__module__.startswith("fastnn.preprocessing.")
