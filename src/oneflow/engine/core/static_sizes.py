"""What torch's functions of sizes that may be symbols answer where sizes are numbers.

torch asks them at every op on tensors without data. They stand in a module that loads sympy, which is as much work as
all else of a first trace.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import fx
from torch.utils._ordered_set import OrderedSet

_NUMBERS = (bool, int, float, type(None), str)


def static_sizes(of_symbols: Callable[[], Any]) -> dict[str, Any]:
    """By their names. ``of_symbols`` gives torch's own module, which is asked as soon as an argument may have a symbol
    in it."""

    def one(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **named: Any) -> Any:
            if not named and all(map(_is_static, args)):
                return answer(*args)
            return getattr(of_symbols(), name)(*args, **named)

        return ask

    answers = {name: one(name, answer) for name, answer in _ANSWERS.items()}
    classes = {name: _made_by(name, base, of_symbols) for name, base in _CLASSES.items()}
    return {**answers, **classes}


def _is_static(value: Any) -> bool:
    """Whether there is surely no symbol in it."""
    if type(value) in _NUMBERS:
        return True
    if isinstance(value, (tuple, list)):
        return all(map(_is_static, value))
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and not value._has_symbolic_sizes_strides
    return isinstance(value, fx.Node) and value.op != "call_method" and "sym_" not in str(value.target)


def _same(value: Any) -> Any:
    return value


def _is_equal(x: Any, y: Any) -> bool:
    return x == y if not isinstance(x, (tuple, list)) else len(x) == len(y) and all(map(_is_equal, x, y))


_ANSWERS: dict[str, Callable[..., Any]] = {
    "compute_unbacked_bindings": lambda shape_env, *values: None,
    "expect_true": lambda condition, *skip: condition,
    "free_unbacked_symbols": lambda values: OrderedSet(),
    "guard_int": _same,
    "guard_or_false": _same,
    "guard_or_true": _same,
    "guard_size_oblivious": _same,
    "guarding_hint_or_throw": _same,
    "has_free_symbols": lambda values: False,
    "has_free_unbacked_symbols": lambda values: False,
    "has_guarding_hint": lambda size: True,
    "is_accessor_node": lambda node: False,
    "is_nested_int": lambda size: False,
    "is_symbolic": lambda size: False,
    "statically_known_true": _same,
    "sym_and": lambda *conditions: reduce(operator.and_, conditions),
    "sym_eq": _is_equal,
    "sym_or": lambda *conditions: reduce(operator.or_, conditions),
    "_iterate_exprs": lambda values: iter(()),
    "_iterate_nodes": lambda values: iter(()),
}
_CLASSES: dict[str, type] = {"GuardOnDataDependentSymNode": RuntimeError, "ShapeEnv": object}


def _made_by(name: str, base: type, of_symbols: Callable[[], Any]) -> type:
    """A class that nothing is an instance of; making one makes torch's own."""
    return type(name, (base,), {"__new__": lambda cls, *args, **named: getattr(of_symbols(), name)(*args, **named)})
