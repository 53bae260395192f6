"""What strides the values of a program have, and that programs of one device do not rely on them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import FILES
from memory_orders import differing
from torch import fx

from oneflow.engine.capture.strides import OTHER_STRIDES, free_strides

aten = torch.ops.aten
TABLES = "src/oneflow/engine/capture/strides.py"


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_results_lie_as_traced_but_for_those_of_the_table(file: str) -> None:
    others = {str(op): case for op, case in differing(file).items() if op not in OTHER_STRIDES}
    assert not others, f"give these ops a line in OTHER_STRIDES of {TABLES}: {others}"


@pytest.mark.slow
def test_every_op_of_the_table_differs_in_some_sample() -> None:
    found = {op for file in FILES for op in differing(file)}
    never = [str(op) for op in OTHER_STRIDES if op not in found]
    assert not never, f"these lie as traced in every sample, take them out of OTHER_STRIDES of {TABLES}: {never}"
    assert all(OTHER_STRIDES.values())


def traced_node(graph: fx.Graph, target: Any, *args: Any) -> fx.Node:
    node = graph.call_function(target, args)
    values = fx.node.map_arg(args, lambda n: n.meta["val"])
    node.meta["val"] = target(*values)
    return node


def given(graph: fx.Graph, *shape: int) -> fx.Node:
    node = graph.placeholder("x")
    node.meta["val"] = torch.empty(shape, device="meta")
    return node


def test_views_become_reshapes_that_take_any_strides() -> None:
    graph = fx.Graph()
    view = traced_node(graph, aten.view.default, given(graph, 2, 3, 4), [2, 12])
    other = traced_node(graph, aten._unsafe_view.default, view, [24])
    free_strides(graph)
    assert [view.target, other.target] == [aten.reshape.default] * 2


def test_a_view_that_is_written_to_stays_one() -> None:
    """A reshape may be a copy, and the value it was made of would not change."""
    graph = fx.Graph()
    value = traced_node(graph, aten.relu.default, given(graph, 2, 3))
    view = traced_node(graph, aten.view.default, value, [6])
    traced_node(graph, aten.fill_.Scalar, view, 1.0)
    free_strides(graph)
    assert view.target is aten.view.default
