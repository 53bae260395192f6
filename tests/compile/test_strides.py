"""What strides the values of a program have, which ops care, and that programs of one device do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import FILES
from memory_orders import differing, reading_strides
from torch import fx

from oneflow.engine.capture.strides import ANY_STRIDES, OTHER_STRIDES, SIDE_BY_SIDE, free_strides
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
TABLES = "src/oneflow/engine/capture/strides.py"
# Saved by the forward kernel for the backward one, which gets them as they are.
SAVED = {(aten.native_group_norm_backward.default, name) for name in ("mean", "rstd")} | {
    (aten.native_layer_norm_backward.default, name) for name in ("mean", "rstd")
}


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


def known() -> set[tuple[Any, str]]:
    lined_up = {(op, op._schema.arguments[place].name) for op, places in SIDE_BY_SIDE.items() for place in places}
    return lined_up | {(op, "self") for op in ANY_STRIDES}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_ops_read_any_strides_but_for_those_of_the_tables(file: str) -> None:
    others = {
        f"{op} ({name})": case
        for (op, name), case in reading_strides(file).items()
        if (op, name) not in known() | SAVED
    }
    assert not others, f"give these ops a line in ANY_STRIDES or SIDE_BY_SIDE of {TABLES}: {others}"


@pytest.mark.slow
def test_every_op_of_the_tables_reads_strides_in_some_sample() -> None:
    found = {call for file in FILES for call in reading_strides(file)}
    assert known() <= found, f"these take any strides, take them out of the tables of {TABLES}: {known() - found}"


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


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_group_norm_gets_its_arguments_in_the_format_they_were_traced_in(format: torch.memory_format) -> None:
    graph = fx.Graph()
    x = given(graph, 2, 4, 3, 3)
    x.meta["val"] = x.meta["val"].contiguous(memory_format=format)
    norm = graph.call_function(aten.native_group_norm.default, (x, None, None, 2, 4, 9, 2, 1e-5))
    graph.output(norm)
    free_strides(graph)
    value = torch.randn(4, 3, 3, 2).permute(3, 0, 1, 2)  # neither format
    found = generate(graph, "norm").call(value)[0]
    expected = torch.nn.functional.group_norm(value.contiguous(), 2)
    assert found.is_contiguous(memory_format=format)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
