"""Elements, shapes and positions, as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.eager import index
from oneflow.engine.eager.index import scatter_nd

Bounds = Sequence[int]


def T(input: torch.Tensor) -> torch.Tensor:
    """The dims in reverse order."""
    return input.permute(*reversed(range(input.dim())))


def addcdiv_(input: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """Adds value * tensor1 / tensor2 in place."""
    return input.addcdiv_(tensor1, tensor2, value=value)


def addcmul_(input: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """Adds value * tensor1 * tensor2 in place."""
    return input.addcmul_(tensor1, tensor2, value=value)


def amp_white_identity(x: torch.Tensor) -> torch.Tensor:
    """x; under autocast in the dtype that autocast computes in."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if x.is_floating_point() and torch.is_autocast_enabled(device) else x


def amp_black_identity(x: torch.Tensor) -> torch.Tensor:
    """x; under autocast in float32."""
    return x.float() if x.is_floating_point() and torch.is_autocast_enabled(x.device.type) else x


def arg_sort(input: torch.Tensor, direction: str = "ASCENDING") -> torch.Tensor:
    """The positions, int32, that put the last dim in order."""
    return input.argsort(dim=-1, descending=direction == "DESCENDING", stable=True).int()


def assign_local_tensor(ref: torch.Tensor, value: torch.Tensor) -> None:
    """Writes ``value`` into ``ref``, outside of gradients."""
    ref.detach().copy_(value)


def bernoulli_(input: torch.Tensor, p: Any = 0.5, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draws ones with the probability p, and zeros, in place."""
    return input.bernoulli_(p, generator=generator)


def constant(shape: Sequence[int], value: float, *, dtype: torch.dtype, device: Any = None) -> torch.Tensor:
    """``value`` everywhere."""
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


def tensor_constant(
    shape: Sequence[int], value: torch.Tensor, *, dtype: torch.dtype, device: Any = None
) -> torch.Tensor:
    """The one element of ``value`` everywhere."""
    return value.to(dtype=dtype, device=device).reshape(()).expand(tuple(shape)).clone()


def contiguous_(input: torch.Tensor) -> torch.Tensor:
    """Puts the tensor into row-major memory, in place."""
    input.data = input.data.contiguous()
    return input


def copy(x: torch.Tensor, device_type: str, device_id: int, pin_memory: bool = False) -> torch.Tensor:
    """A copy on a device."""
    made = x.to(device_type if device_type == "cpu" else f"{device_type}:{device_id}", copy=True)
    return made.pin_memory() if pin_memory else made


def expand_dims(input: torch.Tensor, dim: int) -> torch.Tensor:
    """A new dim of size 1 at ``dim``."""
    return input.unsqueeze(dim)


def exponential_(input: torch.Tensor, lambd: float = 1.0, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draws from the exponential distribution, in place."""
    return input.exponential_(lambd, generator=generator)


def uniform_(x: torch.Tensor, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """Draws uniformly between two numbers, in place."""
    return x.detach().uniform_(low, high)


def eye_(x: torch.Tensor) -> torch.Tensor:
    """Writes ones on the diagonal and zeros elsewhere."""
    return torch.nn.init.eye_(x)


def gather(x: torch.Tensor, indices: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """The slices of x along ``axis`` that ``indices`` name, in the shape of ``indices`` there."""
    axis %= x.dim()
    return x.index_select(axis, indices.flatten()).reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def dim_gather(input: torch.Tensor, dim: int, index: torch.Tensor, sparse_grad: bool = False) -> torch.Tensor:
    """For each element of ``index`` the element of ``input`` at that position along ``dim``."""
    return torch.gather(input, dim, index.long())


def identity(x: torch.Tensor) -> torch.Tensor:
    """x."""
    return x


def mul_(input: torch.Tensor, other: Any) -> torch.Tensor:
    """Multiplies in place."""
    return input.mul_(other)


def triu_(x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """Writes zeros below a diagonal."""
    return x.triu_(diagonal)


def one_hot(input: torch.Tensor, num_classes: int = -1, on_value: Any = 1, off_value: Any = 0) -> torch.Tensor:
    """A new last dim with ``on_value`` at the place the index names and ``off_value`` elsewhere."""
    marked = torch.nn.functional.one_hot(input.long(), num_classes) != 0
    dtype = torch.float32 if isinstance(on_value, float) or isinstance(off_value, float) else torch.int64
    return torch.where(marked, torch.tensor(on_value, dtype=dtype), torch.tensor(off_value, dtype=dtype))


def pin_memory(input: torch.Tensor) -> torch.Tensor:
    """A copy in page-locked memory."""
    return input.pin_memory()


def reciprocal_no_nan(x: torch.Tensor) -> torch.Tensor:
    """1 / x, and 0 where x is 0."""
    return torch.where(x == 0, torch.zeros_like(x), torch.where(x == 0, torch.ones_like(x), x).reciprocal())


def reshape_like(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """x under the shape of ``like``."""
    return x.reshape(like.shape)


def scatterndlike(like: torch.Tensor, index: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Zeros of the shape of ``like`` with ``update`` added at positions along the last dim of the index."""
    return scatter_nd(index, update, like.shape)


def select_top_n(inputs: Sequence[torch.Tensor], n: int) -> tuple[torch.Tensor, ...]:
    """The first ``n`` tensors."""
    return tuple(inputs[:n])


def slice(x: torch.Tensor, start: Bounds, stop: Bounds, step: Bounds) -> torch.Tensor:
    """Slices by lists of starts, stops and steps."""
    return index.slice(x, list(zip(start, stop, step)))


def slice_update(
    ref: torch.Tensor, value: torch.Tensor, start: Bounds, stop: Bounds, step: Bounds, inplace: bool = False
) -> torch.Tensor:
    """``ref``, or a copy unless ``inplace``, with ``value`` in its slices."""
    return index.slice_update(ref if inplace else ref.clone(), value, list(zip(start, stop, step)))


def slice_view_1d_contiguous(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """A part of a tensor of one dim, in the same memory."""
    return x[start:end]


def split_like(x: torch.Tensor, like: Sequence[torch.Tensor], axis: int = 0) -> tuple[torch.Tensor, ...]:
    """x cut along ``axis`` into parts as long as those of ``like``."""
    return x.split([one.shape[axis] for one in like], axis)


def tensor_setitem(x: torch.Tensor, index: Any, value: Any) -> None:
    """x[index] = value."""
    x[index] = value


def to(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """x on another device or in another dtype."""
    return x.to(*args, **kwargs)


def trunc_divide(x: torch.Tensor, y: Any) -> torch.Tensor:
    """x / y with the fraction dropped."""
    return torch.div(x, y, rounding_mode="trunc")


def unfold_tensor(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Windows of ``size`` along a dim, each as a new last dim."""
    return x.unfold(dimension, size, step)


def unsorted_segment_sum(x: torch.Tensor, segment_ids: torch.Tensor, axis: int, num_segments: int) -> torch.Tensor:
    """Sums of the slices of x that have the same id along ``axis``."""
    shape = [*x.shape[:axis], num_segments, *x.shape[axis + segment_ids.dim() :]]
    flat = x.flatten(axis, axis + segment_ids.dim() - 1)
    return x.new_zeros(shape).index_add(axis, segment_ids.flatten().long(), flat)


def pack_padded_sequence(
    input: torch.Tensor, lengths: torch.Tensor, batch_first: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of sequences, longest first, step by step, and how many sequences each step has."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


def cosh_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradient of cosh at x."""
    return dy * x.sinh()


def sigmoid_grad(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradient of sigmoid from its result y."""
    return dy * y * (1 - y)


def tan_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradient of tan at x."""
    return dy * (1 + x.tan().square())


def tanh_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradient of tanh at x."""
    return dy * (1 - x.tanh().square())


def _axes(x: torch.Tensor, axis: Any) -> tuple[int, ...]:
    return tuple(range(x.dim())) if axis is None or axis == [] else (axis,) if isinstance(axis, int) else tuple(axis)


def reduce_sum(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The sum along axes, all if none are given."""
    return x.sum(_axes(x, axis), keepdims)


def reduce_nansum(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The sum of what is a number."""
    return x.nansum(_axes(x, axis), keepdims)


def reduce_mean(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The mean along axes."""
    return x.mean(_axes(x, axis), keepdims)


def reduce_max(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The greatest along axes."""
    return x.amax(_axes(x, axis), keepdims)


def reduce_min(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The least along axes."""
    return x.amin(_axes(x, axis), keepdims)


def reduce_all(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """Whether all are true along axes."""
    return x.all(_axes(x, axis), keepdims)


def reduce_any(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """Whether one is true along axes."""
    return x.any(_axes(x, axis), keepdims)


def reduce_prod(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The product along axes."""
    for dim in sorted((d % x.dim() for d in _axes(x, axis)), reverse=True):
        x = x.prod(dim, keepdims)
    return x


def reduce_sum_like(x: torch.Tensor, like: torch.Tensor, axis: Any) -> torch.Tensor:
    """The sum along axes, in the shape of ``like``."""
    return x.sum(_axes(x, axis)).reshape(like.shape)


def sqrt_square_sum(x: torch.Tensor) -> torch.Tensor:
    """The root of the sum of squares."""
    return x.square().sum().sqrt()
