"""The global tensor: a logical tensor of which each rank of a placement holds a part.

What torch sees is a tensor of the logical shape without memory. Below autograd every op comes to
``__torch_dispatch__``, which hands it to the function that ``dispatch`` has bound; so views, gradients, modules and
optimizers of torch work on it as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core.tracebacks import trim
from oneflow.engine.global_tensor.spec import Spec


@dataclass
class Source:
    """Where a tensor that should be a view comes from, if it had to be copied: output ``place`` of ``op`` on ``base``
    and other arguments, as of version ``seen`` of the memory that both would share."""

    base: GlobalTensor
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int | None
    seen: int | None


class GlobalTensor(torch.Tensor):
    """A logical tensor. ``_part`` is what this rank holds of it, None outside its placement; ``_spec`` says how it
    lies."""

    _part: torch.Tensor | None
    _spec: Spec
    _source: Source | None
    run: Callable[..., Any]

    @staticmethod
    def __new__(cls, part: torch.Tensor | None, spec: Spec) -> GlobalTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, spec.shape, strides=spec.stride, dtype=spec.dtype, device=spec.shown
        )
        made._part = part
        made._spec = spec
        made._source = None
        return made

    def __init__(self, part: torch.Tensor | None, spec: Spec) -> None:
        pass

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        try:
            return cls.run(func, args, kwargs)
        except Exception as error:
            trim(error)
            raise


def is_global(tensor: torch.Tensor) -> bool:
    """Whether a tensor is global."""
    return isinstance(tensor, GlobalTensor)
