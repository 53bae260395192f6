"""Initializers: frozen values that say how a variable's first content is drawn.

``initializer.draw(spec, generator)`` gives a CPU tensor of the spec's shape and dtype, a pure function of the
initializer, the spec and the generator's state. One initializer may serve any number of variables: each is drawn from
its own generator.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.dtype import DType, as_dtype
from oneflow.engine.core.errors import ArgumentError, DTypeError, UnsupportedError, nearest
from oneflow.engine.core.number import number, real, wholes
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.variable import Initializer

__all__ = [
    "constant_initializer",
    "empty_initializer",
    "from_conf",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "kaiming_initializer",
    "ones_initializer",
    "random_normal_initializer",
    "random_uniform_initializer",
    "truncated_normal",
    "truncated_normal_initializer",
    "variance_scaling_initializer",
    "xavier_normal_initializer",
    "xavier_uniform_initializer",
    "zeros_initializer",
]

MODES = ("fan_in", "fan_out", "fan_avg")
DISTRIBUTIONS = ("truncated_normal", "random_normal", "random_uniform")

# The standard deviation of a unit normal that is cut off at two standard deviations.
TRUNCATED_STDDEV = 0.87962566103423978


@dataclass(frozen=True)
class Constant:
    """The same value everywhere."""

    value: int | float

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        return torch.full(spec.shape, _fit(self.value, spec.dtype), dtype=spec.dtype.torch)


@dataclass(frozen=True)
class Empty:
    """No content asked for. We give zeros: uninitialised memory would make runs differ."""

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        return torch.zeros(spec.shape, dtype=spec.dtype.torch)


@dataclass(frozen=True)
class RandomUniform:
    """Real numbers between ``minval`` and ``maxval``."""

    minval: float
    maxval: float

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        _require_float(self, spec)
        values = torch.rand(spec.shape, dtype=_working_dtype(spec), generator=generator)
        return values.mul_(self.maxval - self.minval).add_(self.minval).to(spec.dtype.torch)


@dataclass(frozen=True)
class RandomUniformInt:
    """Whole numbers from ``minval`` to ``maxval``, both included."""

    minval: int
    maxval: int

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        low, high = _fit(self.minval, spec.dtype), _fit(self.maxval, spec.dtype)
        return torch.randint(int(low), int(high) + 1, spec.shape, dtype=torch.int64, generator=generator).to(
            spec.dtype.torch
        )


@dataclass(frozen=True)
class RandomNormal:
    """Normally distributed numbers."""

    mean: float
    stddev: float

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        _require_float(self, spec)
        values = torch.randn(spec.shape, dtype=_working_dtype(spec), generator=generator)
        return values.mul_(self.stddev).add_(self.mean).to(spec.dtype.torch)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normally distributed numbers, those further than two ``stddev`` from ``mean`` left out."""

    mean: float
    stddev: float

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        """Inverse distribution function of evenly spread probabilities: no number is ever drawn twice."""
        _require_float(self, spec)
        edge = math.erf(math.sqrt(2.0))
        values = (
            torch.rand(spec.shape, dtype=_working_dtype(spec), generator=generator)
            .mul_(2.0 * edge)
            .sub_(edge)
            .erfinv_()
        )
        # The clamp removes only what rounding of the inverse put beyond the edge.
        values.mul_(math.sqrt(2.0)).clamp_(-2.0, 2.0)
        return values.mul_(self.stddev).add_(self.mean).to(spec.dtype.torch)


@dataclass(frozen=True)
class VarianceScaling:
    """Numbers of variance ``scale / fan``, the fan taken from the variable's own shape."""

    scale: float
    mode: str
    distribution: str
    data_format: str = ""

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        return self.of_shape(spec.shape).draw(spec, generator)

    def of_shape(self, shape: Sequence[int]) -> Initializer:
        """The initializer of the numbers of a variable of that shape."""
        return _centered(self.distribution, math.sqrt(self.scale / fan(shape, self.mode, self.data_format)))


def of_blocks(initializer: Initializer, shape: Sequence[int]) -> Initializer | None:
    """What draws any block of a variable of that shape; None for an initializer that only draws whole variables."""
    if isinstance(initializer, VarianceScaling):
        return initializer.of_shape(shape)
    by_element = (Constant, Empty, RandomUniform, RandomUniformInt, RandomNormal, TruncatedNormal)
    return initializer if isinstance(initializer, by_element) else None


def _centered(distribution: str, stddev: float) -> Initializer:
    """An initializer of mean 0 whose values, after any truncation, have the standard deviation asked for."""
    if distribution == "truncated_normal":
        return TruncatedNormal(0.0, stddev / TRUNCATED_STDDEV)
    return _untruncated(distribution, stddev)


def _untruncated(distribution: str, stddev: float) -> RandomNormal | RandomUniform:
    if distribution == "random_normal":
        return RandomNormal(0.0, stddev)
    bound = math.sqrt(3.0) * stddev
    return RandomUniform(-bound, bound)


def fan(shape: Sequence[int], mode: str, data_format: str = "") -> float:
    """The number of inputs (``fan_in``) or outputs (``fan_out``) of one unit of a weight, or their mean (``fan_avg``).

    Dimension 0 counts the outputs. In formats such as "NCHW" dimensions 2 and on are spatial, in formats such as "NHWC"
    those between the first and the last; a weight of rank 2 has none and needs no format.
    """
    shape = tuple(shape)
    if len(shape) < 2:
        raise ArgumentError(
            f"a fan is that of a weight of rank 2 or more, got shape {shape}; initialise it by constant or by stddev"
        )
    fan_in = math.prod(shape[1:])
    if mode == "fan_in":
        return fan_in
    fan_out = shape[0] * math.prod(_spatial(shape, data_format))
    return fan_out if mode == "fan_out" else (fan_in + fan_out) / 2


def _spatial(shape: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    if len(shape) == 2:
        return ()
    if not data_format:
        raise ArgumentError(
            f"the fan of a weight of shape {shape} depends on its layout; give data_format, such as 'NCHW' or 'NHWC'"
        )
    return shape[2:] if _channels_first(data_format) else shape[1:-1]


def _channels_first(data_format: str) -> bool:
    if data_format == "channels_first" or data_format.startswith("NC"):
        return True
    if data_format == "channels_last" or (data_format.startswith("N") and data_format.endswith("C")):
        return False
    raise ArgumentError(f"a data_format is written like 'NCHW' or 'NHWC', got {data_format!r}")


def _working_dtype(spec: TensorSpec) -> torch.dtype:
    """The dtype numbers are made in: 16-bit floats are rounded once, at the end."""
    return torch.float64 if spec.dtype.torch == torch.float64 else torch.float32


def _require_float(initializer: object, spec: TensorSpec) -> None:
    if not spec.dtype.is_floating_point:
        raise DTypeError(
            f"{initializer} draws real numbers and cannot fill a {spec.dtype.name} variable; "
            "use a constant or random_uniform_initializer(..., dtype=flow.int32)"
        )


def _fit(value: float, dtype: DType) -> int | float:
    """``value`` as a number of ``dtype``; one that the dtype cannot hold is refused."""
    if dtype.is_floating_point:
        return float(value)
    whole = _whole(value, dtype)
    bounds = torch.iinfo(dtype.torch)
    if not bounds.min <= whole <= bounds.max:
        raise DTypeError(f"{value} does not fit {dtype.name}, which holds {bounds.min} to {bounds.max}")
    return whole


def _whole(value: float, dtype: DType) -> int:
    if not math.isfinite(value) or value != int(value):
        raise DTypeError(f"{dtype.name} holds whole numbers, got {value}")
    return int(value)


def _one_of(what: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise ArgumentError(f"{what} is one of {list(known)}, got {value!r}.{nearest(str(value), known)}")
    return value


def constant_initializer(value: float = 0, dtype: Any = torch.float32) -> Constant:
    """``value`` everywhere; with an integer dtype a whole number."""
    dtype = as_dtype(dtype)
    value = real("value", value)
    return Constant(float(value) if dtype.is_floating_point else _whole(value, dtype))


def zeros_initializer(dtype: Any = torch.float32) -> Constant:
    """Zeros."""
    return constant_initializer(0, dtype)


def ones_initializer(dtype: Any = torch.float32) -> Constant:
    """Ones."""
    return constant_initializer(1, dtype)


def random_uniform_initializer(
    minval: float = 0, maxval: float = 1, dtype: Any = torch.float32
) -> RandomUniform | RandomUniformInt:
    """Uniform between ``minval`` and ``maxval``; with an integer dtype whole numbers, both bounds included.

    The defaults give 0 to 1: all positive.
    """
    dtype = as_dtype(dtype)
    low, high = real("minval", minval), real("maxval", maxval)
    if low > high:
        raise ArgumentError(f"minval {minval} is greater than maxval {maxval}")
    if dtype.is_floating_point:
        return RandomUniform(float(low), float(high))
    return RandomUniformInt(_whole(low, dtype), _whole(high, dtype))


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: None = None, dtype: None = None
) -> RandomNormal:
    """Normal. A seed belongs to the variable: ``get_variable(..., random_seed=...)``; so does the dtype."""
    if seed is not None or dtype is not None:
        raise UnsupportedError(
            "random_normal_initializer takes neither seed nor dtype; give them to get_variable (random_seed=, dtype=)"
        )
    return RandomNormal(number("mean", mean), number("stddev", stddev, 0))


def truncated_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> TruncatedNormal:
    """Normal without the values further than two ``stddev`` from ``mean``."""
    return TruncatedNormal(number("mean", mean), number("stddev", stddev, 0))


def truncated_normal(stddev: float = 1.0) -> TruncatedNormal:
    """``truncated_normal_initializer`` of mean 0. The one argument is the standard deviation."""
    return truncated_normal_initializer(0.0, stddev)


def variance_scaling_initializer(
    scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal", data_format: str = ""
) -> VarianceScaling:
    """Mean 0, variance ``scale / fan``. ``mode`` is fan_in, fan_out or fan_avg; ``data_format`` is that of a
    convolution's weight."""
    factor = number("scale", scale, above=0)
    if data_format:
        _channels_first(data_format)
    return VarianceScaling(
        factor, _one_of("mode", mode, MODES), _one_of("distribution", distribution, DISTRIBUTIONS), data_format
    )


def glorot_uniform_initializer(data_format: str = "") -> VarianceScaling:
    """Uniform of variance 1 / (mean of fan-in and fan-out)."""
    return variance_scaling_initializer(1.0, "fan_avg", "random_uniform", data_format)


def glorot_normal_initializer(data_format: str = "") -> VarianceScaling:
    """Normal of variance 1 / (mean of fan-in and fan-out)."""
    return variance_scaling_initializer(1.0, "fan_avg", "random_normal", data_format)


xavier_uniform_initializer = glorot_uniform_initializer
xavier_normal_initializer = glorot_normal_initializer


def kaiming_initializer(
    shape: Sequence[int],
    distribution: str = "random_normal",
    mode: str = "fan_in",
    nonlinearity: str | None = "leaky_relu",
    negative_slope: float = 0.0,
    data_format: str = "NCHW",
) -> RandomNormal | RandomUniform:
    """Mean 0, standard deviation gain / sqrt(fan) of a weight of ``shape``; the gain is that of the activation that
    follows."""
    dims = wholes(shape)
    if dims is None:
        raise ArgumentError(f"kaiming_initializer takes the weight's shape as a tuple, got {shape!r}")
    _one_of("distribution", distribution, ("random_normal", "random_uniform"))
    stddev = _gain(nonlinearity, number("negative_slope", negative_slope)) / math.sqrt(
        fan(dims, _one_of("mode", mode, MODES), data_format)
    )
    return _untruncated(distribution, stddev)


def _gain(nonlinearity: str | None, negative_slope: float) -> float:
    gains = {
        "sigmoid": 1.0,
        "tanh": 5.0 / 3.0,
        "relu": math.sqrt(2.0),
        "leaky_relu": math.sqrt(2.0 / (1.0 + negative_slope**2)),
    }
    return 1.0 if nonlinearity is None else gains[_one_of("nonlinearity", nonlinearity, list(gains))]


def empty_initializer(dtype: Any = torch.float32) -> Empty:
    """No content asked for; the variable starts as zeros, so that every run is the same."""
    as_dtype(dtype)
    return Empty()


_VARIANCE_NORMS = {"kFanIn": "fan_in", "kFanOut": "fan_out", "kAverage": "fan_avg"}
_DISTRIBUTIONS = {
    "kTruncatedNormal": "truncated_normal",
    "kRandomNormal": "random_normal",
    "kRandomUniform": "random_uniform",
}


def _constant_conf(value: float = 0.0) -> Constant:
    return constant_initializer(value)


def _constant_int_conf(value: int = 0) -> Constant:
    return constant_initializer(value, torch.int64)


def _random_uniform_conf(min: float = 0.0, max: float = 1.0) -> Initializer:
    return random_uniform_initializer(min, max)


def _random_uniform_int_conf(min: int = 0, max: int = 1) -> Initializer:
    return random_uniform_initializer(min, max, torch.int64)


def _random_normal_conf(mean: float = 0.0, std: float = 1.0) -> Initializer:
    return random_normal_initializer(mean, std)


def _truncated_normal_conf(mean: float = 0.0, std: float = 1.0) -> Initializer:
    return truncated_normal_initializer(mean, std)


def _variance_scaling_conf(
    scale: float = 1.0, variance_norm: str = "kFanIn", distribution: str = "kTruncatedNormal", data_format: str = ""
) -> Initializer:
    mode = _VARIANCE_NORMS[_one_of("variance_norm", variance_norm, list(_VARIANCE_NORMS))]
    return variance_scaling_initializer(
        scale, mode, _DISTRIBUTIONS[_one_of("distribution", distribution, list(_DISTRIBUTIONS))], data_format
    )


def _xavier_conf(variance_norm: str = "kFanIn", data_format: str = "") -> Initializer:
    return _variance_scaling_conf(1.0, variance_norm, "kRandomUniform", data_format)


def _msra_conf(variance_norm: str = "kFanIn", data_format: str = "") -> Initializer:
    return _variance_scaling_conf(2.0, variance_norm, "kRandomNormal", data_format)


def _empty_conf() -> Initializer:
    return Empty()


# Each conf's fields are its maker's parameters.
_CONFS: dict[str, Callable[..., Initializer]] = {
    "constant_conf": _constant_conf,
    "constant_int_conf": _constant_int_conf,
    "random_uniform_conf": _random_uniform_conf,
    "random_uniform_int_conf": _random_uniform_int_conf,
    "random_normal_conf": _random_normal_conf,
    "truncated_normal_conf": _truncated_normal_conf,
    "variance_scaling_conf": _variance_scaling_conf,
    "xavier_conf": _xavier_conf,
    "msra_conf": _msra_conf,
    "empty_conf": _empty_conf,
}


def from_conf(conf: Mapping[str, Mapping[str, Any]]) -> Initializer:
    """The initializer of a dictionary with one entry, such as ``{"random_normal_conf": {"std": 0.1}}``."""
    if not isinstance(conf, Mapping) or len(conf) != 1:
        raise ArgumentError(
            f"an initializer conf is a dict with one entry, such as {{'constant_conf': {{'value': 0.0}}}}; got {conf!r}"
        )
    ((kind, fields),) = conf.items()
    make = _CONFS[_one_of("an initializer conf", kind, list(_CONFS))]
    if not isinstance(fields, Mapping):
        raise ArgumentError(f"{kind} is a dict of its fields, got {fields!r}")
    known = list(inspect.signature(make).parameters)
    for field in fields:
        if field not in known:
            raise ArgumentError(f"{kind} has no field {field!r}.{nearest(str(field), known)} There are {known}")
    return make(**fields)
