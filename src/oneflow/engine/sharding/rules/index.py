"""Reads and writes at indices.

Dims that indices do not touch, and in which all tensors are aligned, can be split. Indices can be split where what they
read is whole. The indexed dim itself can be split (the rows of an embedding): each rank answers for the indices in its
own range, and reads give partial sums. Reads are linear in the data; additions are linear in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from oneflow.engine.core.sbp import PARTIAL, Sbp, split
from oneflow.engine.ops.kernels import part
from oneflow.engine.sharding.call import Call, Shape
from oneflow.engine.sharding.rules.named import arguments, broadcast_split, shape_of, signature
from oneflow.engine.sharding.rules.patterns import other_dims, partial_sums
from oneflow.engine.sharding.rules.rule import Local, Rules, Signature, Value

aten = torch.ops.aten

RULES = Rules()


@RULES.rule(aten.gather.default)
def gather(call: Call) -> Iterator[Signature]:
    """out[i, j] = x[index[i, j], j]: aligned dims; the index along ``dim``; x along ``dim``, each rank its range."""
    for dim in _aligned(call, "self", "index"):
        yield signature(call, (split(dim),), self=split(dim), index=split(dim))
    yield from _reads(call, split(_dim(call)))


@RULES.rule(aten.index_select.default)
def index_select(call: Call) -> Iterator[Signature]:
    """out[i] = x[index[i]] along ``dim``: other dims of x; the index; x along ``dim``, each rank its range."""
    for dim in _others(call):
        yield signature(call, (split(dim),), self=split(dim))
    yield from _reads(call, split(0))


def _reads(call: Call, index: Sbp) -> Iterator[Signature]:
    """The signatures of a read along ``dim`` by an index that can be split as given."""
    if not call.out:
        return
    dim = _dim(call)
    if call.out[dim] >= call.parts:
        yield signature(call, (split(dim),), index=index)
    if call.shapes[0][dim] >= call.parts and call.dtype.is_floating_point:
        yield signature(call, (PARTIAL,), _lower_read, self=split(dim))
    yield from partial_sums(call, "self")


@RULES.rule(aten.scatter_add.default)
def scatter_add(call: Call) -> Iterator[Signature]:
    """x[index[i, j], j] += src[i, j]: aligned dims; terms of the sum along ``dim``; x along ``dim``, each rank its
    range."""
    for dim in _aligned(call, "self", "index", "src"):
        yield signature(call, (split(dim),), self=split(dim), index=split(dim), src=split(dim))
    if call.out and len(_aligned_sizes(call, _dim(call), "index", "src")) == 1:
        yield from _additions(call, split(_dim(call)), "src")


@RULES.rule(aten.index_add.default)
def index_add(call: Call) -> Iterator[Signature]:
    """x[index[i]] += source[i] along ``dim``: other dims; terms of the sum; x along ``dim``, each rank its range."""
    for dim in _others(call):
        yield signature(call, (split(dim),), self=split(dim), source=split(dim))
    if call.out:
        yield from _additions(call, split(0), "source")


def _additions(call: Call, index: Sbp, source: str) -> Iterator[Signature]:
    """The signatures of an addition along ``dim`` of a source, by an index that can be split as given."""
    dim, added = split(_dim(call)), shape_of(call, source)
    if added and added[_dim(call)] >= call.parts and call.dtype.is_floating_point:
        yield signature(call, (PARTIAL,), **{"self": PARTIAL, "index": index, source: dim})
    if call.out[_dim(call)] >= call.parts:
        yield signature(call, (dim,), _lower_addition, self=dim)
    yield from partial_sums(call, "self", source)


@RULES.rule(aten.scatter.src, aten.scatter.value)
def scatter(call: Call) -> Iterator[Signature]:
    """x[index[i, j], j] = src[i, j]: aligned dims."""
    names = [name for name in ("self", "index", "src") if call.index(name) is not None]
    for dim in _aligned(call, *names):
        yield signature(call, (split(dim),), **dict.fromkeys(names, split(dim)))


@RULES.rule(aten.index.Tensor)
def index(call: Call) -> Iterator[Signature]:
    """out[i] = x[index[i], ...] with numbers for the first dims of x: the dims after them; the dims of the indices; an
    indexed dim, each rank its range."""
    places = _leading_indices(call)
    if not places:
        return
    x, count = call.shapes[0], len(places)
    rank = len(call.out) - (len(x) - count)
    for dim in (d for d in range(count, len(x)) if x[d] >= call.parts):
        yield signature(call, (split(dim - count + rank),), self=split(dim))
    for dim in (d for d in range(rank) if call.out[d] >= call.parts):
        yield _with_indices(signature(call, (split(dim),)), call, places, call.out[:rank], dim)
    for dim in (d for d in range(count) if x[d] >= call.parts and call.dtype.is_floating_point):
        yield signature(call, (PARTIAL,), _lower_index, self=split(dim))
    yield from partial_sums(call, "self")


@RULES.rule(aten.index_put.default)
def index_put(call: Call) -> Iterator[Signature]:
    """x[index[i], ...] = values[i] (or +=) with numbers for the first dims of x: the dims after them; an indexed dim,
    each rank its range; for += the terms of the sum."""
    places = _leading_indices(call)
    if not places:
        return
    x, count = call.out, len(places)
    block = tuple(torch.broadcast_shapes(*[call.shapes[place] for place in places]))
    values, written = shape_of(call, "values"), (*block, *x[count:])
    for dim in (d for d in range(count, len(x)) if x[d] >= call.parts):
        yield signature(
            call, (split(dim),), self=split(dim), values=broadcast_split(values, written, dim - count + len(block))
        )
    for dim in (d for d in range(count) if x[d] >= call.parts):
        yield signature(call, (split(dim),), _lower_index_put, self=split(dim))
    if not call.arg("accumulate") or not call.dtype.is_floating_point:
        return
    for dim in (d for d in range(len(block)) if block[d] >= call.parts):
        terms = signature(call, (PARTIAL,), self=PARTIAL, values=broadcast_split(values, written, dim))
        yield _with_indices(terms, call, places, block, dim)
    yield from partial_sums(call, "self", "values")


@RULES.rule(aten.embedding.default)
def embedding(call: Call) -> Iterator[Signature]:
    """out[i, j] = weight[index[i], j]: dims of the index; columns; rows, each rank its range."""
    (rows, columns), index = shape_of(call, "weight"), shape_of(call, "indices")
    for dim in (d for d, size in enumerate(index) if size >= call.parts):
        yield signature(call, (split(dim),), indices=split(dim))
    if columns >= call.parts:
        yield signature(call, (split(len(index)),), weight=split(1))
    if rows >= call.parts:
        yield signature(call, (PARTIAL,), _lower_embedding, weight=split(0))
    yield from partial_sums(call, "weight")


@RULES.rule(aten.embedding_dense_backward.default)
def embedding_backward(call: Call) -> Iterator[Signature]:
    """out[index[i], j] += grad[i, j]: terms of the sum; columns; rows, each rank its range. Not where a row is divided
    by how often it was read: then all ranks have to count."""
    index, (rows, columns) = shape_of(call, "indices"), call.out
    if columns >= call.parts:
        yield signature(call, (split(1),), grad_output=split(len(index)))
    yield from partial_sums(call, "grad_output")
    if call.arg("scale_grad_by_freq"):
        return
    for dim in (d for d, size in enumerate(index) if size >= call.parts):
        yield signature(call, (PARTIAL,), grad_output=split(dim), indices=split(dim))
    if rows >= call.parts:
        yield signature(call, (split(0),), _lower_embedding_backward)


def _leading_indices(call: Call) -> list[int]:
    """The places among the inputs of the indices, where they are numbers for the first dims; else nothing."""
    indices = call.arg("indices")
    if any(index is None or index.dtype == torch.bool for index in indices):
        return []
    return [1 + i for i in range(len(indices))]


def _with_indices(found: Signature, call: Call, places: list[int], block: Shape, dim: int) -> Signature:
    """A signature whose indices, which broadcast to the shape ``block``, are split with its dim ``dim``."""
    inputs = list(found.inputs)
    for place in places:
        inputs[place] = broadcast_split(call.shapes[place], block, dim)
    return Signature(tuple(inputs), found.outputs)


def _dim(call: Call) -> int:
    return call.arg("dim") % max(len(call.out), 1)


def _others(call: Call) -> list[int]:
    return [dim for dim in other_dims(call.out, [_dim(call)]) if call.out[dim] >= call.parts]


def _aligned(call: Call, *names: str) -> list[int]:
    """The dims other than ``dim`` in which all these tensors have one size, and which can be split."""
    return [dim for dim in _others(call) if len(_aligned_sizes(call, dim, *names)) == 1]


def _aligned_sizes(call: Call, dim: int, *names: str) -> set[int]:
    return {shape[dim] for shape in (shape_of(call, name) for name in names) if shape}


def _lower_read(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named, dim = arguments(call, args, kwargs), _dim(call)
    read = part.gather if call.op is aten.gather.default else part.index_select
    return local.call(read, named["self"], dim, named["index"], local.input_start(0)[dim], call.shapes[0][dim])


def _lower_addition(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named, dim = arguments(call, args, kwargs), _dim(call)
    where = local.input_start(0)[dim], call.shapes[0][dim]
    if call.op is aten.scatter_add.default:
        return local.call(part.scatter_add, named["self"], dim, named["index"], named["src"], *where)
    return local.call(part.index_add, named["self"], dim, named["index"], named["source"], named["alpha"], *where)


def _lower_embedding(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    return local.call(part.embedding, args[0], args[1], local.input_start(0)[0], call.shapes[0][0])


def _lower_embedding_backward(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named = arguments(call, args, kwargs)
    return local.call(
        part.embedding_gradient,
        named["grad_output"],
        named["indices"],
        named["padding_idx"],
        local.shape()[0],
        local.start()[0],
        call.out[0],
    )


def _lower_index(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    return local.call(part.index, args[0], args[1], *_ranges(local, call))


def _lower_index_put(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    named = arguments(call, args, kwargs)
    return local.call(part.index_put, args[0], args[1], args[2], named["accumulate"], *_ranges(local, call))


def _ranges(local: Local, call: Call) -> tuple[list[int], list[int]]:
    """Where this rank's part begins in each indexed dim, and the whole sizes of these dims."""
    count = len(call.arg("indices"))
    return list(local.input_start(0)[:count]), list(call.shapes[0][:count])
