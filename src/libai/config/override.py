"""Overrides of the command line: ``train.train_iter=10``, in hydra's grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from libai.config.errors import ConfigError, ConfigKeyError
from libai.config.tree import as_tree
from oneflow.engine.core.errors import UnsupportedError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


def parsed(overrides: Sequence[str]) -> list[Override]:
    """The overrides, each with a key and one value. Refuses deletions, and sweeps over several values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    parser, found = OverridesParser.create(), []
    for text in overrides:
        if text.startswith("--"):
            raise ConfigError(f"{text!r} stands among the overrides; flags come before them")
        try:
            override = parser.parse_overrides([text])[0]
        except OverrideParseException as error:
            reason = error.message.splitlines()[0].removesuffix(".")
            raise OverrideParseException(
                text, f"override {text!r}: {reason}. Write key=value, and quotes around values with blanks"
            ) from None
        if override.is_delete():
            raise UnsupportedError(f"override {text!r}: deletion is not yet a supported override; set the key to null")
        if override.is_sweep_override():
            raise ConfigError(f"override {text!r} gives several values; a list is written in brackets, as in key=[1,2]")
        found.append(override)
    return found


def apply_override(cfg: DictConfig, override: Override) -> None:
    """Sets one key; dictionaries are merged into those that are there, keys that are missing are made."""
    *path, last = override.key_or_group.split(".")
    node: Any = cfg
    for depth, part in enumerate(path):
        node = _below(node, part, ".".join(path[:depth]), override.input_line)
    value = override.value()
    _require_container(node, ".".join(path), override.input_line)
    key: Any = _index(node, last, override.input_line) if isinstance(node, ListConfig) else last
    there = node[key] if isinstance(node, ListConfig) or key in node else None
    if isinstance(value, dict) and isinstance(there, DictConfig):
        node[key] = OmegaConf.merge(there, value)
    else:
        node[key] = as_tree(value)


def _below(node: Any, part: str, path: str, text: str | None) -> Any:
    _require_container(node, path, text)
    if isinstance(node, ListConfig):
        return node[_index(node, part, text)]
    if part not in node or node[part] is None:
        node[part] = {}
    return node[part]


def _require_container(node: Any, path: str, text: str | None) -> None:
    if not isinstance(node, (DictConfig, ListConfig)):
        raise ConfigKeyError(
            f"override {text!r}: Trying to update key below {path!r}, which is not a config but {node!r}"
        )


def _index(node: ListConfig, part: str, text: str | None) -> int:
    if not part.removeprefix("-").isdigit() or not -len(node) <= int(part) < len(node):
        raise ConfigKeyError(
            f"override {text!r}: {part!r} is no element of a list of {len(node)}; its elements are 0 to {len(node) - 1}"
        )
    return int(part)
