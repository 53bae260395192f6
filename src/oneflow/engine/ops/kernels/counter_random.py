"""Random numbers that are a pure function of (seed, step, index): no generator state, no dependence on who computes
them.

``oneflow::random_bits(shape, seed, step)`` hashes the row-major index of each element with two 32-bit keys derived from
(seed, step). An element's bits depend on its index alone, so any part of a tensor can be made on its own:
``oneflow::random_bits_part(whole, start, shape, seed, step)`` gives what slicing the tensor of shape ``whole`` would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from oneflow.engine.ops.row import require

_M32 = (1 << 32) - 1
_M64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SPREAD = 0x9E3779B1
_WIDTH = 1024


def _signed(value: int, bits: int) -> int:
    """The integer whose two's complement pattern is ``value``: torch takes constants only in the range of its signed
    dtypes."""
    return value - (1 << bits) if value >> (bits - 1) else value


def _mix64(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _M64
    return z ^ (z >> 31)


def _xor_shift_(x: Tensor, by: int, scratch: Tensor) -> Tensor:
    """``x ^= x >> by`` with zeros shifted in; torch's shift of signed integers repeats the sign, so it is masked
    off."""
    torch.bitwise_right_shift(x, by, out=scratch)
    scratch.bitwise_and_((1 << (8 * x.element_size() - by)) - 1)
    return x.bitwise_xor_(scratch)


def _keys(seed: int, step: Tensor) -> tuple[Tensor, Tensor]:
    """Two int32 tensors of shape (1,): one half each of the 64-bit hash of seed and step. Stays on the step's
    device."""
    z = step * _signed(_GOLDEN, 64) + _signed(_mix64((seed + _GOLDEN) & _M64), 64)
    scratch = torch.empty_like(z)
    _xor_shift_(z, 30, scratch).mul_(_signed(0xBF58476D1CE4E5B9, 64))
    _xor_shift_(z, 27, scratch).mul_(_signed(0x94D049BB133111EB, 64))
    low, high = _xor_shift_(z, 31, scratch).view(torch.int32).split(1)
    return low, high


def _spread(index: int) -> int:
    """``index * _SPREAD`` as an int32."""
    return _signed(index * _SPREAD & _M32, 32)


def _index(count: int, start: Tensor) -> Tensor:
    """``start + index * _SPREAD`` in int32, for at least ``count`` indices from 0.

    Spreading neighbouring indices over all bits lets two rounds of mixing suffice. The sum of a column and a row is
    many times faster than a long arange.
    """
    row = torch.arange(-(-count // _WIDTH), dtype=torch.int32, device=start.device) * _spread(_WIDTH) + start
    return row[:, None] + torch.arange(_WIDTH, dtype=torch.int32, device=start.device) * _spread(1)


def _mixed(x: Tensor, key: Tensor) -> Tensor:
    """Two rounds of xor-shift and multiply; one key is in x, the other comes before the second. In place: memory is
    passed over 12 times."""
    scratch = torch.empty_like(x)
    _xor_shift_(x, 16, scratch).mul_(0x21F0AAAD).add_(key)
    _xor_shift_(x, 15, scratch).mul_(_signed(0xD35A2D97, 32))
    return _xor_shift_(x, 15, scratch)


def _random_bits(shape: Sequence[int], seed: int, step: Tensor) -> Tensor:
    first, second = _keys(seed, step)
    return _run(prod(shape), first, second).view(list(shape))


def _run(count: int, first: Tensor, second: Tensor) -> Tensor:
    """The bits of ``count`` indices that follow one another; ``first`` holds the first one's."""
    return _mixed(_index(count, first), second).flatten()[:count]


def _fake_random_bits(shape: Sequence[int], seed: int, step: Tensor) -> Tensor:
    return torch.empty(list(shape), dtype=torch.int32, device=step.device)


def _random_bits_part(
    whole: Sequence[int], start: Sequence[int], shape: Sequence[int], seed: int, step: Tensor
) -> Tensor:
    """A part consists of runs of indices that follow one another: all of it, if only the first dim is cut."""
    first, second = _keys(seed, step)
    strides = [prod(whole[dim + 1 :]) for dim in range(len(whole))]
    first = first + _spread(sum(s * stride for s, stride in zip(start, strides)))
    cut = _last_cut(whole, shape)
    if prod(shape[:cut]) == 1:
        return _run(prod(shape), first, second).view(list(shape))
    row = torch.arange(prod(shape[cut:]), dtype=torch.int32, device=step.device) * _spread(1)
    return _mixed(_starts(shape[:cut], strides[:cut], first)[:, None] + row, second).view(list(shape))


def _last_cut(whole: Sequence[int], shape: Sequence[int]) -> int:
    """The last dim that a part does not have in full, or 0: with all dims after it, it is a run."""
    return max((dim for dim, (all_of_it, size) in enumerate(zip(whole, shape)) if size != all_of_it), default=0)


def _starts(shape: Sequence[int], strides: Sequence[int], first: Tensor) -> Tensor:
    """The spread index at which each run begins, in row-major order of the dims before a run."""
    starts = first
    for size, stride in zip(shape, strides):
        steps = torch.arange(size, dtype=torch.int32, device=first.device) * _spread(stride)
        starts = (starts[:, None] + steps).flatten()
    return starts


def _fake_random_bits_part(
    whole: Sequence[int], start: Sequence[int], shape: Sequence[int], seed: int, step: Tensor
) -> Tensor:
    return _fake_random_bits(shape, seed, step)


# The library object must live as long as the op is registered.
_LIBRARY = torch.library.Library("oneflow", "FRAGMENT")
_LIBRARY.define("random_bits(int[] shape, int seed, Tensor step) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("random_bits", _random_bits, "CompositeExplicitAutograd")
_LIBRARY.impl("random_bits", _fake_random_bits, "Meta")
_LIBRARY.define(
    "random_bits_part(int[] whole, int[] start, int[] shape, int seed, Tensor step) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("random_bits_part", _random_bits_part, "CompositeExplicitAutograd")
_LIBRARY.impl("random_bits_part", _fake_random_bits_part, "Meta")


def random_bits(shape: Sequence[int], seed: int, step: Tensor) -> Tensor:
    """Int32 tensor of 32 independent fair bits per element; the same for the same (seed, step, index)."""
    require(prod(shape) < 2**31, f"one random tensor has fewer than 2**31 elements, the shape {tuple(shape)} has more")
    return torch.ops.oneflow.random_bits(list(shape), seed, step)


def uniform(shape: Sequence[int], seed: int, step: Tensor) -> Tensor:
    """Float32 values in [0, 1), multiples of 2**-24."""
    return (random_bits(shape, seed, step) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def bernoulli(shape: Sequence[int], probability: float, seed: int, step: Tensor) -> Tensor:
    """Bool tensor, true with the given probability (exact to 2**-32)."""
    require(0.0 <= probability <= 1.0, f"a probability lies between 0 and 1, got {probability}")
    smallest_true = round((1.0 - probability) * 2**32) - 2**31
    bits = random_bits(shape, seed, step)
    return bits >= smallest_true if smallest_true < 2**31 else torch.zeros_like(bits, dtype=torch.bool)


def stable_seed(*parts: object) -> int:
    """A 63-bit seed from the text of ``parts``: the same in every process and Python version."""
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
