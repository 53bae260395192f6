"""Matrix products.

A product is an equation over letters, one per dim: out[m, n] = sum over k of a[m, k] b[k, n]. Each letter can be split:
where it is a dim of the output, the output is split; where it is summed over, each rank has a partial sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.named import broadcast_split, shape_of, signature
from oneflow.engine.sharding.rules.rule import Rules, Signature

aten = torch.ops.aten

RULES = Rules()


@RULES.rule(aten.mm.default)
def mm(call: Call) -> Iterator[Signature]:
    """Rows, columns and the summed dim can be split; a product is linear in each factor."""
    return _product(call, "self mk, mat2 kn, mn")


@RULES.rule(aten.bmm.default)
def bmm(call: Call) -> Iterator[Signature]:
    """As ``mm``, and each matrix of the batch by itself."""
    return _product(call, "self bmk, mat2 bkn, bmn")


@RULES.rule(aten.addmm.default)
def addmm(call: Call) -> Iterator[Signature]:
    """As ``mm``. What is added follows the output; to partial sums it comes as partial sums, so that it is added
    once."""
    return _product(call, "mat1 mk, mat2 kn, mn", added="self")


@RULES.rule(aten.baddbmm.default)
def baddbmm(call: Call) -> Iterator[Signature]:
    """As ``bmm``, with an addend as in ``addmm``."""
    return _product(call, "batch1 bmk, batch2 bkn, bmn", added="self")


@RULES.rule(aten.mv.default)
def mv(call: Call) -> Iterator[Signature]:
    """Rows and the summed dim can be split; linear in each factor."""
    return _product(call, "self mk, vec k, m")


@RULES.rule(aten.dot.default)
def dot(call: Call) -> Iterator[Signature]:
    """A sum over its only dim; linear in each factor."""
    return _product(call, "self k, tensor k, ")


def _product(call: Call, equation: str, added: str | None = None) -> Iterator[Signature]:
    """The signatures of a product: "name letters, name letters, letters of the output"."""
    first, second, out = equation.split(", ")
    factors = dict(factor.split(" ") for factor in (first, second))
    sizes = _sizes(call, factors)
    for letter in (x for x, size in sizes.items() if size >= call.parts):
        if letter in out:
            yield _signature(
                call, {n: _where(letter, dims) for n, dims in factors.items()}, split(out.index(letter)), added
            )
        elif call.dtype.is_floating_point:
            yield _signature(call, {n: _where(letter, dims) for n, dims in factors.items()}, PARTIAL, added)
    if call.dtype.is_floating_point:
        for partial in factors:
            yield _signature(call, {n: PARTIAL if n == partial else BROADCAST for n in factors}, PARTIAL, added)


def _sizes(call: Call, factors: dict[str, str]) -> dict[str, int]:
    """The size of each letter's dim."""
    return {letter: size for name, dims in factors.items() for letter, size in zip(dims, shape_of(call, name))}


def _where(letter: str, dims: str) -> Sbp:
    return split(dims.index(letter)) if letter in dims else BROADCAST


def _signature(call: Call, factors: dict[str, Sbp], out: Sbp, added: str | None) -> Signature:
    inputs = dict(factors)
    if added is not None:
        inputs[added] = PARTIAL if out.dim is None else broadcast_split(shape_of(call, added), call.out, out.dim)
    return signature(call, (out,), **inputs)
