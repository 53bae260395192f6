"""Which kernels a step has for ops that only move memory: the tier of its fusion, from what its job or graph says or
from the environment."""

from __future__ import annotations

import os
import shutil
import warnings

from oneflow.engine.core.errors import ArgumentError, nearest

VARIABLE = "ONEFLOW_FUSION"
TIERS = ("off", "native", "wait", "later")
COMPILING = ("wait", "later")
DEFAULT = "native"


def fusion_tier(said: str | None = None) -> str:
    """The tier of a step: "off" for the very ops of torch; "native" for the kernels that were compiled when the package
    was installed; "wait" and "later" also for kernels of clusters, compiled before the first step or beside the steps.
    What the step itself says goes before ``ONEFLOW_FUSION``, whose "on" is the default."""
    if said is not None:
        return checked_tier("fusion", said)
    return checked_tier(VARIABLE, os.environ.get(VARIABLE, DEFAULT))


def checked_tier(name: str, value: object) -> str:
    """A tier that was given under this name; "on" stands for the default."""
    if value == "on":
        return DEFAULT
    if not isinstance(value, str) or value not in TIERS:
        raise ArgumentError(
            f"{name} is one of {', '.join(map(repr, TIERS))}, got {value!r}.{nearest(str(value), TIERS)}"
        )
    return value


def tier_here(said: str | None = None) -> str:
    """The tier of a step on this machine: without a C++ compiler no kernels of clusters, of which it tells."""
    tier = fusion_tier(said)
    if tier in COMPILING and compiler() is None:
        warnings.warn(
            f"fusion {tier!r} needs a C++ compiler, and {wanted_compiler()!r} is not on the PATH: steps run with "
            f"{DEFAULT!r} fusion",
            stacklevel=2,
        )
        return DEFAULT
    return tier


def wanted_compiler() -> str:
    """The C++ compiler that kernels of clusters are compiled by."""
    return os.environ.get("CXX") or "g++"


def compiler() -> str | None:
    """Its path; None where there is none."""
    return shutil.which(wanted_compiler())


def uses_native_kernels(said: str | None = None) -> bool:
    """Whether a step that says so of itself takes the kernels of the package's own C extensions."""
    return fusion_tier(said) != "off"
