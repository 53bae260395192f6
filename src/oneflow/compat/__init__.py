"""Switches for programs written against older defaults."""

from __future__ import annotations

from oneflow.engine.core.errors import ArgumentError

__all__ = ["Compat", "compat"]


class Compat:
    """Read while a job is traced, so set it before the first call of the job."""

    __slots__ = ("_pool_default",)

    def __init__(self) -> None:
        self._pool_default = "NCHW"

    @property
    def pool_default(self) -> str:
        """The data_format of pools that are not given one: "NCHW", or "NHWC" as it was until the end of July 2020."""
        return self._pool_default

    @pool_default.setter
    def pool_default(self, data_format: str) -> None:
        if data_format not in ("NCHW", "NHWC"):
            raise ArgumentError(f"compat.pool_default is 'NCHW' or 'NHWC', got {data_format!r}")
        self._pool_default = data_format


compat = Compat()
