"""``flow.utils.global_view``: whole structures of tensors made global or local, and a mode in which new tensors are
global."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from oneflow.engine.core.tree import tree_map
from oneflow.engine.global_tensor import mode as modes
from oneflow.engine.global_tensor.methods import as_function
from oneflow.engine.global_tensor.placement import placement as Placement

__all__ = ["current_global_mode", "global_mode", "to_global", "to_local"]

_to_global, _to_local = as_function("to_global"), as_function("to_local")  # torch's stubs do not know these methods


def to_global(
    input: Any, placement: Any = None, sbp: Any = None, warn_on_non_tensor_leaf: bool = True, **kwargs: Any
) -> Any:
    """A tensor, or all tensors in nested lists, tuples and dicts (a state dict), made global.

    ``sbp`` may be a function that gives the SBP of a tensor. Whatever is no tensor stays, with a warning unless told
    not to.
    """

    def made(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            layout = sbp(leaf) if callable(sbp) and not _is_layout(sbp) else sbp
            return _to_global(leaf, placement=placement, sbp=layout, **kwargs)
        return _kept(leaf, "to_global", warn_on_non_tensor_leaf)

    return tree_map(made, input)


def to_local(input: Any, *, copy: bool = False) -> Any:
    """A global tensor, or all of them in nested lists, tuples and dicts, as this rank's parts. What is no tensor stays,
    with a warning."""

    def made(leaf: Any) -> Any:
        return _to_local(leaf, copy=copy) if isinstance(leaf, torch.Tensor) else _kept(leaf, "to_local", True)

    return tree_map(made, input)


def _is_layout(value: Any) -> bool:
    from oneflow.engine.global_tensor.sbp import sbp

    return isinstance(value, sbp)


def _kept(leaf: Any, what: str, warn: bool) -> Any:
    if warn:
        warnings.warn(
            f"flow.utils.global_view.{what}: {type(leaf).__name__} is no tensor and stays as it is", stacklevel=4
        )
    return leaf


class global_mode:
    """``with global_mode(True, placement=p, sbp=s):`` new tensors are global there.

    ``global_mode(False)`` inside it makes them local again. Within it global tensors have a ``device`` too, so that
    code for local tensors runs. Also a decorator.
    """

    def __init__(self, enabled: bool, placement: Any = None, sbp: Any = None) -> None:
        self.is_enabled, self.placement, self.sbp = bool(enabled), placement, sbp
        self._entered: list[Callable[[], None]] = []
        if self.is_enabled:
            modes.require(modes.Mode(placement, sbp))

    def __enter__(self) -> global_mode:
        from oneflow.engine.global_tensor.factories import entered

        self._entered.append(entered(modes.Mode(self.placement, self.sbp) if self.is_enabled else None))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop()()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with global_mode(self.is_enabled, self.placement, self.sbp):
                return function(*args, **kwargs)

        return within


class _Current:
    """The mode that holds at present: ``is_enabled``, and the ``placement`` and ``sbp`` of new tensors."""

    def __init__(self) -> None:
        mode = modes.current_mode()
        self.is_enabled = mode is not None
        self.placement: Placement | None = mode.place if mode is not None else None
        self.sbp = mode.sbp if mode is not None else None


def current_global_mode() -> _Current:
    """The mode that holds here."""
    return _Current()
