"""Configs as YAML. Reading executes nothing: names of targets are text, and tags that would make Python objects are
refused."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

import yaml
from omegaconf import MISSING

from libai.config.errors import ConfigError, ConfigFileError
from libai.config.instantiate import TARGET
from libai.config.names import name_of
from libai.config.tree import plain
from libai.utils.whole_file import write_whole

_FLOAT = re.compile(
    r"^[-+]?(?:\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)


class _Loader(yaml.SafeLoader):
    """Plain values alone. Numbers such as ``1e-4`` are numbers, keys stand once, tuples are lists."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        double = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if double is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {double!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
# Resolvers are tried in order; whole numbers come before floats.
_Loader.yaml_implicit_resolvers = {
    first: sorted(found, key=lambda pair: pair[0].endswith(":float"))
    for first, found in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(
    "tag:yaml.org,2002:python/tuple", lambda loader, node: loader.construct_sequence(node, deep=True)
)  # as LiBai has written them


def read_yaml(filename: str) -> dict[str, Any]:
    """The dictionary that a YAML file holds."""
    try:
        with open(filename, encoding="utf-8") as file:
            found = yaml.load(file, _Loader)  # a SafeLoader
    except OSError as error:
        raise ConfigFileError(f"config file {filename!r} cannot be read: {error.strerror}") from None
    except yaml.constructor.ConstructorError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigError(
            f"{filename}:{line}: {error.problem}; a YAML config holds plain values, and executes nothing"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{filename} is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{filename} holds {type(found).__name__}; a config is a dictionary")
    return found


def write_yaml(cfg: Any, filename: str) -> None:
    """Writes a config beside and renames it. Keys whose values YAML cannot hold are named in a warning, and become
    ``???``."""
    lost: list[str] = []
    tree = _storable(plain(cfg), "", lost)
    if lost:
        logging.getLogger(__name__).warning(
            "config file %s: %s cannot be written as text; the file has %s there. Give classes and functions that can "
            "be imported by name",
            filename, ", ".join(lost), MISSING,
        )  # fmt: skip
    text = yaml.safe_dump(tree, default_flow_style=None, allow_unicode=True, width=9999, sort_keys=False)
    write_whole(filename, text)


def _storable(value: Any, key: str, lost: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _storable(inner, f"{key}.{name}" if key else str(name), lost) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(inner, f"{key}.{number}", lost) for number, inner in enumerate(value)]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    name = name_of(value) if key.rpartition(".")[2] == TARGET else None
    if name is None:
        lost.append(key)
        return MISSING
    return name
