"""``flow.nn``: normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.engine.core.number import flag, number, whole
from oneflow.engine.ir.blob import Blob, emit, emit_many
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ir.variable import get_variable
from oneflow.engine.ops import norm as rows
from oneflow.initializer import ones_initializer, zeros_initializer
from oneflow.nn import _arguments as arguments


def batch_normalization(
    x: Blob,
    mean: Blob,
    variance: Blob,
    offset: Blob | None = None,
    scale: Blob | None = None,
    variance_epsilon: float = 1e-5,
    axis: int = 1,
    name: str | None = None,
) -> Blob:
    """(x - mean) / sqrt(variance + variance_epsilon) · scale + offset, with statistics of shape (channels,) that are
    given."""
    dim = arguments.axis_in("axis", axis, len(arguments.blob("x", x).shape))
    return emit(
        rows.batch_normalization,
        x,
        mean,
        variance,
        offset,
        scale,
        name=name,
        axis=dim,
        epsilon=number("variance_epsilon", variance_epsilon, 0),
    )


def layer_norm(
    inputs: Blob,
    gamma: Blob | None = None,
    beta: Blob | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Blob:
    """Normalises each sample over the axes from ``begin_norm_axis`` on, then scales by gamma and shifts by beta.

    Gamma and beta have the shape of the axes from ``begin_params_axis`` on.
    """
    rank = len(arguments.blob("inputs", inputs).shape)
    arguments.axis_in("begin_params_axis", begin_params_axis, rank)
    norm_dims = rank - arguments.axis_in("begin_norm_axis", begin_norm_axis, rank)
    return emit(
        rows.layer_norm, inputs, gamma, beta, name=name, norm_dims=norm_dims, epsilon=number("epsilon", epsilon, 0)
    )


def moments(x: Blob, axes: int | Sequence[int], keepdims: bool = False, name: str | None = None) -> tuple[Blob, Blob]:
    """Mean and (biased) variance of x over ``axes``."""
    rank = len(arguments.blob("x", x).shape)
    given = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    dims = tuple(arguments.axis_in("axes", a, rank) for a in given)
    mean, variance = emit_many(rows.moments, x, name=name, dims=dims, keepdims=flag("keepdims", keepdims))
    return mean, variance


def GroupNorm(x: Blob, num_groups: int = 32, eps: float = 1e-5, affine: bool = True, name: str | None = None) -> Blob:
    """Normalises each sample over ``num_groups`` groups of its channels (axis 1).

    With ``affine`` the variables ``<name>-gamma`` (ones) and ``<name>-beta`` (zeros) of shape (channels,) scale and
    shift it.
    """
    return _group_norm("GroupNorm", x, num_groups, eps, affine, name)


def InstanceNorm1d(x: Blob, eps: float = 1e-5, affine: bool = True, name: str | None = None) -> Blob:
    """Normalises each channel of each sample of an (N, C, W) blob; ``affine`` as in ``GroupNorm``."""
    return _group_norm("InstanceNorm1d", arguments.blob("x", x, 3), x.shape[1], eps, affine, name)


def InstanceNorm2d(x: Blob, eps: float = 1e-5, affine: bool = True, name: str | None = None) -> Blob:
    """Normalises each channel of each sample of an (N, C, H, W) blob; ``affine`` as in ``GroupNorm``."""
    return _group_norm("InstanceNorm2d", arguments.blob("x", x, 4), x.shape[1], eps, affine, name)


def InstanceNorm3d(x: Blob, eps: float = 1e-5, affine: bool = True, name: str | None = None) -> Blob:
    """Normalises each channel of each sample of an (N, C, D, H, W) blob; ``affine`` as in ``GroupNorm``."""
    return _group_norm("InstanceNorm3d", arguments.blob("x", x, 5), x.shape[1], eps, affine, name)


def _group_norm(kind: str, x: Blob, groups: int, eps: float, affine: bool, name: str | None) -> Blob:
    trace = require_trace(f"flow.nn.{kind}")
    name = trace.auto_name(kind, first_plain=True) if name is None else name
    channels = (arguments.channels(arguments.blob("x", x), last=False),)
    gamma = get_variable(f"{name}-gamma", channels, x.dtype, ones_initializer()) if affine else None
    beta = get_variable(f"{name}-beta", channels, x.dtype, zeros_initializer()) if affine else None
    return emit(
        rows.group_norm,
        x,
        gamma,
        beta,
        name=name,
        groups=whole("num_groups", groups, above=0),
        epsilon=number("eps", eps, 0),
    )
