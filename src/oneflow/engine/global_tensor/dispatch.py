"""Every op on global tensors: what it does is decided once for each op, layouts, shapes and numbers, and looked up from
then on.

In this order: a handler of its own (``handlers``), the rule of the op, the op in simpler ones, and else the whole
tensors gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from oneflow.engine.global_tensor import constants, errors
from oneflow.engine.global_tensor.choose import functional_of
from oneflow.engine.global_tensor.spec import Spec
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.rules import pointwise

aten = torch.ops.aten
Ready = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""What runs a call whose op, shapes, layouts and numbers are decided on."""

_MOST_DECISIONS = 1 << 15
_NUMBERS = frozenset({int, float, bool})
# Ops that torch calls with Python numbers as tensors without dimensions.
_TAKE_NUMBERS = {
    aten.where.self,
    aten.fill_.Tensor,
    aten.copy_.default,
    aten.index_put_.default,
    aten.masked_fill_.Tensor,
    aten.lerp.Tensor,
}
_TAKE_NUMBERS |= {aten.masked_fill.Tensor, aten.index_put.default, aten.lerp_.Tensor, aten._index_put_impl_.default}


class Decisions:
    """What is decided so far, by op, specs and numbers, and who decides."""

    def __init__(self, decide: Callable[[Any, tuple[Any, ...], dict[str, Any]], Ready]) -> None:
        self.decide = decide
        self.made: dict[tuple[Any, ...], Ready] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        if takes_states(func):  # of many tensors, with rates that change at every step: nothing to look up
            return self.decide(func, args, kwargs or {})(args, kwargs or {})
        key = [func]
        for value in args:
            if type(value) is GlobalTensor:
                key.append(value._spec)
                if value._source is not None:
                    refresh(self, value)
            else:
                self._append(key, func, value)
        if kwargs:
            for name, value in kwargs.items():
                key.append(name)
                self._append(key, func, value)
        else:
            kwargs = {}
        known = tuple(key)
        ready = self.made.get(known)
        if ready is None:
            if len(self.made) > _MOST_DECISIONS:
                self.made.clear()
            self.made[known] = ready = self.decide(func, args, kwargs)
        return ready(args, kwargs)

    def _append(self, key: list[Any], func: Any, value: Any) -> None:
        """What of an argument a decision may depend on."""
        kind = type(value)
        if kind is GlobalTensor:
            key.append(value._spec)
            if value._source is not None:
                refresh(self, value)
        elif kind in _NUMBERS:
            key.append(kind)
            key.append(value == 0 if kind is float and _is_pointwise(func) else value)
        elif kind is list or kind is tuple:
            key.append(len(value))
            for item in value:
                self._append(key, func, item)
        elif isinstance(value, torch.Tensor):
            _require_constant(func, value)
            key.append((value.shape, value.dtype))
        else:
            key.append(value)


def _require_constant(func: Any, value: torch.Tensor) -> None:
    """Raises unless a local tensor is a number that torch wrapped, or a constant of a decomposition or of a backward
    formula."""
    is_number = not value.dim() and func in _TAKE_NUMBERS
    if not (is_number or constants.are_allowed() or torch._C._current_graph_task_id() != -1):
        raise errors.mixed(func, value)


@cache
def _is_pointwise(func: Any) -> bool:
    """Whether an op is elementwise, in place or not: of a number that it takes, only whether it is 0 can matter."""
    return (functional_of(func) or func) in pointwise.RULES.by_op


@cache
def takes_states(func: Any) -> bool:
    """Whether an op is one of those that update many tensors at once; with them come counts of steps and scales, as
    local tensors."""
    return func._schema.name.startswith(("aten::_foreach_", "aten::_fused_", "aten::_amp_"))


def refresh(decisions: Decisions, value: GlobalTensor) -> None:
    """A view that had to be copied is made anew when the memory that it stands for was written."""
    source = value._source
    assert source is not None
    if source.base._source is not None:
        refresh(decisions, source.base)
    version = version_of(source.base)
    if version is not None and version == source.seen:
        return
    made = decisions.run(source.op, (source.base, *source.args), source.kwargs)
    value._part = (made if source.place is None else made[source.place])._part
    source.seen = version


def version_of(value: torch.Tensor) -> int | None:
    """How often the memory was written that a tensor shares with its views; None where torch does not count."""
    return None if value.is_inference() else value._version


def specs_in(values: Any) -> list[Spec]:
    """The specs of the global tensors among arguments."""
    if isinstance(values, (tuple, list)):
        return [spec for value in values for spec in specs_in(value)]
    return [values._spec] if isinstance(values, GlobalTensor) else []


def require_one_placement(func: Any, specs: list[Spec]) -> None:
    first = specs[0]
    if any(spec.layout.mesh != first.layout.mesh or spec.device.type != first.device.type for spec in specs):
        raise errors.apart(func, specs)
