"""Parameters that had other names or another order in some year: one table, and the decorator that reads calls by it.

The functions have one signature each. ``SPELLINGS`` says what else their keywords were called from 2019 to 2022,
``EARLIER`` which order their positional arguments had in other years; there the types of what is passed tell which year
is meant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from oneflow.engine.core.errors import ArgumentError, KeywordError, nearest
from oneflow.engine.core.sbp import Sbp
from oneflow.engine.core.tracebacks import trim

_P = ParamSpec("_P")
_R = TypeVar("_R")

_REDUCED = {"input_tensor": "x", "input_blob": "x", "input": "x"}
_LAID_OUT = {"nd_sbp": "parallel_distribution", "grad_nd_sbp": "grad_parallel_distribution"}

SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "argsort": {"input": "x"},
    "diag": {"input": "x"},
    "dim_gather": {"input": "x"},
    "elem_cnt": {"inputs": "x", "input_blob": "x"},
    "expand_dims": {"input": "x"},
    "flatten": {"input": "x"},
    "get_variable": {"nd_sbp": "parallel_distribution"},
    "hierarchical_parallel_cast": {"input": "x", **_LAID_OUT},
    "parallel_cast": {"input": "x"},
    "reverse": {"input": "x"},
    "save": {"save_dir": "path"},
    "sort": {"input": "x"},
    "squeeze": {"input": "x"},
    "transpose": {"x": "a"},
    "watch": {"blob_watched": "blob"},
    "watch_diff": {"blob_watched": "blob"},
    "image.Resize": {"input_blob": "image"},
    "image.resize": {"input_blob": "image"},
    "image_resize": {"input_blob": "image"},
    "math.argmax": {"input": "x"},
    "math.l2_normalize": {"input": "x"},
    "math.reduce_all": _REDUCED,
    "math.reduce_any": _REDUCED,
    "math.reduce_euclidean_norm": _REDUCED,
    "math.reduce_logsumexp": _REDUCED,
    "math.reduce_max": _REDUCED,
    "math.reduce_mean": _REDUCED,
    "math.reduce_min": _REDUCED,
    "math.reduce_prod": _REDUCED,
    "math.reduce_std": _REDUCED,
    "math.reduce_sum": _REDUCED,
    "math.reduce_variance": _REDUCED,
    "math.reduced_shape_elem_cnt": _REDUCED,
    "math.top_k": {"input": "x"},
}
"""For each function other names of its parameters, with the present one."""


@dataclass(frozen=True)
class Order:
    """Positional arguments of other years: their names in that order, and what tells such a call by its positional
    arguments."""

    names: tuple[str, ...]
    meant_by: Callable[[tuple[Any, ...]], bool]
    years: str


def _text_at(place: int) -> Callable[[tuple[Any, ...]], bool]:
    """Whether a text stands at a place where the present order has none."""
    return lambda args: len(args) > place and isinstance(args[place], str)


def _variable_is_earlier(args: tuple[Any, ...]) -> bool:
    return len(args) > 8 and (
        isinstance(args[8], Sbp) or (args[8] is None and len(args) > 9 and isinstance(args[9], bool))
    )


def _decay_is_missing(args: tuple[Any, ...]) -> bool:
    """LAMB and LARS had no weight decay until 2021: a clipping, or a loss scale two places later, stands where it is
    now."""
    names = [type(a).__name__ for a in args]
    return "ClipByGlobalNorm" in names[6:7] or "LossScale" in names[8:9]


def _centered_is_missing(args: tuple[Any, ...]) -> bool:
    """RMSProp had no ``centered`` until the end of 2020: a loss scale factor stands where it is now."""
    return len(args) > 4 and not isinstance(args[4], bool)


_COMMON = ("loss_scale_factor", "grad_clipping", "train_step_lbn", "loss_scale_policy")


def _top_k_is_earlier(args: tuple[Any, ...]) -> bool:
    """``top_k(x, 5)`` was k until the end of 2020 and is the axis since; what can be only one of them is that one."""
    if len(args) < 2:
        return False
    if len(args) > 2:
        return isinstance(args[2], bool)  # sorted; since 2021 k stands here
    place, shape = args[1], getattr(args[0], "shape", None)
    if not isinstance(place, int) or isinstance(place, bool) or place < 1 or shape is None:
        return False
    rank = len(shape)
    if place >= rank:
        return True
    if place == 1 and rank == 2:
        return False  # the largest along the last axis, by either reading
    raise ArgumentError(
        f"top_k(x, {place}) is {place} elements of the last axis in programs of 2020, and one element of axis {place} "
        f"in later ones; "
        f"write k={place} or axis={place}"
    )


EARLIER: Mapping[str, Order] = {
    "argsort": Order(("x", "direction", "name"), _text_at(1), "2020"),
    "sort": Order(("x", "direction", "name"), _text_at(1), "2020"),
    "transpose": Order(("a", "perm", "conjugate", "name"), _text_at(3), "2020"),
    "get_variable": Order(
        (
            "name",
            "shape",
            "dtype",
            "initializer",
            "regularizer",
            "trainable",
            "model_name",
            "random_seed",
            "distribute",
            "reuse",
        ),
        _variable_is_earlier,
        "2020",
    ),
    "assign": Order(("ref", "value", "name"), _text_at(2), "here"),
    "parallel_cast": Order(
        ("x", "distribute", "gradient_distribute", "name"),
        lambda args: any(isinstance(a, Sbp) for a in args[1:2]),
        "here",
    ),
    "linalg.matmul": Order(("a", "b", "transpose_a", "transpose_b", "name"), _text_at(4), "2020"),
    "layers.upsample_2d": Order(("x", "size", "data_format", "interpolation", "name"), _text_at(2), "2020"),
    "math.argmax": Order(("x", "name"), _text_at(1), "2020"),
    "math.top_k": Order(("x", "k", "sorted", "name"), _top_k_is_earlier, "2020"),
    "math.tril": Order(("x", "diagonal", "name"), _text_at(2), "2020"),
    "nn.avg_pool1d": Order(("input", "ksize", "strides", "padding", "data_format", "name"), _text_at(5), "all"),
    "nn.max_pool1d": Order(("input", "ksize", "strides", "padding", "data_format", "name"), _text_at(5), "all"),
    "nn.conv2d": Order(
        ("input", "filters", "strides", "padding", "data_format", "dilations", "groups", "name"),
        _text_at(4),
        "2019 to 2021",
    ),
    "image.resize": Order(
        ("image", "color_space", "interp_type", "resize_shorter", "resize_x", "resize_y", "name"),
        _text_at(1),
        "July 2020",
    ),
    "optimizer.LAMB": Order(("self", "lr_scheduler", "beta1", "beta2", "epsilon", *_COMMON), _decay_is_missing, "2020"),
    "optimizer.LARS": Order(
        ("self", "lr_scheduler", "momentum_beta", "epsilon", "lars_coefficient", *_COMMON), _decay_is_missing, "2020"
    ),
    "optimizer.RMSProp": Order(
        ("self", "lr_scheduler", "decay_rate", "epsilon", *_COMMON), _centered_is_missing, "2020"
    ),
    "summary.text": Order(("text", "tag"), _text_at(1), "all"),
}
"""For each function the order of other years, where it contradicts the present one."""


def spelled(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: calls of the function ``name`` may be written as in any year, by ``SPELLINGS`` and ``EARLIER``."""
    others, earlier = SPELLINGS.get(name, {}), EARLIER.get(name)
    assert others or earlier, f"{name} has no other spelling"

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        present = tuple(inspect.signature(function).parameters)

        def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            """A call of any year as one of the present signature."""
            given = {} if not kwargs else _renamed(name, kwargs, others, present)
            if earlier is None or not earlier.meant_by(args):
                return args, given
            return (), _joined(name, args, given, earlier.names)

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                found, given = arguments(args, kwargs)
                return function(*found, **given)
            except Exception as error:
                trim(error)
                raise

        vars(call)["arguments_of_any_year"] = arguments
        return call

    return decorate


def _renamed(name: str, kwargs: dict[str, Any], others: Mapping[str, str], present: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in kwargs.items():
        parameter = others.get(key, key) if key not in present else key
        if parameter not in present:
            raise KeywordError(
                f"{name} has no argument {key!r}.{nearest(key, (*present, *others))} It takes {', '.join(present)}"
            )
        if parameter in found:
            raise KeywordError(f"{name} was given {parameter!r} twice, once as {key!r}")
        found[parameter] = value
    return found


def _joined(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    if len(args) > len(order):
        raise KeywordError(f"{name} takes {', '.join(order)} in this order, got {len(args)} positional arguments")
    given = dict(zip(order, args))
    for key in kwargs:
        if key in given:
            raise KeywordError(f"{name} was given {key!r} twice, by its place and by its name")
    return {**given, **kwargs}
