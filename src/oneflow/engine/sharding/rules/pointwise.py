"""Elementwise ops: any dim can be split; partial sums pass through those that are linear."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.patterns import partial_sums, pointwise_splits
from oneflow.engine.sharding.rules.rule import Rules, Signature, is_float

aten = torch.ops.aten
RULES = Rules()

_UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp expm1 floor isinf "
    "isnan lgamma "
    "log log10 log1p log2 logical_not reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinh sqrt tan tanh trunc"
)
_ACTIVATIONS = (
    "elu gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid_forward logit mish silu softplus threshold"
)
_BINARY = (
    "atan2 clamp clamp_max clamp_min fmax fmin fmod.Scalar fmod.Tensor hypot logaddexp logical_and logical_or "
    "logical_xor maximum minimum "
    "nan_to_num remainder.Scalar remainder.Scalar_Tensor remainder.Tensor rsub.Scalar add.Scalar sub.Scalar "
    "clamp.Tensor clamp_max.Tensor clamp_min.Tensor div.Tensor_mode div.Scalar_mode "
    "pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor "
    "bitwise_and.Scalar bitwise_and.Tensor bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar bitwise_xor.Tensor "
    "bitwise_left_shift.Tensor bitwise_right_shift.Tensor bitwise_left_shift.Tensor_Scalar "
    "bitwise_right_shift.Tensor_Scalar"
)
_COMPARISONS = [f"{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Scalar", "Tensor")]
_LOSSES = "binary_cross_entropy binary_cross_entropy_with_logits huber_loss mse_loss smooth_l1_loss soft_margin_loss"
_LINEAR = "neg clone _to_copy alias detach lift_fresh_copy mul.Scalar div.Scalar"
_DIFFERENTIATED = (
    "elu gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid logit mish sigmoid silu softplus tanh threshold"
)
_MEAN = 1  # as the argument ``reduction`` of a loss
_DIFFERENTIATED_LOSSES = "binary_cross_entropy huber_loss mse_loss smooth_l1_loss soft_margin_loss"


def _ops(names: str | list[str]) -> list[torch._ops.OpOverload]:
    """The ops of these names; one that has no overload in its name is the default one."""
    listed = names.split() if isinstance(names, str) else names
    pairs = [(name if "." in name else f"{name}.default").split(".") for name in listed]
    return [getattr(getattr(aten, name), overload) for name, overload in pairs]


# A loss that is reduced has a scalar output, of which there is nothing to split.
RULES.rule(*_ops(_UNARY), *_ops(_ACTIVATIONS), *_ops(_BINARY), *_ops(_COMPARISONS), *_ops(_LOSSES))(pointwise_splits)


@RULES.rule(*_ops(_LINEAR))
def linear(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self")


@RULES.rule(aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor)
def added(call: Call) -> Iterator[Signature]:
    """Adding a Python number (then ``other`` is no tensor) is not linear."""
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "other")


@RULES.rule(aten.mul.Tensor)
def multiplied(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self")
    yield from partial_sums(call, "other")


@RULES.rule(aten.div.Tensor)
def divided(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self")


@RULES.rule(aten.lerp.Scalar)
def interpolated(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "end")


@RULES.rule(aten.addcmul.default)
def product_added(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "tensor1")
    yield from partial_sums(call, "self", "tensor2")


@RULES.rule(aten.addcdiv.default)
def quotient_added(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "tensor1")


@RULES.rule(aten.where.self)
def chosen(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "other")


@RULES.rule(aten.masked_fill.Scalar)
def filled_where(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    if call.arg("value") == 0:
        yield from partial_sums(call, "self")


@RULES.rule(aten.masked_fill.Tensor)
def filled_from_where(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "self", "value")


@RULES.rule(aten.copy.default)
def copied(call: Call) -> Iterator[Signature]:
    """What ``src`` holds in the shape and dtype of ``self``, whose own values are not read."""
    yield from pointwise_splits(call)
    yield from partial_sums(call, "src")
    if is_float(call.inputs[0]):
        yield Signature((PARTIAL, BROADCAST), (BROADCAST,))


@RULES.rule(*_ops([f"{name}_backward" for name in _DIFFERENTIATED.split()]))
def differentiated(call: Call) -> Iterator[Signature]:
    yield from pointwise_splits(call)
    yield from partial_sums(call, "grad_output")


@RULES.rule(*_ops([f"{name}_backward" for name in _DIFFERENTIATED_LOSSES.split()]))
def loss_differentiated(call: Call) -> Iterator[Signature]:
    if call.arg("reduction") != _MEAN:  # it divides by the number of elements that it sees
        yield from pointwise_splits(call)
    yield from partial_sums(call, "grad_output")
