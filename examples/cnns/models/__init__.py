"""The networks by the name that ``--model`` takes. Each is a function of pictures and ``Options`` that gives logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .alexnet import alexnet
from .inception import inceptionv3
from .layers import Options
from .mobilenet import mobilenetv2
from .resnet import resnet50, resnext50
from .vgg import vgg16

__all__ = ["MODELS", "Model", "Options"]


@dataclass(frozen=True)
class Model:
    """A network and the width and height of the smallest pictures that it can take."""

    logits: Callable[[Any, Options], Any]
    smallest: int


MODELS = {
    "resnet50": Model(resnet50, 32),
    "resnext50": Model(resnext50, 32),
    "vgg": Model(vgg16, 32),
    "alexnet": Model(alexnet, 67),
    "inceptionv3": Model(inceptionv3, 75),
    "mobilenetv2": Model(mobilenetv2, 32),
}
