"""Lazy configs: what is to be built, as a tree that can be read, changed, saved and only then built."""

from libai.config.arguments import default_argument_parser
from libai.config.config import configurable, get_config, try_get_key
from libai.config.instantiate import instantiate
from libai.config.lazy import LazyCall, LazyConfig

__all__ = [
    "LazyCall",
    "LazyConfig",
    "configurable",
    "default_argument_parser",
    "get_config",
    "instantiate",
    "try_get_key",
]
