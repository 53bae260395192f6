"""``@configurable``, and where packaged configs are found."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from libai.config.errors import ConfigError, ConfigFileError, ConfigTypeError
from libai.config.lazy import LazyConfig
from oneflow.engine.core.errors import nearest

CONFIGS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs")


def configurable(init_func: Callable[..., Any] | None = None, *, from_config: Callable[..., Any] | None = None) -> Any:
    """Lets a class or a function be called with a config in place of its arguments.

    ``@configurable`` stands on ``__init__``. Called with a config, as first argument or as ``cfg=``, the class's
    ``from_config(cfg, ...)`` says what the arguments are; a class without one takes the config's items as its
    arguments. Arguments that ``from_config`` does not take go to ``__init__`` and win. Called without a config, nothing
    changes. On a function: ``@configurable(from_config=lambda cfg: {...})``.
    """
    if init_func is not None:
        if not inspect.isfunction(init_func) or from_config is not None or init_func.__name__ != "__init__":
            raise ConfigError(
                "@configurable stands on __init__; a function is decorated with @configurable(from_config=...)"
            )
        return _configurable_init(init_func)
    if from_config is None:
        raise ConfigError(
            "@configurable(from_config=...) takes a function from a config to arguments; on __init__ write "
            "@configurable"
        )
    if not inspect.isfunction(from_config):
        raise ConfigTypeError(f"from_config is a function, got {type(from_config).__name__}")
    _require_cfg_first(from_config)
    return functools.partial(_configurable_function, from_config=from_config)


def _configurable_init(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        if not _has_config(args, kwargs):
            init(self, *args, **kwargs)
            return
        translate = getattr(type(self), "from_config", None)
        if translate is None:
            init(self, **_items(args, kwargs))
            return
        if not inspect.ismethod(translate):
            raise ConfigTypeError(f"from_config of {type(self).__name__} must be a classmethod: from_config(cls, cfg)")
        _require_cfg_first(translate)
        init(self, **_arguments(translate, args, kwargs))

    return wrapped


def _configurable_function(function: Callable[..., Any], from_config: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return (
            function(**_arguments(from_config, args, kwargs))
            if _has_config(args, kwargs)
            else function(*args, **kwargs)
        )

    vars(wrapped)["from_config"] = from_config
    return wrapped


def _require_cfg_first(translate: Callable[..., Any]) -> None:
    names = list(inspect.signature(translate).parameters)
    if not names or names[0] != "cfg":
        raise ConfigTypeError(
            f"the first argument of from_config must be named 'cfg', got {names[0] if names else 'none'!r}"
        )


def _has_config(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether it is called with a config. A plain dictionary is one as well, where it is named ``cfg``."""
    return isinstance(kwargs.get("cfg"), Mapping) or (bool(args) and isinstance(args[0], DictConfig))


def _items(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a class that has no ``from_config``."""
    rest = {name: value for name, value in kwargs.items() if name != "cfg"}
    if len(args) > (0 if "cfg" in kwargs else 1):
        raise ConfigTypeError("beside a config, arguments are given by name")
    return {**{str(key): value for key, value in (kwargs["cfg"] if "cfg" in kwargs else args[0]).items()}, **rest}


def _arguments(translate: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(translate).parameters.values()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return dict(translate(*args, **kwargs))
    names = {parameter.name for parameter in parameters}
    taken = {name: value for name, value in kwargs.items() if name in names}
    return {**translate(*args, **taken), **{name: value for name, value in kwargs.items() if name not in names}}


def try_get_key(cfg: Any, *keys: str, default: Any = None) -> Any:
    """The value of the first dotted key that ``cfg`` has, also if it is None; ``default`` where it has none of them."""
    for key in keys:
        node: Any = cfg
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                break
            node = node[part]
        else:
            return node
    return default


def get_config(config_path: str) -> DictConfig:
    """A config that comes with the package, such as ``get_config("common/train.py").train``."""
    path = os.path.join(CONFIGS, config_path)
    if not os.path.isfile(path):
        known = sorted(
            os.path.relpath(os.path.join(folder, name), CONFIGS)
            for folder, _, names in os.walk(CONFIGS)
            for name in names
            if name.endswith(".py")
        )
        raise NoConfigError(
            f"{config_path} not available in LiBai configs! There are {', '.join(known)}.{nearest(config_path, known)}"
        )
    return LazyConfig.load(path)


class NoConfigError(ConfigFileError, RuntimeError):
    """A packaged config that there is not."""
