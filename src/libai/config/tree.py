"""The trees that configs are: OmegaConf's dictionaries and lists, whose leaves may be any object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

OBJECTS = {"allow_objects": True}
_FILE = "_libai_file"  # kept beside the content: a config does not show where it came from


def as_tree(value: Any) -> Any:
    """A dictionary or list as a config; anything else as it is."""
    if isinstance(value, Mapping) and not isinstance(value, DictConfig):
        return DictConfig(dict(value), flags=OBJECTS)
    if isinstance(value, (list, tuple)) and not isinstance(value, ListConfig):
        return ListConfig(list(value), flags=OBJECTS)
    return value


def plain(cfg: Any) -> Any:
    """Dictionaries and lists of the leaves themselves; references to other keys stay references."""
    if isinstance(cfg, (DictConfig, ListConfig)):
        return OmegaConf.to_container(cfg, resolve=False)
    return cfg


def copied(cfg: DictConfig) -> DictConfig:
    """The same tree anew. Leaves are not copied: a config may hold models and data sets."""
    copy = DictConfig(plain(cfg), flags=OBJECTS)
    note_file(copy, file_of(cfg))
    return copy


def note_file(cfg: DictConfig, file: str | None) -> None:
    """Remembers which file a config was read from."""
    cfg.__dict__[_FILE] = file


def file_of(cfg: Any) -> str | None:
    """The file that a config was read from, if it was."""
    return cfg.__dict__.get(_FILE) if isinstance(cfg, DictConfig) else None


def where(cfg: Any) -> str:
    """`` in <file>`` for messages, or nothing."""
    file = file_of(cfg)
    return f" in {file}" if file else ""
