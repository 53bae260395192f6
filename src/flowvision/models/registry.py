"""The zoo's table: every network registers itself by name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import oneflow.nn as nn
from flowvision.models.pretrained import found_in_cache, load_weights
from flowvision.models.refused import REFUSED
from oneflow.engine.core.errors import OneFlowError, nearest

Create = Callable[..., nn.Module]
C = TypeVar("C", bound=Create)
Filter = str | Sequence[str]


class UnknownModelError(OneFlowError, RuntimeError):
    """A network that the zoo has not."""


_MODELS: dict[str, Create] = {}


def register_model(create: C) -> C:
    """Registers a function that makes a network, under the function's name."""
    if create.__name__ in _MODELS:
        raise UnknownModelError(f"a network {create.__name__!r} is registered already")
    _MODELS[create.__name__] = create
    return create


def variant(
    name: str, network: Callable[..., nn.Module], with_weights: Any = MappingProxyType({}), **config: Any
) -> Create:
    """Registers a network's variant: a function of ``pretrained``, ``progress`` and the network's own arguments.

    ``with_weights`` maps arguments to what published weights want of them, unless the caller says otherwise.
    """

    def create(pretrained: bool | str = False, progress: bool = True, **options: Any) -> nn.Module:
        model = network(**{**config, **(with_weights if pretrained else {}), **options})
        if pretrained:
            load_weights(model, name, pretrained, progress)
        return model

    create.__name__ = create.__qualname__ = name
    create.__module__ = network.__module__
    create.__doc__ = f"``{name}``. ``pretrained`` is False, a weight file, a folder with one, or True for the cache folder; other arguments are the network's."
    return register_model(create)


class ModelCreator:
    """Networks by name, as ``ModelCreator.create_model("resnet50")``."""

    @staticmethod
    def create_model(
        model_name: str, pretrained: bool | str = False, checkpoint: str | None = None, **kwargs: Any
    ) -> nn.Module:
        """A network. ``pretrained`` as in the network's own function; ``checkpoint`` is a weight file that is loaded
        after it."""
        if model_name not in _MODELS:
            if model_name in REFUSED:
                raise UnknownModelError(f"{model_name} is not part of this package: {REFUSED[model_name]}")
            raise UnknownModelError(
                f"the zoo has no network {model_name!r}.{nearest(model_name, _MODELS)} ModelCreator.model_list() has "
                f"them all"
            )
        model = _MODELS[model_name](pretrained=pretrained, **kwargs)
        if checkpoint is not None:
            load_weights(model, model_name, checkpoint)
        return model

    @staticmethod
    def model_list(filter: Filter = "", pretrained: bool = False) -> list[str]:
        """Names in order, those that match a shell wildcard or one of several; with ``pretrained`` those whose weights
        lie in the cache folder."""
        patterns = [filter] if isinstance(filter, str) else list(filter)
        names = [
            name
            for name in _MODELS
            if not any(patterns) or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        ]
        return sorted((name for name in names if not pretrained or found_in_cache(name)), key=_natural)

    @staticmethod
    def model_table(filter: Filter = "", pretrained: bool = False) -> str:
        """The same as a table to print: a number, the name, and whether weights lie in the cache folder."""
        rows = [
            (str(number), name, "yes" if found_in_cache(name) else "no")
            for number, name in enumerate(ModelCreator.model_list(filter, pretrained), 1)
        ]
        titles = ("", "network", "weights in the cache")
        widths = [max(len(row[at]) for row in [titles, *rows]) for at in range(3)]
        line = "+".join("-" * (width + 2) for width in widths)
        text = [" | ".join(part.ljust(width) for part, width in zip(row, widths)) for row in [titles, *rows]]
        return "\n".join([f" {text[0]}".rstrip(), line, *(f" {row}".rstrip() for row in text[1:])])


def _natural(name: str) -> list[tuple[int, str]]:
    """resnet50 before resnet101."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
