"""Decides what an op on global tensors does, from specs alone: every rank comes to the same."""

from __future__ import annotations

import os
import warnings
from functools import cache, partial
from itertools import count
from typing import Any

import torch

from oneflow.engine.core.sbp import BROADCAST
from oneflow.engine.global_tensor.choose import choose, functional_of
from oneflow.engine.global_tensor.dispatch import Decisions, Ready, require_one_placement, specs_in
from oneflow.engine.global_tensor.handlers import HANDLERS, other_handler
from oneflow.engine.global_tensor.runs import (
    ByResult,
    Direct,
    Flat,
    Gathered,
    InPlace,
    InPlaceView,
    InSimplerOps,
    OnParts,
    Outs,
    Slot,
)
from oneflow.engine.global_tensor.spec import Spec, spec_of
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.ops.dense_operands import stride_safe
from oneflow.engine.sharding.call import Call, tensors_in, with_tensors
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.sharding.rules.local import RankLocal
from oneflow.engine.sharding.rules.rule import ANY_STRIDES, Signature, layouts
from oneflow.engine.sharding.rules.table import rule_of
from oneflow.engine.sharding.writes import written
from oneflow.engine.world import join

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

# What torch writes in simpler ops with results of the same shapes and dtypes, all of whose ops have rules.
_IN_SIMPLER_OPS = (
    "embedding embedding_dense_backward nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward "
    "mse_loss "
    "mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy "
    "binary_cross_entropy_backward binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward glu "
    "glu_backward "
    "std.correction std_mean.correction addmv addr trace hardshrink softshrink frac lerp.Tensor square count_nonzero "
    "heaviside "
    "index_fill.int_Scalar index_fill.int_Tensor nansum pixel_shuffle pixel_unshuffle rrelu_with_noise_backward celu"
).split()


def decide(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Ready:
    """What runs this call, and all later ones of the same specs and numbers."""
    handler = HANDLERS.get(func) or other_handler(func, args, kwargs)
    if handler is not None:
        return partial(handler, decisions, func)
    specs = specs_in((*args, *kwargs.values()))
    require_one_placement(func, specs)
    if _is_composite(func):
        return InSimplerOps(decisions, func.decompose, specs[0])
    return _Deciding(decisions, func, args, kwargs, specs).decided()


@cache
def _is_composite(func: Any) -> bool:
    """Whether torch itself writes the op in others for every kind of tensor."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


class _Called(Exception):
    """To know the arguments of a rank's part, something must be computed."""


class _NoCalls:
    """Makes no calls."""

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise _Called


class _Deciding:
    """One call to decide on."""

    def __init__(self, decisions: Decisions, func: Any, args: Args, kwargs: Kwargs, specs: list[Spec]) -> None:
        self.decisions, self.func, self.args, self.kwargs = decisions, func, args, kwargs
        self.like = specs[0]
        self.mesh = self.like.layout.mesh
        self.position = self.mesh.position(join().rank)
        given = tensors_in((*args, *kwargs.values()))
        self.everywhere = [not isinstance(value, GlobalTensor) for value in given]
        whole = (BROADCAST,) * len(self.mesh.axes)
        self.sources = [whole if plain else value._spec.sbp for value, plain in zip(given, self.everywhere)]

    def decided(self) -> Ready:
        functional = functional_of(self.func) if self.func._schema.is_mutable else None
        if functional is not None and torch.Tag.inplace_view in self.func.tags:
            return InPlaceView(self.decisions, self.func, functional)
        if functional is not None and isinstance(self.args[0], GlobalTensor):
            return self._in_place(functional)
        if _depends_on_values(self.func, self.args) or (
            torch.Tag.nondeterministic_seeded in self.func.tags and rule_of(self.func) is None
        ):
            return self._gathered()
        try:
            result = inferred(self.func, self.args, self.kwargs)
        except NotImplementedError:  # torch cannot tell the shape without data
            return self._gathered()
        if not tensors_in(result):
            return self._gathered()
        return self._on_parts(self._call(self.func, result), result)

    def _call(self, func: Any, result: Any) -> Call:
        args, kwargs = with_tensors(
            (self.args, self.kwargs), lambda t: t._spec if isinstance(t, GlobalTensor) else _described(t)
        )
        return Call(func, args, kwargs, result, self.mesh.size)

    def _gathered(self) -> Ready:
        self._tell()
        is_random = torch.Tag.nondeterministic_seeded in self.func.tags
        return Gathered(
            self.func, self.like, tuple(written(self._call(self.func, None))), self.position is not None, is_random
        )

    def _in_place(self, functional: Any) -> Ready:
        """In place if the first argument need not move; a shape that does not fit is an error of torch's own."""
        inferred(self.func, self.args, self.kwargs)
        own = self.sources[0]
        rule = rule_of(functional)
        if rule is not None and rule.localise is None:
            call = self._call(functional, inferred(functional, self.args, self.kwargs))
            chosen = choose(call, self.sources, self.everywhere, self.mesh, own)
            inputs, outputs = layouts(chosen)
            if inputs[0] == outputs[0] == own and all(signature.lower is None for signature in chosen):
                return InPlace(self.func, self._boxes(inputs))
        return ByResult(self.decisions, functional)

    def _on_parts(self, call: Call, result: Any) -> Ready:
        chosen = choose(call, self.sources, self.everywhere, self.mesh)
        inputs, outputs = layouts(chosen)
        boxes = self._boxes(inputs)
        if any(boxes):
            simpler = _simpler(self.func)
            if simpler is not None and all(one.kind == "B" for sbp in inputs for one in sbp):
                return InSimplerOps(self.decisions, simpler, self.like)
            if rule_of(self.func) is None:
                self._tell()
        outs = self._outs(result, outputs)
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in self.func._schema.returns)
        writes = tuple(written(call))
        if (
            self.position is None
            or writes
            or not self._is_flat()
            or any(signature.lower is not None for signature in chosen)
        ):
            return OnParts(self.decisions, call, chosen, boxes, outs, self.position, is_view, writes)
        return self._flat(call, chosen, boxes, outs, is_view)

    def _is_flat(self) -> bool:
        """Whether tensors stand among the arguments themselves, and not in lists or by name."""
        return not any(
            isinstance(value, (list, tuple)) and tensors_in(value) for value in self.args
        ) and not tensors_in(list(self.kwargs.values()))

    def _flat(
        self, call: Call, chosen: tuple[Signature, ...], boxes: tuple[Layout | None, ...], outs: Outs, is_view: bool
    ) -> Ready:
        rule, function = rule_of(self.func), ANY_STRIDES.get(self.func, stride_safe(self.func))
        if rule is None or rule.localise is None:
            if isinstance(outs, Spec) and not any(boxes) and not is_view:
                return Direct(function, outs)
            return Flat(self.decisions, self.func, function, boxes, outs, is_view)
        assert self.position is not None
        calls = _NoCalls()
        places = count()
        slots = with_tensors((self.args, self.kwargs), lambda _: Slot(next(places)))
        try:
            args, kwargs = rule.localise(RankLocal(calls, call, chosen, self.mesh, self.position), call, *slots)
        except _Called:
            return OnParts(self.decisions, call, chosen, boxes, outs, self.position, is_view)
        return Flat(self.decisions, self.func, function, boxes, outs, is_view, args, kwargs)

    def _boxes(self, inputs: list[Any]) -> tuple[Layout | None, ...]:
        return tuple(
            None if plain or source == target else Layout(self.mesh, target)
            for source, target, plain in zip(self.sources, inputs, self.everywhere)
        )

    def _outs(self, result: Any, outputs: list[Any]) -> Outs:
        if isinstance(result, torch.Tensor):
            return self._spec(result, outputs[0])
        return tuple(
            self._spec(made, sbp) if isinstance(made, torch.Tensor) else None for made, sbp in zip(result, outputs)
        )

    def _spec(self, made: torch.Tensor, sbp: Any) -> Spec:
        return spec_of(tuple(made.shape), made.stride(), made.dtype, Layout(self.mesh, sbp), self.like.device)

    def _tell(self) -> None:
        if is_debugging() and any(sbp.kind != "B" for source in self.sources for sbp in source):
            warnings.warn(
                f"{self.func} has no SBP rule: its global tensors are gathered and every rank computes all of it",
                stacklevel=2,
            )


def is_debugging() -> bool:
    """Whether the user asks to be told what costs more than it need."""
    return os.environ.get("ONEFLOW_DEBUG_MODE", "0") not in ("", "0")


def inferred(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a call gives, without data."""
    meta_args, meta_kwargs = with_tensors((args, kwargs), _meta)
    if meta_kwargs.get("device") is not None:
        meta_kwargs["device"] = torch.device("meta")
    return _masked(func, args, func(*meta_args, **meta_kwargs))


def _masked(func: Any, args: Args, result: Any) -> Any:
    """Without the gradients that a call leaves out, and without statistics that were not made: torch describes them all
    the same."""
    if func is aten.native_batch_norm.default and not args[5]:
        return result[0], result[1].new_empty(0), result[2].new_empty(0)
    names = [argument.name for argument in func._schema.arguments]
    if "output_mask" not in names or names.index("output_mask") >= len(args):
        return result
    return tuple(made if wanted else None for made, wanted in zip(result, args[names.index("output_mask")]))


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._spec.meta() if isinstance(tensor, GlobalTensor) else _described(tensor)


def _described(plain: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(plain, device="meta")


def _depends_on_values(func: Any, args: Args) -> bool:
    """Whether the shape of what an op gives depends on values; of an index only if it is a mask."""
    if func is aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags


@cache
def _simpler(func: Any) -> Any:
    """The op in simpler ones, if that is known to serve; torch's table is loaded when the first op asks."""
    if func not in _listed():
        return None
    from torch._decomp import decomposition_table

    return decomposition_table.get(func)


@cache
def _listed() -> frozenset[Any]:
    pairs = [(name if "." in name else f"{name}.default").split(".") for name in _IN_SIMPLER_OPS]
    return frozenset(
        getattr(getattr(aten, name), overload)
        for name, overload in pairs
        if hasattr(aten, name) and overload in getattr(aten, name).overloads()
    )
