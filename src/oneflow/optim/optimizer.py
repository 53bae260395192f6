"""The base of the optimizers of ``flow.optim``: torch's, with OneFlow's meaning where the two differ.

An optimizer says by ``update_of`` and ``clipping_of`` what is done with a parameter group. ``step`` and ``clip_grad``
do it at once; a graph puts the same functions into its program.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.fusion_setting import uses_native_kernels
from oneflow.engine.ops.updates import gradients
from oneflow.engine.ops.updates.rows import State, UpdateRow
from oneflow.engine.ops.updates.sweeps import Direction, run_update
from oneflow.optim.options import CLIPPING, COMMON
from oneflow.optimizer.grad_clipping import ClipGradNorm

Group = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]
Kind = tuple[torch.device, torch.dtype]


def _torch_s(name: str) -> Callable[..., Any]:
    """A method of torch's optimizers without the wrapper that hides it from dynamo: the wrapper loads dynamo, which
    takes seconds, at its first call. Nobody compiles these methods."""
    method = getattr(torch.optim.Optimizer, name)
    return getattr(method, "__wrapped__", method)


_add_param_group, _state_dict, _load_state_dict = (
    _torch_s(name) for name in ("add_param_group", "state_dict", "load_state_dict")
)


class Optimizer(torch.optim.Optimizer):
    """``Optimizer(parameters, options)``: parameters, or dictionaries of them with options of their own, and the
    options of all others.

    It is a ``torch.optim.Optimizer``, so hooks, schedulers and state dicts of torch work on it. What differs, as in
    OneFlow:
      ``zero_grad()`` leaves zeros, so that a parameter without a new gradient is still moved by momentum and weight
      decay. ``clip_grad()`` clips each group by ``clip_grad_max_norm`` and ``clip_grad_norm_type`` of its own. Updates
      are counted once for all parameters, in ``step_count``; each group's key ``step`` keeps it in state dicts. The key
      ``lr_scale`` of a group multiplies its rate in graphs, and only there.

    A class of one's own gives ``rows`` and ``update_of``, or overrides ``step`` as with torch.
    """

    rows: tuple[UpdateRow, ...] = ()
    """The updates that ``update_of`` chooses from."""
    checks: Mapping[str, Callable[[str, Any], Any]] = {}
    """What each option of the class must be: a function of its name and value that gives the value, or raises."""

    def __init__(self, parameters: Parameters, options: Mapping[str, Any]) -> None:
        self._layouts: dict[int, tuple[list[Any], list[list[int]]]] = {}
        if not isinstance(options, Mapping):
            raise ArgumentError(f"options is a dictionary such as {{'lr': 0.1}}, got {options!r}")
        super().__init__(_groups(parameters), {name: self._checked(name, value) for name, value in options.items()})

    # ------------------------------------------------------------------------------------------ what is done with a
    # group

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        """The update of the parameters of a group, and its fixed numbers: ``row.compute(params, grads, *states, lr,
        **numbers)``, with ``count=step_count`` where ``row.takes_count`` and ``norms=`` where ``row.takes_norms``."""
        raise UnsupportedError(
            f"{type(self).__name__} does not say what its update is; override step(), or update_of() for graphs as well"
        )

    def clipping_of(self, group: Group) -> ClipGradNorm | None:
        """How the gradients of a group are clipped; None for a group without the two keys."""
        if group.get("clip_grad_max_norm") is None:
            return None
        return ClipGradNorm(group["clip_grad_max_norm"], group["clip_grad_norm_type"])

    @property
    def step_count(self) -> int:
        """The number of updates done."""
        return self.param_groups[0]["step"] if self.param_groups else 0

    @step_count.setter
    def step_count(self, count: int) -> None:
        for group in self.param_groups:
            group["step"] = count

    # ---------------------------------------------------------------------------------------------- the steps of a
    # program

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. ``closure`` computes the loss anew; what it gives is given
        back."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.step_count += 1
        with torch.no_grad():
            for i, group in enumerate(self.param_groups):
                self._update(i, group)
        return loss

    def clip_grad(self, error_if_nonfinite: bool = False) -> None:
        """Scales the gradients of each group by max_norm / (norm + 1e-6) where their norm is above its
        ``clip_grad_max_norm``. Groups without that key are left alone, with a warning. ``error_if_nonfinite`` refuses a
        norm that is infinite or not a number."""
        unclipped = []
        for i, group in enumerate(self.param_groups):
            clipping = self.clipping_of(group)
            if clipping is None:
                unclipped.append(i)
            elif grads := [p.grad for p in group["params"] if p.grad is not None]:
                _clip(i, grads, clipping, error_if_nonfinite)
        if unclipped:
            warnings.warn(
                f"clip_grad() left the parameter groups {unclipped} alone: they have no 'clip_grad_max_norm' and "
                f"'clip_grad_norm_type'",
                stacklevel=2,
            )

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Makes every gradient zero, or None if asked to: then the parameter is left alone until it has a gradient
        again."""
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if set_to_none:
            for p in params:
                p.grad = None
        elif params:
            for p in params:
                if p.grad.grad_fn is not None:  # of a backward pass that may itself be differentiated
                    p.grad.detach_()
            with torch.no_grad():
                gradients.zero_([p.grad for p in params])

    def add_param_group(self, param_group: Group) -> None:
        """One group more: a dictionary with ``params`` and any options that differ from the defaults."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise ArgumentError(f"a parameter group is a dictionary with 'params', got {param_group!r}")
        params = _listed(param_group["params"])
        _require_new(_tensors(params), [p for group in self.param_groups for p in group["params"]])
        group = {**self.defaults, **{name: self._checked(name, value) for name, value in param_group.items()}}
        group |= {"params": params, "step": self.step_count}
        self.check_group(group)
        _add_param_group(self, group)

    def check_group(self, group: Group) -> None:
        """Refuses options that do not go together."""
        if len(given := [key for key in CLIPPING if group.get(key) is not None]) == 1:
            raise ArgumentError(f"a parameter group has both of {list(CLIPPING)} or neither, got {given[0]!r} alone")

    # ---------------------------------------------------------------------------------------------------------------
    # state

    def state_dict(self) -> dict[str, Any]:
        """Everything but the parameters, as torch's optimizers give it."""
        return _state_dict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over a copy of what ``state_dict`` gave; refuses the state of another kind of optimizer."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
            raise ArgumentError(
                f"the state of an optimizer is a dictionary with 'state' and 'param_groups', got {state_dict!r}"
            )
        if self.rows:
            self._require_own(state_dict["state"])
        _load_state_dict(
            self, {**state_dict, "state": copy.deepcopy(state_dict["state"])}
        )  # torch would share the tensors

    def _require_own(self, states: Mapping[Any, Mapping[str, Any]]) -> None:
        known = {state.suffix for row in self.rows for state in row.states}
        if foreign := sorted({name for kept in states.values() for name in kept} - known):
            raise ArgumentError(
                f"this state has {foreign}, and {type(self).__name__} keeps {sorted(known)}; load it into the kind of "
                f"optimizer that saved it"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What is loaded may come from a version that had fewer options."""
        super().__setstate__(state)
        self._layouts = {}
        for group in self.param_groups:
            for name, value in {**self.defaults, "step": 0}.items():
                group.setdefault(name, value)

    # ----------------------------------------------------------------------------------------------------------- one
    # group

    def _checked(self, name: str, value: Any) -> Any:
        check = self.checks.get(name) or COMMON.get(name)
        return value if check is None else check(name, value)

    def _update(self, index: int, group: Group) -> None:
        """One call of the update for each kind of parameter in a group; mostly there is one."""
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        row, numbers = self.update_of(group)
        kept = [self.state[p] for p in params]
        layout = [(p.device, p.dtype, p.stride()) for p in params]
        if index not in self._layouts or self._layouts[index][0] != layout:
            _require_dense(params)
            _lay_out(params, kept)
            self._layouts[index] = (layout, _by_kind(layout))
        if row.takes_count:
            numbers = {**numbers, "count": float(self.step_count)}
        if row.takes_norms:
            numbers = {**numbers, "norms": gradients.local_norms}
        for part in self._layouts[index][1]:
            some = params if len(part) == len(params) else [params[i] for i in part]
            states = [
                _column(some, kept if some is params else [kept[i] for i in part], state, numbers)
                for state in row.states
            ]
            _do(row, [some, [p.grad for p in some], *states], float(group["lr"]), numbers)


def _do(row: UpdateRow, columns: list[list[Any]], lr: float, numbers: dict[str, Any]) -> None:
    """Runs an update: as in a graph, by the C extension where that takes fewer passes over memory."""
    if not row.is_fused_at(numbers.get("weight_decay", 0.0)) and uses_native_kernels():
        params, grads, *states = columns
        swept = [params, gradients.laid_out_as(params, grads), *states]
        if run_update(row.qualified_name, swept, Direction(), lr, numbers):
            return
    row.compute(*columns, lr, **numbers)


def _column(
    params: list[Tensor], kept: list[dict[str, Tensor]], state: State, numbers: Mapping[str, Any]
) -> list[Tensor]:
    """One state of each parameter, made where it is not there yet."""
    name = state.suffix
    try:
        return [states[name] for states in kept]
    except KeyError:
        for p, states in zip(params, kept):
            if name not in states:
                states[name] = first_state(p, state, numbers)
        return [states[name] for states in kept]


def first_state(param: Tensor, state: State, numbers: Mapping[str, Any]) -> Tensor:
    """What a state of a parameter is before the first update."""
    value = 0.0 if state.start is None else numbers[state.start]
    if state.shape is None:
        return torch.full_like(param, value, requires_grad=False)
    return torch.full(state.shape, value, dtype=torch.float32, device=param.device)


def _lay_out(params: list[Tensor], kept: list[dict[str, Tensor]]) -> None:
    """Brings states into the strides of their parameters, by which the fused kernels read them: loaded ones may have
    others."""
    for p, states in zip(params, kept):
        for name, value in states.items():
            if value.shape == p.shape and (
                value.stride() != p.stride() or value.device != p.device or value.dtype != p.dtype
            ):
                states[name] = torch.empty_like(p, requires_grad=False).copy_(value)


def _by_kind(layout: list[Any]) -> list[list[int]]:
    """The places of parameters of one device and dtype each."""
    found: dict[Kind, list[int]] = {}
    for i, (device, dtype, _) in enumerate(layout):
        found.setdefault((device, dtype), []).append(i)
    return list(found.values())


def _clip(index: int, grads: list[Tensor], clipping: ClipGradNorm, error_if_nonfinite: bool) -> None:
    norm = gradients.common_norm(grads, clipping.norm_type)
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise ArgumentError(
            f"the gradients of parameter group {index} have the norm {norm.item()} and cannot be clipped; lower the "
            f"rate or the loss scale, "
            "or leave error_if_nonfinite out"
        )
    gradients.clip_by_norm_(grads, max_norm=clipping.max_norm, norm=norm)


def _groups(parameters: Any) -> list[Any]:
    if isinstance(parameters, (Tensor, str, dict)) or not isinstance(parameters, Iterable):
        raise ArgumentError(
            f"parameters is a list of tensors, or of dictionaries with 'params', got {_told(parameters)}"
        )
    found = list(parameters)
    if not found:
        raise ArgumentError(
            "the optimizer got an empty list of parameters; give model.parameters(), and a generator only once"
        )
    return found


def _listed(params: Any) -> list[Any]:
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, (set, frozenset)):
        raise ArgumentError(
            "params is a list: the order of a set changes from run to run, and states are saved by order"
        )
    if isinstance(params, (str, dict)) or not isinstance(params, Iterable):
        raise ArgumentError(f"params is a list of tensors, got {_told(params)}")
    return list(params)


def _tensors(params: list[Any]) -> list[Tensor]:
    """The tensors among parameters that may come with their names; refuses what cannot be trained."""
    found = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in params]
    for p in found:
        if not isinstance(p, Tensor):
            raise ArgumentError(f"an optimizer changes tensors, got {_told(p)} among its parameters")
        if not p.is_floating_point():
            raise ArgumentError(f"an optimizer changes tensors of floating-point numbers, got one of {p.dtype}")
        if not (p.is_leaf or p.retains_grad):
            raise ArgumentError(
                "an optimizer cannot change a tensor that was computed from others (not a leaf): give the parameters "
                "it was made of"
            )
    return found


def _require_new(params: list[Tensor], there: list[Tensor]) -> None:
    seen = {id(p) for p in there}
    for p in params:
        if id(p) in seen:
            raise ArgumentError(
                f"a parameter of shape {tuple(p.shape)} is given twice; every parameter belongs to one group, once"
            )
        seen.add(id(p))


def _require_dense(params: list[Tensor]) -> None:
    for p in params:
        if p.grad is not None and p.grad.layout != torch.strided:
            raise UnsupportedError(
                f"a parameter of shape {tuple(p.shape)} has a sparse gradient; build its embedding with sparse=False"
            )


def _told(value: Any) -> str:
    return (
        f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__} {value!r}"
    )
