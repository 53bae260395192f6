"""Rules, costs and boxing with tensors as the values: ranks in lock step, op by op, without any graph."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import made_calls
import made_network_calls
import pytest
import torch
from at_once import Rank, together
from lockstep import check_results, cut, join
from torch import Tensor, fx
from traced import Executed, made

import oneflow.engine.sharding
from oneflow.engine import collective
from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.program.calls import call_of, tensor_arguments
from oneflow.engine.sharding import cost
from oneflow.engine.sharding.boxing import Crossing, box
from oneflow.engine.sharding.call import Call, key_of, nbytes, tensors_in, with_tensors
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp
from oneflow.engine.sharding.rules.local import RankLocal
from oneflow.engine.sharding.rules.rule import Signature, layouts, whole
from oneflow.engine.sharding.rules.table import RULES, rule_of

aten = torch.ops.aten
FAMILIES = made_calls.FAMILIES | made_network_calls.FAMILIES
LAYOUTS = (BROADCAST, PARTIAL, split(0), split(1))
X = made_calls.signed(7, 6)

# ------------------------------------------------------------------ rules


def on_ranks(one: Executed, chosen: list[Signature], axes: tuple[int, ...]) -> None:
    """Runs a call on the parts of all ranks and compares."""
    call, mesh = one.call(prod(axes)), Mesh(tuple(range(prod(axes))), axes)
    inputs, outputs = layouts(chosen)
    parts = [cut(value, sbp, axes) for value, sbp in zip(one.values, inputs)]

    def program(rank: Rank) -> Any:
        mine = iter([part[rank.rank].clone() for part in parts])
        args, kwargs = with_tensors((one.args, one.kwargs), lambda _: next(mine))
        return RankLocal(rank, call, chosen, mesh, rank.rank).emit(args, kwargs)

    results = together(mesh.ranks, program)
    check_results(call, one.values, [results[rank] for rank in mesh.ranks], one.result, outputs, axes)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "pointwise"])
def test_every_signature_runs_at_once_on_tensors(family: str) -> None:
    for one in FAMILIES[family]():
        for parts in (2, 4):
            for signature in RULES[one.op].signatures(one.call(parts)):
                on_ranks(one, [signature], (parts,))


@pytest.mark.parametrize("family", ["product", "softmax", "batch norm", "nll loss", "random"])
def test_a_signature_on_both_of_two_axes_runs_at_once_on_tensors(family: str) -> None:
    for one in FAMILIES[family]():
        for signature in RULES[one.op].signatures(one.call(4)):
            on_ranks(one, [signature, signature], (2, 2))
            on_ranks(one, [whole(one.call(4)), signature], (2, 2))


def test_a_wrong_signature_is_found_out() -> None:
    with pytest.raises(AssertionError):
        on_ranks(made(aten.mean.dim, X, [0]), [Signature((split(0),), (PARTIAL,))], (2,))


# ------------------------------------------------------------------ boxing

MESHES = {"two": Mesh((1, 0), (2,)), "four": Mesh((3, 0, 2, 1), (4,)), "two by two": Mesh((3, 0, 2, 1), (2, 2))}


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_every_change_of_layout_runs_at_once_on_tensors(mesh: Mesh) -> None:
    """Each step begins where the one before has ended, and the last ends where it was asked to."""
    for source, target in product(product(LAYOUTS, repeat=len(mesh.axes)), repeat=2):
        parts = cut(X, source, mesh.axes)

        def program(rank: Rank) -> tuple[Tensor, list[Any]]:
            mine = parts[mesh.ranks.index(rank.rank)]  # noqa: B023 - called before the next round
            ends = Layout(mesh, source), Layout(mesh, target)  # noqa: B023
            return box(rank.box_call, rank.rank, mine, tuple(X.shape), X.dtype, *ends), rank.steps

        results = together(mesh.ranks, program)
        assert_makes([results[rank][0] for rank in mesh.ranks], target, mesh)
        for _, steps in results.values():
            ends = [source, *(step[2].sbp for step in steps)]
            assert [step[1].sbp for step in steps] == ends[:-1] and ends[-1] == target


def assert_makes(parts: list[Tensor], sbp: NdSbp, mesh: Mesh) -> None:
    copies = join(parts, X, sbp, mesh.axes)
    for copy in copies:
        torch.testing.assert_close(copy, X)


def test_a_sum_over_two_axes_is_one_sum_over_all_their_ranks() -> None:
    mesh = MESHES["two by two"]
    parts = cut(X, (PARTIAL, PARTIAL), mesh.axes)

    def program(rank: Rank) -> list[Any]:
        ends = Layout(mesh, (PARTIAL, PARTIAL)), Layout(mesh, (BROADCAST, BROADCAST))
        box(rank.box_call, rank.rank, parts[mesh.ranks.index(rank.rank)], tuple(X.shape), X.dtype, *ends)
        return [function for function, *_ in rank.steps]

    assert set(map(tuple, together(mesh.ranks, program).values())) == {(collective.all_reduce,)}


def drawn_layout(choose: random.Random) -> Layout:
    axes = choose.choice([(1,), (2,), (4,), (2, 2)])
    members = choose.sample(range(6), prod(axes))
    return Layout(Mesh(tuple(members), axes), tuple(choose.choice(LAYOUTS) for _ in axes))


@pytest.mark.parametrize("seed", range(40))
def test_values_go_to_other_meshes_at_once_as_tensors(seed: int) -> None:
    """Also those that are partial sums on either side; a rank of neither mesh does nothing."""
    choose = random.Random(seed)
    source, target = drawn_layout(choose), drawn_layout(choose)
    parts = cut(X, source.sbp, source.mesh.axes)

    def program(rank: Rank) -> Tensor | None:
        position = source.mesh.position(rank.rank)
        mine = None if position is None else parts[position]
        return box(rank.box_call, rank.rank, mine, tuple(X.shape), X.dtype, source, target, Crossing(7, "cpu"))

    results = together(range(6), program)
    assert [rank for rank, value in results.items() if value is not None] == sorted(target.mesh.ranks)
    assert_makes([results[rank] for rank in target.mesh.ranks], target.sbp, target.mesh)


@pytest.mark.parametrize("written", [False, True])
def test_what_may_be_written_while_it_is_sent_is_copied_first(written: bool) -> None:
    source, target = (Layout(Mesh((rank,), (1,)), (BROADCAST,)) for rank in (0, 1))

    def program(rank: Rank) -> list[Any]:
        crossing = Crossing(7, "cpu", written)
        box(rank.box_call, rank.rank, X if rank.rank == 0 else None, tuple(X.shape), X.dtype, source, target, crossing)
        return [(function, *ends) for function, *ends in rank.steps]

    sent = [aten.clone.default, collective.exchange] if written else [collective.exchange]
    assert together(range(2), program) == {
        0: [(call, source, target) for call in sent],
        1: [(collective.exchange, source, target)],
    }


def test_another_mesh_needs_a_crossing() -> None:
    source, target = (Layout(Mesh((rank,), (1,)), (BROADCAST,)) for rank in (0, 1))
    with pytest.raises(AssertionError, match=r"from B on \[0\] to B on \[1\], another mesh, and needs a crossing"):
        box(Rank(0).box_call, 0, X, tuple(X.shape), X.dtype, source, target)


# ------------------------------------------------------------------ op by op


@dataclass(frozen=True)
class Shard:
    """One rank's part of a tensor. It has the shape and dtype of the whole, and so describes it."""

    local: Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    sbp: Sbp


def run(rank: Rank, mesh: Mesh, op: Any, *args: Any) -> Shard:
    """An op on shards, in the way that costs least now."""
    result = op(*with_tensors(args, lambda shard: torch.empty(shard.shape, dtype=shard.dtype, device="meta")))
    call, given, rule = Call(op, args, {}, result, mesh.size), tensors_in(args), rule_of(op)
    options = [whole(call), *(rule.signatures(call) if rule is not None else ())]
    prices = [
        price
        + sum(cost.change((shard.sbp,), (sbp,), nbytes(shard), mesh.axes) for shard, sbp in zip(given, option.inputs))
        for option, price in zip(options, cost.work(call, options, mesh.size, 1.0))
    ]
    best = options[prices.index(min(prices))]
    boxed = iter([to_sbp(rank, mesh, shard, sbp) for shard, sbp in zip(given, best.inputs)])
    local = RankLocal(rank, call, [best], mesh, rank.rank).emit(with_tensors(args, lambda _: next(boxed)), {})
    return Shard(local, tuple(result.shape), result.dtype, best.outputs[0])


def to_sbp(rank: Rank, mesh: Mesh, shard: Shard, sbp: Sbp) -> Tensor:
    moved = box(
        rank.box_call,
        rank.rank,
        shard.local,
        shard.shape,
        shard.dtype,
        Layout(mesh, (shard.sbp,)),
        Layout(mesh, (sbp,)),
    )
    assert moved is not None
    return moved


WAYS = {
    "data parallel": ((split(0), BROADCAST, BROADCAST), "S(0) S(0) S(0) S(0) P"),
    "columns, then rows": ((BROADCAST, split(1), split(0)), "S(1) S(1) P"),
    "what is whole is split for free": ((BROADCAST, BROADCAST, BROADCAST), "S(0) S(0) S(0) S(0) P"),
}


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_a_network_runs_op_by_op_on_shards(way: str, parts: int) -> None:
    sbps, expected = WAYS[way]
    mesh, tensors = (
        Mesh(tuple(range(parts)), (parts,)),
        [made_calls.signed(*shape) for shape in ((12, 10), (10, 8), (8, 5))],
    )
    cuts = [cut(value, (sbp,), mesh.axes) for value, sbp in zip(tensors, sbps)]

    def program(rank: Rank) -> tuple[Tensor, list[Sbp]]:
        x, w, v = (Shard(p[rank.rank], tuple(t.shape), t.dtype, sbp) for p, t, sbp in zip(cuts, tensors, sbps))
        made = [run(rank, mesh, aten.mm.default, x, w)]
        made.append(run(rank, mesh, aten.relu.default, made[-1]))
        made.append(run(rank, mesh, aten.mm.default, made[-1], v))
        made.append(run(rank, mesh, aten._log_softmax.default, made[-1], 1, False))
        made.append(run(rank, mesh, aten.sum.default, made[-1]))
        return to_sbp(rank, mesh, made[-1], BROADCAST), [shard.sbp for shard in made]

    x, w, v = tensors
    loss = torch.log_softmax(torch.relu(x @ w) @ v, 1).sum()
    for found, chosen in together(mesh.ranks, program).values():
        torch.testing.assert_close(found, loss)
        assert " ".join(map(str, chosen)).startswith(expected)


# ------------------------------------------------------------------ calls


@dataclass(frozen=True)
class Described:
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


def test_a_call_can_be_made_of_anything_with_a_shape_and_a_dtype() -> None:
    a, b = Described((5, 6)), Described((6, 8))
    call = Call(aten.mm.default, (a, b), {}, Described((5, 8)), 2)
    assert (call.inputs, call.shapes, call.outputs, call.dtype) == ((a, b), ((5, 6), (6, 8)), ((5, 8),), torch.float32)
    assert (call.index("mat2"), call.arg("self")) == (1, a)
    assert cost.operations(call) == 2 * 5 * 6 * 8 and cost.touched(call) == 4 * (30 + 48 + 40)
    real = made(aten.mm.default, torch.ones(5, 6), torch.ones(6, 8)).call(2)
    assert list(RULES[call.op].signatures(call)) == list(RULES[call.op].signatures(real))
    assert cost.work(call, [whole(call)], 2, 1.0) == cost.work(real, [whole(real)], 2, 1.0)


def test_tensors_in_lists_count_each_and_a_name_stands_for_the_first() -> None:
    x = Described((5, 6))
    call = Call(aten.index_put.default, (x, [x, x], x), {"accumulate": True}, x, 2)
    assert len(call.inputs) == 4 and [call.index(name) for name in ("self", "indices", "values", "accumulate")] == [
        0,
        1,
        3,
        None,
    ]
    assert call.arg("accumulate") is True


SOME = (aten.add.Tensor, (torch.ones(2, 3), 1), {"alpha": 2})
OTHERS = {
    "op": (aten.sub.Tensor, *SOME[1:]),
    "shape": (SOME[0], (torch.ones(3, 2), 1), SOME[2]),
    "dtype": (SOME[0], (torch.ones(2, 3).double(), 1), SOME[2]),
    "number": (SOME[0], (torch.ones(2, 3), 2), SOME[2]),
    "kind of number": (SOME[0], (torch.ones(2, 3), 1.0), SOME[2]),
    "truth value": (SOME[0], (torch.ones(2, 3), True), SOME[2]),
    "tensor for a number": (SOME[0], (torch.ones(2, 3), torch.ones(())), SOME[2]),
    "keyword": (*SOME[:2], {"alpha": 3}),
    "no keyword": (*SOME[:2], {}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_calls_that_differ_have_different_keys(other: str) -> None:
    assert key_of(*OTHERS[other]) != key_of(*SOME)


def test_calls_that_differ_in_values_only_have_one_key() -> None:
    x = Described((2, 3))
    assert key_of(SOME[0], (x, 1), {"alpha": 2}) == key_of(*SOME)
    assert hash(Call(*SOME, torch.ones(2, 3), 2).key()) == hash(Call(SOME[0], [x, 1], {"alpha": 2}, x, 2).key())
    assert Call(*SOME, x, 2).key() != Call(*SOME, x, 4).key()


def test_a_node_is_the_call_of_its_values() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    x.meta["val"], y.meta["val"] = torch.ones(2, 3), torch.ones(4, 3)
    node = graph.call_function(aten.cat.default, ([x, y, x],), {"dim": 0})
    node.meta["val"] = torch.ones(8, 3)
    call = call_of(node, 2)
    assert (
        call.key()
        == made(aten.cat.default, [torch.ones(2, 3), torch.ones(4, 3), torch.ones(2, 3)], dim=0).call(2).key()
    )
    assert tensor_arguments(node) == (x, y, x) and [id(t) for t in call.inputs] == [
        id(n.meta["val"]) for n in (x, y, x)
    ]


# ------------------------------------------------------------------ the room


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def under(*packages: str) -> Callable[[str], bool]:
    return lambda name: any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_room_knows_nothing_of_graphs_the_compiler_or_processes() -> None:
    """Of the house it knows only what stands below it."""
    files = sorted(Path(oneflow.engine.sharding.__file__).parent.rglob("*.py"))
    assert len(files) > 15
    may, may_not = (
        under("oneflow.engine.core", "oneflow.engine.ops", "oneflow.engine.collective", "oneflow.engine.sharding"),
        under("torch.fx", "torch.distributed"),
    )
    for path in files:
        names = list(imported(path))
        assert not [name for name in names if may_not(name) or (name.startswith("oneflow") and not may(name))], (
            path.name
        )
        assert "fx." not in path.read_text(), path.name
