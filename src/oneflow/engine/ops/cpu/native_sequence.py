"""A sequence of ops of prediction that one call of the C extension runs, in memory that was planned.

A ``Sequence`` is plain data, part of a program. A ``RunningSequence`` is what an executor has in its place: it plans
the steps of the extension for the shapes that it is given, once, and has all that lies between them in one piece of
memory, in which a value takes the place of those that nothing reads any more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import fused_conv
from oneflow.engine.ops.cpu.fused_conv import ACTIVATIONS, packed_size

_LAST = torch.channels_last
_KINDS = ("convolution", "depthwise", "winograd", "mean", "scale", "lay", "max_pool", "pair")
_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}
_LINE = 16
"""Floats of a line of the cache: values begin at one."""
_FEW = 4
"""Channels of pictures that are moved from planes to pixels by the extension."""
_LARGE = 3 * 2**17
"""Floats of a value that would leave the cache before the depthwise convolution behind it has read it."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class At:
    """The value of this number: of an input, or behind those of what an op gives."""

    number: int


@dataclass(frozen=True)
class Op:
    """A function of ``fused_conv.py`` and its arguments, with ``At`` for tensors."""

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]

    def reads(self) -> list[int]:
        """The numbers of the values that it reads."""
        return [argument.number for argument in self.arguments if isinstance(argument, At)]


@dataclass(frozen=True)
class Sequence:
    """Ops on so many inputs; ``outputs`` are the numbers of the values that it gives."""

    inputs: int
    operations: tuple[Op, ...]
    outputs: tuple[int, ...]

    def ops(self) -> list[str]:
        """The names of its ops, in order."""
        return [op.function.__name__ for op in self.operations]


def call_sequence(sequence: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What a program calls. The executor puts in the place of ``sequence`` what runs it."""
    return sequence(*inputs)


class RunningSequence:
    """A sequence with the plan for the shapes that it was last given. Calls of it may run at the same time."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._filters = array(
            "q", sorted({op.arguments[place].number for op in sequence.operations for place in _filters(op)})
        )
        self._values = [number for number in range(sequence.inputs) if number not in self._filters]  # the other inputs
        self._planned: tuple[Any, _Plan | None] = (None, None)
        self._known: tuple[tuple[Tensor, ...], array[int]] = (
            (),
            array("Q"),
        )  # the filters of the last call, and where its inputs lay

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if native.conv is None:
            return self._by_torch(inputs)
        key = [(inputs[number].shape, inputs[number].stride()) for number in self._values]
        before, plan = self._planned
        if plan is None or before != key:
            plan = _Plan(self._sequence, inputs, self._values)
            self._planned = (key, plan)
        addresses = self._addresses(inputs)
        moved = {number: _lying(inputs[number]) for number in plan.moved}
        for number in self._values:
            addresses[1 + number] = moved.get(number, inputs[number]).data_ptr()
        made = [
            torch.empty(shape) if len(shape) == 2 else torch.empty(shape, memory_format=_LAST) for shape in plan.outputs
        ]
        between = torch.empty(plan.size)
        addresses[0] = between.data_ptr()
        addresses.extend([tensor.data_ptr() for tensor in made])
        native.conv.run(plan.rows, addresses, torch.get_num_threads())
        return tuple(made)

    def _addresses(self, inputs: tuple[Tensor, ...]) -> array[int]:
        """Where the inputs lie, and a place before them. Filters are the same from call to call; to ask each would take
        longer than some ops."""
        known, addresses = self._known
        if not addresses or not native.conv.are(known, self._filters, inputs):  # type: ignore[union-attr]
            addresses = array("Q", [0, *(tensor.data_ptr() for tensor in inputs)])
            self._known = tuple(inputs[number] for number in self._filters), addresses
        return addresses[:]

    def _by_torch(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values = list(inputs)
        for op in self._sequence.operations:
            values.append(
                op.function(
                    *(values[argument.number] if isinstance(argument, At) else argument for argument in op.arguments)
                )
            )
        return tuple(values[number] for number in self._sequence.outputs)


def _filters(op: Op) -> list[int]:
    """Which arguments of an op are filters and bias."""
    if op.function in (fused_conv.convolution, fused_conv.winograd, fused_conv.depthwise, fused_conv.linear):
        return [place for place in (1, 2) if isinstance(op.arguments[place], At)]
    return []


def _lying(value: Tensor) -> Tensor:
    """In the memory order that the extension reads."""
    return value.contiguous(memory_format=_LAST) if value.dim() == 4 else value.contiguous()


def _lies(value: Tensor) -> bool:
    return value.is_contiguous(memory_format=_LAST) if value.dim() == 4 else value.is_contiguous()


# ------------------------------------------------------------------ plans


@dataclass
class _Value:
    """Where a value lies, which of the addresses of a call and how many bytes behind it; its shape; whether it is in
    planes of pixels."""

    address: int
    offset: int
    shape: Shape
    in_planes: bool = False


class _Plan:
    """The steps of the extension for a sequence on inputs of such shapes: ``rows``; those of the ``values`` among its
    inputs that are to be ``moved`` into the order it reads; the shapes of ``outputs``; and the ``size`` of the memory
    between them."""

    def __init__(self, sequence: Sequence, inputs: tuple[Tensor, ...], values: list[int]) -> None:
        self._sequence = sequence
        self._sizes = [tensor.numel() for tensor in inputs]
        self._values = [
            _Value(1 + number, 0, tuple(tensor.shape), self._is_for_laying(number, tensor))
            for number, tensor in enumerate(inputs)
        ]
        self._last = _last_uses(sequence)
        self._memory = _Memory()
        self._rows: list[bytes] = []
        self._paired: tuple[Op, _Value, tuple[int, ...]] | None = None
        for place, op in enumerate(sequence.operations):
            self._memory.free_before(place)
            self._values.append(getattr(self, f"_{op.function.__name__}")(place, op))
        self.moved = [number for number in values if not self._values[number].in_planes and not _lies(inputs[number])]
        self.outputs = [self._values[number].shape for number in sequence.outputs]
        self.rows, self.size = b"".join(self._rows), self._memory.size

    # -------------------------------------------------------------- values

    def _of(self, argument: Any) -> _Value | None:
        return self._values[argument.number] if isinstance(argument, At) else None

    def _images(self, op: Op) -> _Value:
        return self._values[op.arguments[0].number]

    def _new(self, place: int, shape: Shape) -> _Value:
        """A place for what an op gives: memory of its own if the sequence gives it, else some that nothing reads any
        more."""
        number = self._sequence.inputs + place
        if number in self._sequence.outputs:
            return _Value(1 + self._sequence.inputs + self._sequence.outputs.index(number), 0, shape)
        return _Value(0, self._memory.take(_numel(shape), self._last[number]), shape)

    def _row(
        self, kind: str, tensors: list[_Value | None], numbers: tuple[int, ...], limits: tuple[float, ...] = ()
    ) -> None:
        places = [
            number for value in tensors for number in ((-1, 0) if value is None else (value.address, value.offset))
        ]
        self._rows.append(native.conv.row(_KINDS.index(kind), tuple(places), numbers, limits))  # type: ignore[union-attr]

    def _is_for_laying(self, number: int, tensor: Tensor) -> bool:
        """Whether an input is read by one convolution alone, and lies in planes of few channels."""
        readers = [op for op in self._sequence.operations if number in op.reads()]
        is_first = (
            len(readers) == 1
            and readers[0].function is fused_conv.convolution
            and readers[0].arguments[0] == At(number) != readers[0].arguments[3]
        )
        return (
            is_first and tensor.dim() == 4 and tensor.shape[1] <= _FEW and tensor.is_contiguous() and not _lies(tensor)
        )

    # -------------------------------------------------------------- ops

    def _convolution(self, place: int, op: Op) -> _Value:
        _, filters, bias, residual, geometry, made, activation = op.arguments
        images = self._images(op)
        pictures, channels, height, width = images.shape
        self._require(
            self._sizes[filters.number] == packed_size(made[0], geometry[0] * geometry[1] * channels),
            op,
            residual,
            (pictures, *made),
        )
        is_paired = self._is_paired(place, op, (pictures, *made))
        if images.in_planes:
            images, geometry = self._laid(place + is_paired, images, geometry, made)
            _, _, height, width = images.shape
        numbers = (pictures, height, width, channels, *made, *geometry, _NUMBERS[activation[0]])
        if is_paired:
            self._memory.keep(images, place + 1)
            self._paired = op, images, numbers
            return _Value(-1, 0, (pictures, *made))
        output = self._new(place, (pictures, *made))
        self._row(
            "convolution",
            [images, self._of(filters), self._of(bias), self._of(residual), output],
            numbers,
            activation[1:],
        )
        return output

    def _laid(self, last: int, images: _Value, geometry: Shape, made: Shape) -> tuple[_Value, Shape]:
        """Pictures as pixels with their zeros around them, read by the ``last`` op, and the geometry of a convolution
        that needs none."""
        pictures, channels, height, width = images.shape
        across, stride, before, apart = (geometry[i : i + 2] for i in (0, 2, 4, 6))
        high, wide = ((made[1 + i] - 1) * stride[i] + (across[i] - 1) * apart[i] + 1 for i in range(2))
        laid = _Value(0, self._memory.take(pictures * channels * high * wide, last), (pictures, channels, high, wide))
        self._row("lay", [images, None, None, None, laid], (pictures, channels, height, width, high, wide, *before))
        return laid, (*across, *stride, 0, 0, *apart)

    def _is_paired(self, place: int, op: Op, shape: Shape) -> bool:
        """Whether the depthwise convolution behind a product reads it line by line as it is made."""
        number, following = self._sequence.inputs + place, self._sequence.operations[place + 1 : place + 2]
        if (
            not following
            or following[0].function is not fused_conv.depthwise
            or following[0].arguments[0] != At(number)
        ):
            return False
        if (
            number in self._sequence.outputs
            or self._last[number] != place + 1
            or op.arguments[3] is not None
            or _numel(shape) < _LARGE
        ):
            return False
        geometry, images = op.arguments[4], self._images(op)
        depth = geometry[0] * geometry[1] * images.shape[1]
        assert native.conv is not None
        is_wide = shape[3] >= native.conv.WIDE and depth <= native.conv.DEPTH
        is_by_lines = images.in_planes and geometry[6:] == (1, 1) and is_wide
        return is_by_lines or (not images.in_planes and geometry == (1, 1, 1, 1, 0, 0, 1, 1))

    def _depthwise(self, place: int, op: Op) -> _Value:
        _, filters, bias, geometry, made, activation = op.arguments
        images = self._images(op)
        pictures, channels, height, width = images.shape
        self._require(
            channels == made[0] and self._sizes[filters.number] == channels * geometry[0] * geometry[1], op, None, ()
        )
        numbers = (pictures, height, width, channels, *made[1:], *geometry, _NUMBERS[activation[0]])
        output = self._new(place, (pictures, *made))
        if self._paired is None:
            self._row("depthwise", [images, self._of(filters), self._of(bias), None, output], numbers, activation[1:])
            return output
        first, read, first_numbers = self._paired
        self._paired = None
        tensors = [
            read,
            self._of(first.arguments[1]),
            self._of(first.arguments[2]),
            None,
            output,
            self._of(filters),
            self._of(bias),
        ]
        self._row("pair", tensors, (*first_numbers, *numbers), (*first.arguments[6][1:], *activation[1:]))
        return output

    def _winograd(self, place: int, op: Op) -> _Value:
        _, filters, bias, residual, before, made, activation = op.arguments
        images = self._images(op)
        pictures, channels, height, width = images.shape
        assert native.conv is not None
        is_prepared = self._sizes[filters.number] == native.conv.prepared_size(channels, made[0])
        self._require(is_prepared, op, residual, (pictures, *made))
        output = self._new(place, (pictures, *made))
        numbers = (pictures, height, width, channels, *made, *before, _NUMBERS[activation[0]])
        self._row(
            "winograd", [images, self._of(filters), self._of(bias), self._of(residual), output], numbers, activation[1:]
        )
        return output

    def _linear(self, place: int, op: Op) -> _Value:
        _, filters, bias, residual, columns, activation = op.arguments
        rows = self._images(op)
        count, depth = rows.shape
        self._require(self._sizes[filters.number] == packed_size(columns, depth), op, residual, (count, columns))
        output = self._new(place, (count, columns))
        numbers = (1, count, 1, depth, columns, count, 1, 1, 1, 1, 1, 0, 0, 1, 1, _NUMBERS[activation[0]])
        self._row(
            "convolution",
            [rows, self._of(filters), self._of(bias), self._of(residual), output],
            numbers,
            activation[1:],
        )
        return output

    def _mean(self, place: int, op: Op) -> _Value:
        images = self._images(op)
        pictures, channels, height, width = images.shape
        output = self._new(place, (pictures, channels, 1, 1) if op.arguments[1] else (pictures, channels))
        self._row("mean", [images, None, None, None, output], (pictures, height * width, channels))
        return output

    def _scale(self, place: int, op: Op) -> _Value:
        images, factors = self._images(op), self._of(op.arguments[1])
        pictures, channels, height, width = images.shape
        self._require(factors is not None and factors.shape == (pictures, channels, 1, 1), op, None, ())
        output = self._new(place, images.shape)
        self._row("scale", [images, factors, None, None, output], (pictures, height * width, channels))
        return output

    def _max_pool(self, place: int, op: Op) -> _Value:
        images = self._images(op)
        pictures, channels, height, width = images.shape
        _, geometry, made = op.arguments
        output = self._new(place, (pictures, channels, *made))
        self._row(
            "max_pool", [images, None, None, None, output], (pictures, height, width, channels, *made, *geometry, 0)
        )
        return output

    def _flat(self, place: int, op: Op) -> _Value:
        images = self._images(op)
        self._require(images.shape[2:] == (1, 1), op, None, ())
        return _Value(images.address, images.offset, images.shape[:2])

    def _require(self, fits: bool, op: Op, residual: Any, shape: Shape) -> None:
        """Refuses what a program was not compiled for: the extension would read memory that is not theirs."""
        added = self._of(residual)
        if not fits or (added is not None and _numel(added.shape) != _numel(shape)):
            given = tuple(self._images(op).shape)
            raise RuntimeError(f"the packed filters or the residual do not fit what is given, of shape {given}")


def _last_uses(sequence: Sequence) -> dict[int, int]:
    """Behind which op each value is read no more; one that is looked at as rows lives as long as these."""
    last = {sequence.inputs + place: place for place in range(len(sequence.operations))}
    for place, op in reversed(list(enumerate(sequence.operations))):
        until = last[sequence.inputs + place] if op.function is fused_conv.flat else place
        for number in op.reads():
            last[number] = max(last.get(number, 0), until)
    return last


class _Memory:
    """One piece of memory, and who has which part of it until when."""

    def __init__(self) -> None:
        self.size = 0
        self._taken: list[tuple[int, int, int]] = []  # begin, end, the last op that reads it

    def free_before(self, place: int) -> None:
        """Gives back what no op from this one on reads."""
        self._taken = [one for one in self._taken if one[2] >= place]

    def keep(self, value: _Value, last: int) -> None:
        """A value is read later than was known, by an op that takes another one along."""
        self._taken = [
            (begin, end, max(until, last) if (0, 4 * begin) == (value.address, value.offset) else until)
            for begin, end, until in self._taken
        ]

    def take(self, count: int, last: int) -> int:
        """The first gap of so many floats; its offset in bytes."""
        count, begin = -(-count // _LINE) * _LINE, 0
        for start, end, _ in sorted(self._taken):
            if start - begin >= count:
                break
            begin = max(begin, end)
        self._taken.append((begin, begin + count, last))
        self.size = max(self.size, begin + count)
        return 4 * begin


def _numel(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


OPS = tuple(
    getattr(fused_conv, name)
    for name in ("convolution", "winograd", "depthwise", "linear", "mean", "scale", "max_pool")
)
"""What sequences are made of."""

FRESH = (call_sequence, *OPS)
"""The functions whose results are memory of their own, and that are done with their arguments when they return."""
