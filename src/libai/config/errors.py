"""What can be wrong with a config. Each error names the key, and the file where one is known."""

from __future__ import annotations

from hydra.errors import InstantiationException

from oneflow.engine.core.errors import OneFlowError


class ConfigError(OneFlowError, ValueError, AssertionError):
    """A config whose keys, types or sizes do not fit."""

    is_located = False


class ConfigKeyError(ConfigError, KeyError):
    """A key that is not there, or has no keys below it."""

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigTypeError(ConfigError, TypeError):
    """Something that is not of the kind that is expected there."""


class ConfigFileError(ConfigError, ImportError):
    """A config file that cannot be read, or that asks for one that is not there."""


class InstantiationError(ConfigError, InstantiationException):
    """A target that is not there, or failed when it was called."""
