"""What stands in for torch's functions of sizes gives the same answers where sizes are numbers, and asks torch's own
where they are symbols."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes

from oneflow.engine.core.static_sizes import static_sizes

TENSOR = FakeTensorMode().from_tensor(torch.ones(2, 3))
VALUES = [(2, 3.0, True), TENSOR, [TENSOR, (TENSOR, None)], "name"]
SAMPLES: dict[str, list[tuple[Any, ...]]] = {
    **{
        name: [(True,), (False,)]
        for name in ("expect_true", "guard_or_false", "guard_or_true", "guard_size_oblivious", "statically_known_true")
    },
    **{
        name: [(value,) for value in VALUES]
        for name in (
            "free_unbacked_symbols",
            "has_free_symbols",
            "has_free_unbacked_symbols",
            "_iterate_exprs",
            "_iterate_nodes",
        )
    },
    **{
        name: [(4,), (0,)]
        for name in ("guard_int", "guarding_hint_or_throw", "has_guarding_hint", "is_nested_int", "is_symbolic")
    },
    **{name: [(True, False), (True, True), (False,)] for name in ("sym_and", "sym_or")},
    "compute_unbacked_bindings": [(None, TENSOR), (None, [TENSOR])],
    "sym_eq": [(1, 1), (1, 2), ((1, [2, 3]), [1, (2, 3)]), ([1, 2], [1, 3]), ([1], [1, 2]), ([], ())],
}


def refuse() -> Any:
    raise AssertionError("torch's own was asked")


def plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | None) else list(value)


@pytest.mark.filterwarnings("ignore:guard_size_oblivious:FutureWarning")
@pytest.mark.parametrize(
    "name", sorted({*static_sizes(refuse)} - {"ShapeEnv", "GuardOnDataDependentSymNode", "is_accessor_node"})
)
def test_the_answer_for_numbers_is_torchs(name: str) -> None:
    for sample in SAMPLES[name]:
        expected = plain(getattr(symbolic_shapes, name)(*sample))
        assert plain(static_sizes(refuse)[name](*sample)) == expected


def test_no_node_of_a_graph_without_symbols_asks_for_a_size() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    nodes = [x, graph.call_function(torch.ops.aten.relu.default, (x,)), graph.output(x)]
    assert [static_sizes(refuse)["is_accessor_node"](node) for node in nodes] == [False] * 3
    size = graph.call_function(torch.ops.aten.sym_size.int, (x, 0))
    assert static_sizes(lambda: symbolic_shapes)["is_accessor_node"](size)


def test_symbols_are_left_to_torch() -> None:
    names = static_sizes(lambda: symbolic_shapes)
    env = names["ShapeEnv"]()
    assert type(env) is symbolic_shapes.ShapeEnv
    size = env.create_unbacked_symint()
    fake = FakeTensorMode(shape_env=env)
    with fake:
        tensor = torch.empty(size)
    assert names["free_unbacked_symbols"](tensor) == {size.node.expr} and names["has_free_unbacked_symbols"]([tensor])
    assert names["guard_or_false"](size == 7) is False and names["guard_or_true"](size == 7) is True
    assert not isinstance(names["sym_eq"](size, 3), bool) and names["is_symbolic"](size)
