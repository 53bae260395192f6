"""First values by part: what the ranks draw of a variable, each on its own, is together what one process draws of the
whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import oneflow as flow
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import DTypeError
from oneflow.engine.core.sbp import BROADCAST, Sbp, split
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.sharding.mesh import Layout, Mesh
from oneflow.engine.step import rank_variables
from oneflow.engine.step.rank_variables import RankVariables, draw

SMALL_BLOCK = 40
CPU = torch.device("cpu")
INITIALIZERS: dict[str, Any] = {
    "constant": flow.constant_initializer(0.25),
    "empty": flow.empty_initializer(),
    "uniform": flow.random_uniform_initializer(-1.0, 3.0),
    "normal": flow.random_normal_initializer(0.5, 2.0),
    "truncated": flow.truncated_normal_initializer(0.5, 2.0),
    "fan in": flow.variance_scaling_initializer(2.0, "fan_in", "truncated_normal", "NCHW"),
    "fan out": flow.variance_scaling_initializer(2.0, "fan_out", "random_normal", "NCHW"),
    "fan avg": flow.glorot_uniform_initializer("NCHW"),
    "kaiming": flow.kaiming_initializer((7, 6)),
}
SHAPES = [(7, 6), (13, 5), (16, 3, 2, 2), (3, 50), (1, 90), (2, 3)]
S0, S1, B = split(0), split(1), BROADCAST
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[Sbp, ...]]] = {
    "whole on 2": ((2,), (B,)),
    "S(0) on 2": ((2,), (S0,)),
    "S(1) on 2": ((2,), (S1,)),
    "S(0) on 5": ((5,), (S0,)),
    "S(1) on 8": ((8,), (S1,)),
    "S(0) on 20": ((20,), (S0,)),
    "S(0) S(1)": ((2, 2), (S0, S1)),
    "S(1) S(0)": ((2, 2), (S1, S0)),
    "S(0) twice": ((2, 3), (S0, S0)),
    "S(0) B": ((2, 2), (S0, B)),
    "B S(1)": ((2, 2), (B, S1)),
}


def declared(shape: tuple[int, ...], initializer: Any, dtype: Any = dtypes.float32, **more: Any) -> VariableDecl:
    return VariableDecl("net/w", TensorSpec(shape, dtype), initializer, line="net.py:7", **more)


def layout_of(name: str) -> Layout:
    axes, sbp = LAYOUTS[name]
    return Layout(Mesh(tuple(range(prod(axes))), axes), sbp)


def parts(
    decl: VariableDecl, layout: Layout, seed: int = 3, draws: int = 1
) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
    """What each rank has, and where it belongs."""
    for rank in layout.mesh.ranks:
        own = RankVariables(rank, CPU)
        own.declare([(decl, layout)], seed, draws)
        block = layout.block(decl.spec.shape, rank)
        assert block is not None
        yield block, own.tensors[decl.name]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_variables, "BLOCK", SMALL_BLOCK)


def seeded(text: str) -> torch.Generator:
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_the_parts_of_all_ranks_are_the_whole(initializer: str, layout: str, small_blocks: None) -> None:
    for shape in SHAPES:
        decl = declared(shape, INITIALIZERS[initializer])
        whole = draw(decl, 3, 1)
        assert whole.shape == shape and whole.dtype is torch.float32
        covered = torch.zeros(shape, dtype=torch.bool)
        for block, part in parts(decl, layout_of(layout)):
            assert torch.equal(part, whole[block]), (shape, block)
            covered[block] = True
        assert covered.all()


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64])
def test_the_parts_of_whole_numbers_are_the_whole(dtype: Any, small_blocks: None) -> None:
    for initializer in (flow.random_uniform_initializer(-50, 50, dtype), flow.constant_initializer(3, dtype)):
        decl = declared((13, 5), initializer, dtype)
        whole = draw(decl, 0, 0)
        assert whole.dtype is dtype.torch
        assert all(torch.equal(part, whole[block]) for block, part in parts(decl, layout_of("S(0) S(1)"), 0, 0))


@pytest.mark.parametrize("shape", [(), (1,), (40,), (0, 3), (8, 5)])
def test_up_to_a_block_all_numbers_come_from_one_generator(shape: tuple[int, ...], small_blocks: None) -> None:
    normal = flow.random_normal_initializer(0.5, 2.0)
    plain = torch.randn(shape, generator=seeded("3/1/net/w")) * 2.0 + 0.5
    assert torch.equal(draw(declared(shape, normal), 3, 1), plain)
    own = torch.randn(shape, generator=seeded("11/net/w")) * 2.0 + 0.5
    assert torch.equal(draw(declared(shape, normal, seed=11), 3, 1), own)


def test_the_default_block_leaves_usual_variables_as_they_were() -> None:
    decl = declared((1024, 4096), flow.random_normal_initializer())
    assert decl.spec.elements == rank_variables.BLOCK
    assert torch.equal(draw(decl, 0, 0), torch.randn(1024, 4096, generator=seeded("0/0/net/w")))


def test_a_large_variable_is_drawn_by_blocks_of_rows(small_blocks: None) -> None:
    """13 rows of 5 in blocks of 40 numbers: 8 rows, then 5, each from a generator of its own."""
    drawn = draw(declared((13, 5), flow.random_normal_initializer()), 3, 1)
    assert torch.equal(drawn[:8], torch.randn(8, 5, generator=seeded("3/1/net/w")))
    assert torch.equal(drawn[8:], torch.randn(5, 5, generator=seeded("3/1/net/w/1")))


def test_the_fan_of_a_block_is_that_of_the_variable(small_blocks: None) -> None:
    """fan_out of (400, 3) is 400; of one of its blocks it would be 13."""
    decl = declared((400, 3), flow.variance_scaling_initializer(1.0, "fan_out", "random_normal"))
    assert abs(float(draw(decl, 0, 0).std()) - 400**-0.5) < 0.1 * 400**-0.5


@dataclass
class Made(TorchDispatchMode):
    """The memory that tensors take while it is entered: the largest, and all that were alive at once."""

    largest: int = 0
    most: int = 0
    _alive: dict[int, tuple[StorageWeakRef, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            storage = result.untyped_storage()
            self.largest = max(self.largest, storage.nbytes())
            self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            self._alive = {key: (ref, size) for key, (ref, size) in self._alive.items() if not ref.expired()}
            self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return result


def made(action: Callable[[], object]) -> Made:
    with Made() as found:
        action()
    return found


@pytest.mark.parametrize("layout", ["S(0) on 20", "S(1) on 8", "S(0) S(1)"])
def test_a_rank_never_has_the_whole_in_memory(layout: str, small_blocks: None) -> None:
    shape, lies = (200, 8), layout_of(layout)
    decl = declared(shape, flow.random_normal_initializer(0.0, 0.1))
    for rank in lies.mesh.ranks:
        own = RankVariables(rank, CPU)
        found = made(lambda: own.declare([(decl, lies)], 0, 0))  # noqa: B023
        part = own.tensors[decl.name].nbytes
        assert part < 200 * 8 * 4 / 3
        assert found.largest <= max(part, 4 * SMALL_BLOCK)
        assert found.most <= 2 * part + 3 * 4 * SMALL_BLOCK


@dataclass(frozen=True)
class Whole:
    """Only draws whole variables; counts nothing but what it is asked for."""

    asked: list[tuple[int, ...]] = field(default_factory=list)

    def draw(self, spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
        self.asked.append(spec.shape)
        return torch.arange(prod(spec.shape), dtype=torch.float32).reshape(spec.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_initializer_that_draws_whole_variables_is_asked_for_nothing_else(layout: str, small_blocks: None) -> None:
    initializer = Whole()
    for shape in SHAPES:
        expected = torch.arange(prod(shape), dtype=torch.float32).reshape(shape)
        for block, part in parts(declared(shape, initializer), layout_of(layout)):
            assert torch.equal(part, expected[block])
    assert set(initializer.asked) == set(SHAPES)


def test_a_rank_draws_the_blocks_that_its_rows_lie_in_and_no_other(
    monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    """16 rows of 10 numbers, 4 rows a block: each of 4 ranks draws one block; of 3 ranks, whose rows cross blocks, each
    two."""
    drawn: list[tuple[int, ...]] = []
    normal = flow.random_normal_initializer()
    plain = type(normal).draw
    monkeypatch.setattr(
        type(normal), "draw", lambda self, spec, generator: drawn.append(spec.shape) or plain(self, spec, generator)
    )
    decl = declared((16, 10), normal)
    for ranks, blocks in ((4, 1), (3, 2), (16, 1)):
        for rank in range(ranks):
            drawn.clear()
            RankVariables(rank, CPU).declare([(decl, Layout(Mesh(tuple(range(ranks)), (ranks,)), (S0,)))], 0, 0)
            assert drawn == [(4, 10)] * blocks, (ranks, rank)


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_a_rank_without_rows_has_an_empty_part_and_draws_nothing(
    initializer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decl = declared((2, 3), INITIALIZERS[initializer])
    monkeypatch.setattr(torch, "Generator", None)
    own = RankVariables(3, CPU)
    own.declare([(decl, Layout(Mesh((0, 1, 2, 3), (4,)), (S0,)))], 0, 0)
    assert own.tensors["net/w"].shape == (0, 3)


def test_drawing_anew_gives_other_values_in_the_same_tensor(small_blocks: None) -> None:
    decl, lies = declared((13, 5), flow.random_normal_initializer()), layout_of("S(1) on 2")
    own = RankVariables(1, CPU)
    own.declare([(decl, lies)], 7, 0)
    tensor, before, version = own.tensors["net/w"], own.tensors["net/w"].clone(), own.version
    own.initialise(7, 1)
    assert own.tensors["net/w"] is tensor and own.version > version and not torch.equal(tensor, before)
    assert torch.equal(tensor, draw(decl, 7, 1)[:, 3:])
    own.initialise(7, 0)
    assert torch.equal(tensor, before)


def test_a_rank_that_is_none_of_a_variables_has_nothing_of_it() -> None:
    own = RankVariables(2, CPU)
    own.declare([(declared((4, 4), flow.random_normal_initializer()), layout_of("S(0) on 2"))], 0, 0)
    assert own.tensors == {}
    own.initialise(0, 1)


def test_filters_lie_in_channels_last_memory_on_every_rank(small_blocks: None) -> None:
    decl = declared((16, 3, 2, 2), flow.random_normal_initializer(), channels_last=True)
    whole = draw(decl, 3, 1)
    for block, part in parts(decl, layout_of("S(0) on 5")):
        assert torch.equal(part, whole[block]) and part.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(2, 3), (13, 5)], ids=["one block", "blocks"])
def test_an_initializer_that_cannot_is_an_error_with_the_variables_name_and_line(
    shape: tuple[int, ...], small_blocks: None
) -> None:
    decl = declared(shape, flow.random_normal_initializer(), dtypes.int32)
    size = ", ".join(map(str, shape))
    with pytest.raises(DTypeError, match=rf"^net\.py:7: variable 'net/w' int32\({size}\): .*") as caught:
        draw(decl, 0, 0, (slice(0, 1), slice(0, 2)))
    assert str(caught.value).count("net.py:7") == 1
