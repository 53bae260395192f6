"""``LazyCall``, a call that is written down and not made, and ``LazyConfig``, files of such calls."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from libai.config.errors import ConfigError, ConfigKeyError, ConfigTypeError
from libai.config.instantiate import TARGET
from libai.config.names import locate, name_of, told
from libai.config.override import apply_override, parsed
from libai.config.python_file import run_file
from libai.config.tree import OBJECTS, as_tree, file_of, note_file, plain
from libai.config.yaml_file import read_yaml, write_yaml
from oneflow.engine.core.errors import nearest

__all__ = ["LazyCall", "LazyConfig", "locate"]


class LazyCall:
    """``LazyCall(Class)(a=1)`` is a config that :func:`libai.config.instantiate` makes ``Class(a=1)`` of; until then it
    may be changed.

    The target is a callable, its dotted name, or a config that describes one. Arguments are given by name; a single
    mapping may be given without, and is then the argument ``cfg``, as classes with ``@configurable`` take it.
    """

    def __init__(self, target: Any) -> None:
        if not callable(target) and not isinstance(target, (str, Mapping)):
            raise ConfigTypeError(
                f"target of LazyCall must be a callable or defines a callable! Got {target!r} of "
                f"{type(target).__name__}"
            )
        self._target = target

    def __call__(self, *args: Any, **kwargs: Any) -> DictConfig:
        if args:
            if len(args) > 1 or not isinstance(args[0], Mapping) or "cfg" in kwargs:
                raise ConfigTypeError(
                    f"LazyCall({told(self._target)}) takes arguments by name, or one mapping; got {len(args)} without "
                    f"names"
                )
            kwargs = {"cfg": args[0], **kwargs}
        return DictConfig(
            {TARGET: _storable(self._target), **{name: plain(value) for name, value in kwargs.items()}}, flags=OBJECTS
        )


class LazyConfig:
    """Config files: read, change, save."""

    @staticmethod
    def load(filename: str, keys: str | Sequence[str] | None = None) -> Any:
        """The config of a ``.py``, ``.yaml`` or ``.yml`` file.

        Without ``keys`` all top-level names of a ``.py`` file that hold dictionaries or configs and do not begin with
        an underscore; with a name its value, with several a tuple of theirs. A ``.py`` file is executed, with relative
        imports by the place of its file; a YAML file executes nothing.
        """
        filename = os.fspath(filename)
        kind = os.path.splitext(filename)[1]
        if kind not in (".py", ".yaml", ".yml"):
            raise ConfigError(f"a config file is a .py, .yaml or .yml file, got {filename!r}")
        found = run_file(filename) if kind == ".py" else read_yaml(filename)
        if isinstance(keys, str):
            return _value(found, keys, filename)
        if keys is not None:
            return tuple(_value(found, key, filename) for key in keys)
        kept = {
            name: value
            for name, value in found.items()
            if isinstance(value, (Mapping, ListConfig)) and not str(name).startswith("_")
        }
        cfg = DictConfig(
            {name: plain(value) for name, value in kept.items()} if kind == ".py" else plain(as_tree(dict(found))),
            flags=OBJECTS,
        )
        note_file(cfg, filename)
        return cfg

    @staticmethod
    def load_rel(filename: str, keys: str | Sequence[str] | None = None) -> Any:
        """:meth:`load` of a path relative to the file of the code that calls."""
        caller = sys._getframe(1).f_code.co_filename
        if not os.path.isfile(caller):
            raise ConfigError(
                f"load_rel({filename!r}) is called from {caller!r}, which is no file; use LazyConfig.load"
            )
        return LazyConfig.load(os.path.join(os.path.dirname(caller), filename), keys)

    @staticmethod
    def save(cfg: Any, filename: str) -> None:
        """Writes ``cfg`` as YAML that :meth:`load` reads again. What YAML cannot hold becomes ``???``, and a warning
        names its keys."""
        write_yaml(cfg, filename)

    @staticmethod
    def apply_overrides(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """Changes ``cfg`` by overrides in hydra's grammar, such as ``train.train_iter=10``, and returns it. Keys that
        are not there are made."""
        for override in parsed(overrides):
            apply_override(cfg, override)
        return cfg

    @staticmethod
    def to_py(cfg: DictConfig, prefix: str = "cfg.") -> str:
        """The config as lines that read like Python, for looking at: references are resolved, keys are sorted."""
        tree = OmegaConf.to_container(as_tree(cfg), resolve=True)
        return "".join(f"{line}\n" for line in _lines(tree, prefix.removesuffix(".")))


def _storable(target: Any) -> Any:
    """OmegaConf takes types of containers, and classes with declared fields, for descriptions of its own: they are kept
    by name."""
    is_type_of_its_own = (
        target in (dict, list, tuple) or dataclasses.is_dataclass(target) or hasattr(target, "__attrs_attrs__")
    )
    return name_of(target) if is_type_of_its_own else plain(target)


def _value(found: Mapping[str, Any], key: str, filename: str) -> Any:
    if key not in found:
        raise ConfigKeyError(f"{filename} has no {key!r}.{nearest(key, [k for k in found if not k.startswith('_')])}")
    value = as_tree(found[key]) if isinstance(found[key], Mapping) else found[key]
    if isinstance(value, DictConfig) and file_of(value) is None:
        note_file(value, filename)
    return value


def _lines(tree: Any, path: str) -> list[str]:
    if isinstance(tree, dict) and TARGET not in tree and tree:
        return [line for key in sorted(tree) for line in _lines(tree[key], f"{path}.{key}")]
    return [f"{path}={_expression(tree)}"]


def _expression(value: Any) -> str:
    if isinstance(value, dict) and TARGET in value:
        arguments = ", ".join(f"{key}={_expression(value[key])}" for key in sorted(value) if key != TARGET)
        return f"{told(value[TARGET])}({arguments})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_expression(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_expression, value))}]"
    return name_of(value) or repr(value)
