"""Signatures that the rules of many ops have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.rules.named import broadcast_split, replaced
from oneflow.engine.sharding.rules.rule import Local, Localise, Signature, dims_of, is_float

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Lower = Callable[[Local, Call, Args, Kwargs], Any]


def pointwise_splits(call: Call) -> Iterator[Signature]:
    """Each dim of the output split; inputs that have it in full are split there, those that broadcast along it are
    whole."""
    for dim in dims_of(call.out, call.parts):
        outputs = tuple(split(dim) if shape == call.out else BROADCAST for shape in call.outputs)
        yield Signature(tuple(broadcast_split(shape, call.out, dim) for shape in call.shapes), outputs)


def partial_sums(call: Call, *names: str) -> Iterator[Signature]:
    """These inputs partial and the others whole, for an op that is linear in them together; nothing if one is missing
    or no float."""
    places = [call.index(name) for name in names]
    if all(place is not None and is_float(call.inputs[place]) for place in places) and float_outputs(call):
        yield Signature(_only(PARTIAL, places, len(call.inputs)), (PARTIAL,) * len(call.outputs))


def all_partial(call: Call) -> Iterator[Signature]:
    """Every input and output partial, for an op that is linear in all its tensors together."""
    if call.inputs and all(map(is_float, call.inputs)) and float_outputs(call):
        yield Signature((PARTIAL,) * len(call.inputs), (PARTIAL,) * len(call.outputs))


def dim_pairs(call: Call, pairs: Iterable[tuple[int, int]], lower: Lower | None = None) -> Iterator[Signature]:
    """For each pair, dim ``pair[0]`` of every input and dim ``pair[1]`` of every output split. The sizes must be the
    same."""
    for source, target in pairs:
        if call.out[target] >= call.parts:
            yield Signature((split(source),) * len(call.inputs), (split(target),) * len(call.outputs), lower)


def local_size(name: str) -> Localise:
    """For an op whose argument ``name`` is the size of its output: on a rank, that of its part."""

    def localise(local: Local, call: Call, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        return replaced(call, args, kwargs, **{name: list(local.shape())})

    return localise


def other_dims(shape: Sequence[int], used: Iterable[int]) -> list[int]:
    """The dims that an op which works along ``used`` (which may count from the end) leaves alone."""
    taken = {dim % len(shape) for dim in used} if shape else set()
    return [dim for dim in range(len(shape)) if dim not in taken]


def float_outputs(call: Call) -> bool:
    return all(is_float(made) for made in call.results if made is not None)


def _only(layout: Sbp, places: Sequence[int | None], count: int) -> tuple[Sbp, ...]:
    return tuple(layout if i in places else BROADCAST for i in range(count))
