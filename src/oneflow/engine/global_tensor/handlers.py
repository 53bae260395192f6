"""Ops that are not run by rules: those without values to compute on, copies, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor import errors
from oneflow.engine.global_tensor.dispatch import Decisions
from oneflow.engine.global_tensor.many import family
from oneflow.engine.global_tensor.move import moved
from oneflow.engine.global_tensor.placement import require_device
from oneflow.engine.global_tensor.random import Stream
from oneflow.engine.global_tensor.runs import as_view, in_strides, write_back, written_into
from oneflow.engine.global_tensor.spec import Spec, fresh, spec_of, without_sums
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.engine.world import join

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[[Decisions, Any, Args, Kwargs], Any]
HANDLERS: dict[Any, Handler] = {}


def handler(*ops: Any) -> Callable[[Handler], Handler]:
    """Decorator: the function below it runs these ops."""

    def add(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return add


def other_handler(func: Any, args: Args, kwargs: Kwargs) -> Handler | None:
    """Handlers of whole families, and of calls that ask for another kind of device."""
    if func is aten._to_copy.default and _other_device(args[0]._spec, kwargs):
        return to_device
    return family(func)


# ------------------------------------------------------------------ the same memory


@handler(aten.detach.default, aten.alias.default)
def detach(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    made = GlobalTensor(tensor._part, tensor._spec)
    return as_view(made, decisions, func, args, kwargs) if tensor._source is not None else made


@handler(aten.as_strided.default)
def as_strided(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """On the whole tensor, in the strides that the logical one has."""
    tensor = args[0]
    layout = whole_on(tensor._spec.layout.mesh)
    whole = moved(tensor._part, tensor._spec, layout, "as_strided")
    found = None if whole is None else func(in_strides(whole, tensor._spec), *args[1:], **kwargs)
    made = GlobalTensor(found, spec_of(tuple(args[1]), tuple(args[2]), tensor._spec.dtype, layout, tensor._spec.device))
    return as_view(made, decisions, func, args, kwargs)


@handler(aten.new_empty_strided.default)
def new_empty_strided(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, size, stride = args
    spec = tensor._spec
    sbp = spec.sbp if tuple(size) == spec.shape else whole_on(spec.layout.mesh).sbp
    made = spec_of(
        tuple(size), tuple(stride), kwargs.get("dtype") or spec.dtype, Layout(spec.layout.mesh, sbp), spec.device
    )
    return GlobalTensor(_empty(made), made)


def _empty(spec: Spec) -> torch.Tensor | None:
    rank = join().rank
    return (
        None
        if spec.layout.mesh.position(rank) is None
        else torch.empty(spec.part(rank), dtype=spec.dtype, device=spec.device)
    )


# ------------------------------------------------------------------ copies


@handler(aten.copy_.default)
def copy_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, source = args[:2]
    if not isinstance(target, GlobalTensor):
        raise errors.mixed(func, target)
    if not isinstance(source, GlobalTensor):  # a number, which torch has made a tensor
        return decisions.run(aten.fill_.Scalar, (target, source.item()), {})
    if source._spec.device.type != target._spec.device.type:
        raise errors.apart(func, [target._spec, source._spec])
    if source._spec.shape != target._spec.shape:
        source = decisions.run(aten.expand.default, (source, list(target._spec.shape)), {})
    if (
        not target._spec.dtype.is_floating_point and source._spec.dtype.is_floating_point
    ):  # sums before they are rounded
        plain = Layout(source._spec.layout.mesh, without_sums(source._spec.sbp))
        source = GlobalTensor(moved(source._part, source._spec, plain, "copy_"), source._spec.laid(plain))
    written_into(target, source)
    return target


@handler(aten.fill_.Tensor)
def fill_from(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return copy_(decisions, func, args, kwargs)


@handler(aten.zero_.default)
def zero_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if args[0]._part is not None:
        args[0]._part.zero_()
    write_back(args[0])
    return args[0]


def _other_device(spec: Spec, kwargs: Kwargs) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type != spec.device.type


def to_device(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """The same layout on devices of another kind."""
    tensor, kind = args[0], torch.device(kwargs["device"]).type
    require_device(kind)
    device = torch.device("cpu") if kind == "cpu" else torch.device(kind, join().local_rank)
    part = None if tensor._part is None else func(tensor._part, **{**kwargs, "device": device})
    spec = tensor._spec
    dtype = kwargs.get("dtype") or spec.dtype
    if dtype != spec.dtype and any(sbp.kind == "P" for sbp in spec.sbp) and not dtype.is_floating_point:
        raise GlobalTensorError(
            "partial sums are brought to another device and made whole numbers in two steps; call to(dtype) first"
        )
    return GlobalTensor(part, spec_of(spec.shape, spec.stride, dtype, spec.layout, device))


# ------------------------------------------------------------------ random numbers


def _filled(
    target: GlobalTensor, values: Callable[[Stream], torch.Tensor], generator: torch.Generator | None
) -> GlobalTensor:
    """Random values written into a tensor; of what another tensor asks of its elements, see the functions below."""
    stream = Stream(target._spec, generator)
    if target._part is not None:
        target._part.copy_(values(stream))
    write_back(target)
    return target


@handler(aten.uniform_.default)
def uniform_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, low, high = (*args, 0.0, 1.0)[:3] if len(args) != 2 else (*args, 1.0)
    return _filled(target, lambda stream: stream.uniform() * (high - low) + low, kwargs.get("generator"))


@handler(aten.normal_.default)
def normal_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, mean, deviation = (*args, 0.0, 1.0)[:3] if len(args) != 2 else (*args, 1.0)
    return _filled(target, lambda stream: stream.normal() * deviation + mean, kwargs.get("generator"))


@handler(aten.exponential_.default)
def exponential_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    rate = args[1] if len(args) > 1 else 1.0
    return _filled(args[0], lambda stream: -torch.log1p(-stream.uniform()) / rate, kwargs.get("generator"))


@handler(aten.bernoulli_.float)
def bernoulli_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    probability = args[1] if len(args) > 1 else 0.5
    return _filled(args[0], lambda stream: stream.bernoulli(probability), kwargs.get("generator"))


@handler(aten.random_.default, aten.random_.to, getattr(aten.random_, "from"))
def random_(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, *bounds = args
    most = (
        1 << 24
        if target._spec.dtype == torch.float32
        else torch.iinfo(target._spec.dtype).max
        if not target.is_floating_point()
        else 1 << 11
    )
    low, high = (0, most) if not bounds else (0, bounds[0]) if len(bounds) == 1 else bounds
    return _filled(target, lambda stream: stream.whole(low, most if high is None else high), kwargs.get("generator"))


def _made_like(
    tensor: GlobalTensor, kwargs: Kwargs, values: Callable[[Stream], torch.Tensor], dtype: torch.dtype | None = None
) -> GlobalTensor:
    spec = tensor._spec
    layout = Layout(spec.layout.mesh, without_sums(spec.sbp))
    made = fresh(spec.shape, dtype or kwargs.get("dtype") or spec.dtype, layout, spec.device)
    return _filled(GlobalTensor(_empty(made), made), values, kwargs.get("generator"))


@handler(aten.rand_like.default)
def rand_like(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return _made_like(args[0], kwargs, lambda stream: stream.uniform())


@handler(aten.randn_like.default)
def randn_like(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return _made_like(args[0], kwargs, lambda stream: stream.normal())


@handler(aten.randint_like.default, aten.randint_like.low_dtype)
def randint_like(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    low, high = (0, args[1]) if func is aten.randint_like.default else args[1:3]
    return _made_like(args[0], kwargs, lambda stream: stream.whole(low, high))


@handler(aten.bernoulli.default, aten.bernoulli.p)
def bernoulli(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """By one probability, or by the tensor's own values, which must be whole or split for that."""
    if func is aten.bernoulli.p:
        return _made_like(args[0], kwargs, lambda stream: stream.bernoulli(args[1]))
    chances = args[0]
    layout = Layout(chances._spec.layout.mesh, without_sums(chances._spec.sbp))
    part = moved(chances._part, chances._spec, layout, "bernoulli")
    return _made_like(chances, kwargs, lambda stream: stream.bernoulli(part))  # type: ignore[arg-type]


@handler(aten.native_dropout.default)
def native_dropout(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    x, rate, train = args
    if not train:
        return decisions.run(aten.clone.default, (x,), {}), decisions.run(
            aten.ones_like.default, (x,), {"dtype": torch.bool}
        )
    mask = _made_like(x, {}, lambda stream: stream.bernoulli(1.0 - rate), torch.bool)
    kept = decisions.run(aten.mul.Tensor, (x, mask), {})
    return decisions.run(aten.mul.Tensor, (kept, 0.0 if rate == 1 else 1.0 / (1.0 - rate)), {}), mask


@handler(aten.native_dropout_backward.default)
def native_dropout_backward(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    gradient, mask, scale = args
    return decisions.run(aten.mul.Tensor, (decisions.run(aten.mul.Tensor, (gradient, mask), {}), scale), {})
