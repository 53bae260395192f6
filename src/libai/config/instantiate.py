"""Building what a lazy config describes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from libai.config.errors import ConfigError, ConfigTypeError, InstantiationError
from libai.config.names import locate, name_of, told
from libai.config.tree import OBJECTS, as_tree, plain
from oneflow.engine.core.errors import nearest

TARGET = "_target_"
RECURSIVE = "_recursive_"
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def dump_dataclass(obj: Any) -> dict[str, Any]:
    """A dataclass instance as the nested dictionary with ``_target_`` that builds it again."""
    if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
        raise ConfigTypeError(f"dump_dataclass takes an instance of a dataclass, got {obj!r}")
    found: dict[str, Any] = {TARGET: name_of(type(obj)) or type(obj).__qualname__}
    for field in dataclasses.fields(obj):
        value = getattr(obj, field.name)
        found[field.name] = (
            dump_dataclass(value)
            if _is_dataclass(value)
            else [_dumped(v) for v in value]
            if isinstance(value, (list, tuple))
            else value
        )
    return found


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _dumped(value: Any) -> Any:
    return dump_dataclass(value) if _is_dataclass(value) else value


def instantiate(cfg: Any, **kwargs: Any) -> Any:
    """Builds what ``cfg`` describes: calls its ``_target_`` with the other keys, built first, as arguments.

    ``kwargs`` are merged over the keys of ``cfg``, which stays as it is. ``_recursive_=False`` hands the arguments over
    unbuilt. A config without ``_target_``, and any value that is no config, is returned as it is; of a list every item
    is built.
    """
    recursive = kwargs.pop(RECURSIVE, None)
    if isinstance(cfg, Mapping) and TARGET in cfg:
        return _called(cfg, kwargs, recursive)
    if isinstance(cfg, Mapping) and kwargs:
        return OmegaConf.merge(as_tree(cfg), as_tree(kwargs))
    if isinstance(cfg, ListConfig):
        return ListConfig([instantiate(item) for item in cfg], flags=OBJECTS)
    if type(cfg) in (list, tuple):
        return type(cfg)(instantiate(item) for item in cfg)
    return cfg


def instantiate_cfg(cfg: Any, recursive: bool = True) -> Any:
    """:func:`instantiate` without changes; ``recursive=False`` hands the arguments over unbuilt."""
    return instantiate(cfg, **{RECURSIVE: recursive})


def _called(cfg: Mapping[str, Any], changes: dict[str, Any], recursive: bool | None) -> Any:
    merged = {str(key): _merged(cfg[key], changes[key]) if key in changes else cfg[key] for key in cfg}
    merged.update({key: value for key, value in changes.items() if key not in merged})
    own = merged.pop(RECURSIVE, True)
    builds = own if recursive is None else recursive
    key = _key_of(cfg)
    target = _target(merged.pop(TARGET), key)
    arguments = {name: _built(value) for name, value in merged.items()} if builds else merged
    try:
        return target(**arguments)
    except ConfigError:
        raise
    except Exception as error:
        raise InstantiationError(
            f"Error in call to target {told(target)!r}{key}: {type(error).__name__}: {error}{_hint(target, error)}"
        ) from error


def _built(value: Any) -> Any:
    """An argument as its target gets it: lists are Python's own, as classes that check what they get expect them."""
    built = instantiate(value)
    return list(built) if isinstance(built, ListConfig) else built


def _merged(old: Any, new: Any) -> Any:
    """Dictionaries are merged key by key; anything else is replaced, and never copied: it may be a model."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and TARGET not in new:
        return as_tree(
            {
                **{key: _merged(old[key], new[key]) if key in new else plain(old[key]) for key in old},
                **{key: new[key] for key in new if key not in old},
            }
        )
    return new


def _target(target: Any, key: str) -> Any:
    if isinstance(target, str):
        target = locate(target)
    elif isinstance(target, Mapping):
        target = instantiate(target)
    if not callable(target):
        raise InstantiationError(f"Expected a callable target{key}, got {target!r} of {type(target).__name__}")
    return target


def _key_of(cfg: Any) -> str:
    key = cfg._get_full_key(None) if isinstance(cfg, DictConfig) else ""
    return f" of {key!r}" if key else ""


def _hint(target: Any, error: Exception) -> str:
    """The parameter that was perhaps meant, where the target does not take one of its arguments."""
    unexpected = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
    if unexpected is None:
        return ""
    try:
        known = list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return ""
    if unexpected[1] == "cfg":
        return ". A config is given to a class whose __init__ is decorated with @configurable; others take keyword arguments"
    return f". It takes {', '.join(known)}.{nearest(unexpected[1], known)}"
