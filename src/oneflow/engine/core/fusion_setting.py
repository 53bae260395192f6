"""The fusion setting of a step: whether it uses the package's own C kernels."""

from __future__ import annotations

import os
import warnings
from functools import cache

from oneflow.engine.core.errors import ArgumentError, nearest

VARIABLE = "ONEFLOW_FUSION"
SETTINGS = ("off", "native")
REMOVED = ("wait", "later")
DEFAULT = "native"


def fusion_setting(setting: str | None = None) -> str:
    """Returns "off" (torch's ops only) or "native" (the package's C extensions). A job or graph may pass its own
    ``setting``; otherwise ``ONEFLOW_FUSION`` decides."""
    if setting is not None:
        return checked_setting("fusion", setting)
    return checked_setting(VARIABLE, os.environ.get(VARIABLE, DEFAULT))


def checked_setting(name: str, value: object) -> str:
    """Validates a value of the option ``name``. "on" is the default; removed values warn and are the default too."""
    if value == "on":
        return DEFAULT
    if isinstance(value, str) and value in REMOVED:
        _warn_removed(name, value)
        return DEFAULT
    if not isinstance(value, str) or value not in SETTINGS:
        raise ArgumentError(
            f"{name} is one of {', '.join(map(repr, SETTINGS))}, got {value!r}.{nearest(str(value), SETTINGS)}"
        )
    return value


@cache
def _warn_removed(name: str, value: str) -> None:
    """Warns once per process and option: the environment is read again for every step."""
    warnings.warn(f"{name} {value!r} no longer exists; {DEFAULT!r} is used instead", stacklevel=4)


def uses_native_kernels(setting: str | None = None) -> bool:
    """Returns whether a step with this setting uses the package's C extensions."""
    return fusion_setting(setting) != "off"
