"""The placement of global tensors as users write it: a device type and an array of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.sharding.mesh import Mesh
from oneflow.engine.world import current_world

_TYPES = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "npu": "npu", "xpu": "xpu", "mlu": "mlu"}


class placement:
    """``flow.placement(type, ranks)``: a device type and the ranks, in order, that a tensor lies on. The shape of
    ``ranks`` gives the axes.

    Whether the ranks exist is asked where a tensor is laid there, not here.
    """

    __slots__ = ("_mesh", "_type")
    _mesh: Mesh
    _type: str

    def __init__(self, type: str, ranks: Any) -> None:
        if type not in _TYPES:
            raise GlobalTensorError(f"a placement's type is one of {', '.join(_TYPES)}, got {type!r}")
        self._type = _TYPES[type]
        self._mesh = _mesh(ranks)

    @staticmethod
    def of(type: str, mesh: Mesh) -> placement:
        """The placement of a mesh."""
        return placement(type, np.array(mesh.ranks).reshape(mesh.axes))

    @staticmethod
    def all(type: str) -> placement:
        """All ranks of the world, on one axis."""
        world = current_world()
        made = placement(type, range(world.size))
        if not world.is_planned:
            require_device(made.type)
        return made

    @property
    def type(self) -> str:
        return self._type

    @property
    def device_type(self) -> str:
        return self._type

    @property
    def ranks(self) -> np.ndarray:
        """The ranks, as an array of one dim per axis."""
        return np.array(self._mesh.ranks, dtype=np.int64).reshape(self._mesh.axes)

    @property
    def hierarchy(self) -> tuple[int, ...]:
        """The extent of each axis."""
        return self._mesh.axes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, placement) and (self._type, self._mesh) == (other._type, other._mesh)

    def __hash__(self) -> int:
        return hash((self._type, self._mesh))

    def __reduce__(self) -> tuple[Any, ...]:
        return placement, (self._type, self.ranks.tolist())

    def __repr__(self) -> str:
        return f'oneflow.placement(type="{self._type}", ranks={self.ranks.tolist()})'


def _mesh(ranks: Any) -> Mesh:
    if isinstance(ranks, Mapping):
        raise GlobalTensorError(
            "a placement takes an array of ranks, such as [0, 1] or [[0, 1], [2, 3]]; the form with a dict is gone"
        )
    array = np.array(list(ranks) if isinstance(ranks, range) else ranks)
    if array.dtype.kind not in "iu" or array.ndim == 0 or array.size == 0:
        raise GlobalTensorError(
            f"a placement's ranks are whole numbers in a list, such as [0, 1] or [[0, 1], [2, 3]]; got {ranks!r}"
        )
    flat = tuple(int(rank) for rank in array.ravel())
    if len(set(flat)) != len(flat) or min(flat) < 0:
        raise GlobalTensorError(f"a placement names each rank once, from 0 up; got {array.tolist()}")
    return _interned(flat, tuple(array.shape))


@lru_cache(maxsize=None)
def _interned(ranks: tuple[int, ...], axes: tuple[int, ...]) -> Mesh:
    return Mesh(ranks, axes)


def device_of(type: str, rank_on_host: int) -> torch.device:
    """The device that a rank's parts of tensors lie on."""
    return torch.device("cpu") if type == "cpu" else torch.device(type, rank_on_host)


def require_device(type: str) -> None:
    """Refuses a placement on devices that this machine has not."""
    if type != "cpu" and not (hasattr(torch, type) and getattr(torch, type).is_available()):
        raise GlobalTensorError(f'Can\'t construct placement with "{type}" type because there is no device!')
