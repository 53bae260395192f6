"""Runs one aten call on the parts of several ranks inside one process, and joins what comes out.

Each rank's nodes are built as the compiler builds them; the ranks are evaluated side by side and meet at their
collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from oneflow.engine import collective
from oneflow.engine.core.region import coordinates, local_shape, region
from oneflow.engine.sharding.call import Call, with_tensors
from oneflow.engine.sharding.mesh import Mesh, NdSbp
from oneflow.engine.sharding.rules.local import RankLocal
from oneflow.engine.sharding.rules.rule import Signature, layouts

aten = torch.ops.aten

_UNSET = {aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default}
_REDUCTIONS = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "product": torch.prod}
_Steps = Generator[tuple[Any, tuple[Any, ...]], Tensor, Any]


def check(
    call: Call, values: Sequence[Tensor], expected: Any, chosen: Sequence[Signature], axes: tuple[int, ...]
) -> None:
    """Asserts that the call, run on parts as one chosen signature per axis says, gives what it gives on whole
    tensors."""
    inputs, outputs = layouts(chosen)
    assert len(inputs) == len(call.inputs) and len(outputs) == len(call.outputs), "a layout for each tensor"
    parts = [cut(value, sbp, axes) for value, sbp in zip(values, inputs)]
    graphs = [rank_graph(call, chosen, axes, position) for position in range(prod(axes))]
    results = lock_step([rank_steps(graph, [part[p] for part in parts]) for p, graph in enumerate(graphs)])
    check_results(call, [*values], results, expected, outputs, axes)


def check_results(
    call: Call,
    values: Sequence[Tensor],
    results: Sequence[Any],
    expected: Any,
    outputs: Sequence[NdSbp],
    axes: tuple[int, ...],
) -> None:
    """Asserts that what the ranks have as the parts of a call's outputs make what is expected."""
    whole = expected if isinstance(expected, (tuple, list)) else (expected,)
    found = [r if isinstance(r, (tuple, list)) else (r,) for r in results]
    for i, value in enumerate(whole):
        if isinstance(value, Tensor):
            copies = join([f[i] for f in found], value, outputs[i], axes)
            if call.op not in _UNSET:
                _assert_equal(copies[0], value, _nearness([*values, value]))
                assert all(torch.allclose(copy, copies[0], 0, 0, True) for copy in copies[1:]), (
                    "all ranks have the same"
                )


def rank_graph(call: Call, chosen: Sequence[Signature], axes: tuple[int, ...], position: int) -> fx.Graph:
    """The nodes of one rank, with a placeholder for each tensor argument."""
    assert len({signature.lower for signature in chosen} - {None}) <= 1, "one lowering at a time"
    graph = fx.Graph()
    args, kwargs = with_tensors((tuple(call.args), dict(call.kwargs)), lambda _: graph.placeholder("x"))
    graph.output(RankLocal(graph, call, chosen, Mesh(tuple(range(prod(axes))), axes), position).emit(args, kwargs))
    return graph


def cut(value: Tensor, sbp: NdSbp, axes: tuple[int, ...]) -> list[Tensor]:
    """The part of each position: slices of split dims, and random terms of a sum where the layout is partial."""
    sums = [extent if layout.kind == "P" else 1 for layout, extent in zip(sbp, axes)]
    terms = dict(zip(product(*map(range, sums)), _terms(value, prod(sums))))
    parts = []
    for position in range(prod(axes)):
        place = coordinates(position, axes)
        term = terms[tuple(here if count > 1 else 0 for here, count in zip(place, sums))]
        parts.append(term[_slices(value.shape, sbp, axes, position)].clone(memory_format=torch.contiguous_format))
    return parts


def _terms(value: Tensor, count: int) -> list[Tensor]:
    if count == 1:
        return [value]
    generator = torch.Generator().manual_seed(count)
    others = [torch.randn(value.shape, generator=generator).to(value.dtype) for _ in range(count - 1)]
    return [value - sum(others), *others]


def _slices(shape: Sequence[int], sbp: NdSbp, axes: tuple[int, ...], position: int) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in region(shape, sbp, axes, position))


def join(parts: Sequence[Tensor], expected: Tensor, sbp: NdSbp, axes: tuple[int, ...]) -> list[Tensor]:
    """The whole tensors that the parts of all positions make; several where every rank along some axis has one."""
    copies: dict[tuple[int, ...], Tensor] = {}
    partial = any(layout.kind == "P" for layout in sbp)
    assert not partial or expected.dtype.is_floating_point, "only floats are partial sums"
    for position, part in enumerate(parts):
        assert tuple(part.shape) == local_shape(expected.shape, sbp, axes, position), (part.shape, sbp, position)
        assert part.dtype == expected.dtype, (part.dtype, expected.dtype)
        copy = tuple(here for here, layout in zip(coordinates(position, axes), sbp) if layout.kind == "B")
        total = copies.setdefault(copy, torch.zeros_like(expected, memory_format=torch.contiguous_format))
        here = _slices(expected.shape, sbp, axes, position)
        total[here] = total[here] + part if partial else part
    return list(copies.values())


def _nearness(tensors: Iterable[Tensor]) -> float:
    """How near results must come: to the rounding of the coarsest dtype among the tensors."""
    floats = [torch.finfo(t.dtype).eps for t in tensors if t.dtype.is_floating_point]
    return 1e-2 if floats and max(floats) > 1e-6 else 1e-4


def _assert_equal(found: Tensor, expected: Tensor, near: float) -> None:
    """Equal up to the rounding of sums taken in another order, whose terms may be larger than they are."""
    if not expected.dtype.is_floating_point:
        assert torch.equal(found, expected), (found, expected)
        return
    finite = expected[torch.isfinite(expected)].double().abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    assert torch.allclose(found, expected, near, near * scale / 5, True), (found, expected)


def lock_step(ranks: Sequence[_Steps], meet: Callable[..., Iterable[Tensor]] | None = None) -> list[Any]:
    """The results of all ranks, each collective computed once all members of its group have come to it: by ``meet``,
    which gets the collective and the arguments of each member, or else reductions alone."""
    results: list[Any] = [None] * len(ranks)
    waiting: dict[int, tuple[Any, tuple[Any, ...]]] = {}
    answers: dict[int, Tensor | None] = dict.fromkeys(range(len(ranks)))
    while answers:
        for position, answer in answers.items():
            try:
                waiting[position] = ranks[position].send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                results[position] = end.value
        answers = {}
        for group in _complete(waiting):
            answers.update(zip(group, (meet or _collective)(*_agreed([waiting.pop(member) for member in group]))))
    assert not waiting, f"ranks {sorted(waiting)} wait for others that never come"
    return results


def _complete(waiting: dict[int, tuple[Any, tuple[Any, ...]]]) -> Iterator[tuple[int, ...]]:
    for group in sorted({args[-1] for _, args in waiting.values()}):
        if all(member in waiting and waiting[member][1][-1] == group for member in group):
            yield group


def _agreed(calls: Sequence[tuple[Any, tuple[Any, ...]]]) -> tuple[Any, list[tuple[Any, ...]]]:
    """The collective to which all members have come, and the arguments of each."""
    target, _ = calls[0]
    assert all(other is target for other, _ in calls), "all members call the same collective"
    return target, [args for _, args in calls]


def _collective(target: Any, calls: Sequence[tuple[Any, ...]]) -> Iterable[Tensor]:
    """What each member gets; they must agree on the kind of the collective, the shape and the dtype."""
    args, values = calls[0], [args[0] for args in calls]
    assert all(other[1:] == args[1:] for other in calls), "all members call the same collective"
    assert len({(v.shape, v.dtype) for v in values}) == 1, "all members bring equal shapes and dtypes"
    stacked = torch.stack(values)
    assert stacked.dtype != torch.bool, "truth values cannot be reduced"
    return [_REDUCTIONS[args[1]](stacked, dim=0).to(stacked.dtype)] * len(values)


def rank_steps(graph: fx.Graph, inputs: Sequence[Tensor]) -> _Steps:
    """Evaluates one rank's graph; yields each collective that it comes to and is sent its result."""
    env: dict[fx.Node, Any] = {}
    feeds = iter(inputs)
    for node in graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "placeholder":
            env[node] = next(feeds)
        elif node.op == "output":
            return args[0]
        elif node.target is collective.all_reduce:
            env[node] = yield node.target, args
        else:
            env[node] = node.target(*args, **kwargs)
    raise AssertionError("a graph ends in an output")
