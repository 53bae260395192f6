"""One call of an op, as rules and costs see it: logical shapes and dtypes, no values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch

from oneflow.engine.core.tree import tree_map

Shape = tuple[int, ...]


class TensorLike(Protocol):
    """What describes a tensor: a fake tensor, a real one, or anything else with a shape and a dtype of torch."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> torch.dtype: ...


class Call:
    """A call of ``op``; in ``args`` and ``kwargs`` stands a description in the place of each tensor, and ``result``
    describes the output, or is a tuple or list of such for an op with several, None for one that is no tensor.
    ``parts`` is the number of ranks that may share the call.

    Most calls are asked little, so all else is worked out when it is first asked for.
    """

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, parts: int) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.parts = parts

    @cached_property
    def inputs(self) -> tuple[TensorLike, ...]:
        """The tensor arguments in order of appearance: those inside lists included, a tensor given twice counted
        twice."""
        return tuple(tensors_in((*self.args, *self.kwargs.values())))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The logical shape of each input."""
        return tuple(tuple(tensor.shape) for tensor in self.inputs)

    @cached_property
    def results(self) -> tuple[TensorLike | None, ...]:
        """The description of each output; None for one that is no tensor."""
        return tuple(self.result) if isinstance(self.result, (tuple, list)) else (self.result,)

    @cached_property
    def outputs(self) -> tuple[Shape, ...]:
        """The logical shape of each output; () stands for an output that is no tensor."""
        return tuple(tuple(made.shape) if made is not None else () for made in self.results)

    @property
    def out(self) -> Shape:
        """The logical shape of the first output."""
        return self.outputs[0]

    @property
    def first(self) -> TensorLike:
        """The description of the first output, which must be a tensor."""
        first = self.results[0]
        assert first is not None, f"the first output of {self.op} is no tensor"
        return first

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first output, which must be a tensor."""
        return self.first.dtype

    @cached_property
    def _named(self) -> dict[str, Any]:
        schema = self.op._schema.arguments
        named = {a.name: a.default_value for a in schema if a.has_default_value()}
        named.update({a.name: value for a, value in zip(schema, self.args)})
        return {**named, **self.kwargs}

    def arg(self, name: str) -> Any:
        """An argument by the name it has in the op's schema (a description where it is a tensor), or its default."""
        return self._named[name]

    def index(self, name: str) -> int | None:
        """The place in ``inputs`` of the tensor argument of that name; None when it was not given."""
        return self._places.get(name)

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where in the flat list of tensors each named tensor argument comes; a list of tensors has the place of its
        first."""
        names = [a.name for a in self.op._schema.arguments][: len(self.args)] + list(self.kwargs)
        places, count = {}, 0
        for name, value in zip(names, [*self.args, *self.kwargs.values()]):
            held = len(tensors_in(value))
            if held:
                places[name] = count
            count += held
        return places

    def key(self) -> Hashable:
        """What decisions about the call can be kept by: equal for calls of one op with equal shapes, dtypes, numbers
        and parts."""
        return key_of(self.op, self.args, self.kwargs), self.parts


def nbytes(tensor: TensorLike) -> int:
    """The size of a tensor."""
    return prod(tensor.shape) * tensor.dtype.itemsize


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor or the description of one."""
    return isinstance(value, torch.Tensor) or isinstance(getattr(value, "dtype", None), torch.dtype)


def tensors_in(value: Any) -> list[Any]:
    """The tensors of an argument, or of several, in order of appearance."""
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return [value] if is_tensor(value) else []


def with_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments with ``function`` of each tensor in its place, called in order of appearance."""
    return tree_map(lambda leaf: function(leaf) if is_tensor(leaf) else leaf, value)


def key_of(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable:
    """What a call can be known by before its output is: of tensors the shape and dtype count, of all else the type and
    value."""
    return op, _frozen(args), tuple((name, _frozen(value)) for name, value in kwargs.items())


def _frozen(value: Any) -> Hashable:
    if isinstance(value, (tuple, list)):
        return tuple(map(_frozen, value))
    return (tuple(value.shape), value.dtype) if is_tensor(value) else (type(value), value)
