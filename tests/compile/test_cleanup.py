"""Clean-up passes one by one, and rewrites of the logical graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from compiled_jobs import aten, calls, evaluate, sgd
from torch import fx

import oneflow as flow
from oneflow.engine.capture.cleanup import cancel_transposes, clean, drop_unused, fold_kept_sums, share_equal_nodes


def graph_of(function: Callable[..., Any], *tensors: torch.Tensor) -> fx.Graph:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*tensors).graph


def test_double_transposes_cancel():
    graph = graph_of(lambda x: torch.t(torch.t(x)) + torch.t(x).sum(), torch.ones(2, 3))
    cancel_transposes(graph)
    drop_unused(graph)
    assert [n.target for n in calls(graph)].count(aten.t.default) == 1


def test_permutes_that_undo_each_other_cancel():
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    back = graph_of(lambda x: x.permute(0, 2, 3, 1).permute(0, 3, -3, 2).exp(), x)
    on = graph_of(lambda x: x.permute(0, 2, 3, 1).permute(0, 2, 3, 1).exp(), x)
    for graph, left in ((back, 0), (on, 2)):
        expected = evaluate(graph, [x])
        cancel_transposes(graph)
        drop_unused(graph)
        assert [n.target for n in calls(graph)].count(aten.permute.default) == left
        torch.testing.assert_close(evaluate(graph, [x]), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "function, left",
    [
        (lambda x: x[0, 0].t().transpose(-1, -2).exp(), 0),
        (lambda x: x.transpose(1, 3).transpose(-1, -3).exp(), 0),
        (lambda x: x.transpose(2, 3).permute(0, 1, 3, 2).exp(), 0),
        (lambda x: x.transpose(1, 3).transpose(1, 2).exp(), 2),
    ],
)
def test_moves_of_dims_that_undo_each_other_cancel_however_they_are_written(function, left):
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    graph = graph_of(function, x)
    expected = evaluate(graph, [x])
    cancel_transposes(graph)
    drop_unused(graph)
    assert sum(n.target in (aten.t.default, aten.transpose.int, aten.permute.default) for n in calls(graph)) == left
    torch.testing.assert_close(evaluate(graph, [x]), expected, rtol=0, atol=0)


def test_sums_that_keep_dims_only_for_a_view():
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = graph_of(lambda x: x.sum((0, 2), keepdim=True).view(3), x)
    expected = evaluate(graph, [x])
    fold_kept_sums(graph)
    assert [n.target for n in calls(graph)] == [aten.sum.dim_IntList]
    torch.testing.assert_close(evaluate(graph, [x]), expected)


def test_sums_whose_view_does_more_than_dropping_dims_stay():
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = graph_of(lambda x: x.sum((0,), keepdim=True).view(12), x)
    fold_kept_sums(graph)
    assert [n.target for n in calls(graph)] == [aten.sum.dim_IntList, aten.view.default]


def test_equal_nodes_become_one_and_random_ones_do_not():
    graph = graph_of(lambda x: (x * 2) + (x * 2) + (x * 2.0) + torch.rand_like(x) + torch.rand_like(x), torch.ones(2))
    share_equal_nodes(graph)
    targets = [n.target for n in calls(graph)]
    assert targets.count(aten.rand_like.default) == 2
    assert targets.count(aten.mul.Tensor) == 2, "2 and 2.0 are different arguments"


def test_reads_before_and_after_a_write_stay_apart():
    graph = fx.Graph()
    x = graph.placeholder("x")
    before = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.call_function(aten.add_.Tensor, (x, 1))
    after = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.output((before, after))
    for node in (x, before, after):
        node.meta["val"] = torch.ones(2)
    clean(graph)
    assert [value.tolist() for value in evaluate(graph, [torch.ones(2)])] == [[2, 2], [4, 4]]


def test_assign_writes_at_the_end_of_the_step():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer(), trainable=False)
        before = w * 10
        flow.assign(w, x)
        return before, w * 10

    before, after = job(np.array([3, 4], np.float32)).get()
    assert (before.tolist(), after.tolist()) == ([10, 10], [10, 10])
    assert flow.get_all_variables()["w"].numpy().tolist() == [3, 4]
    assert job(np.array([5, 6], np.float32)).get()[0].tolist() == [30, 40]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pooling_before_relu_gives_the_same_values_and_gradients(padding):
    def train(keep_order: bool):
        flow.clear_default_session()
        found = {}

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((2, 3, 7, 7))):
            x = x * flow.get_variable("w", (1, 3, 1, 1), initializer=flow.ones_initializer())
            relu = flow.nn.relu(x)
            out = flow.nn.max_pool2d(relu, 3, 2, padding)
            if keep_order:
                flow.watch(relu, lambda value: None)
            flow.watch_diff(x, lambda diff: found.update(diff=diff.numpy().copy()))
            sgd().minimize(out * out)
            return out

        rng = np.random.default_rng(3)
        found["out"] = job(rng.normal(size=(2, 3, 7, 7)).astype(np.float32) - 1.5).get().numpy()
        found["w"] = flow.get_all_variables()["w"].numpy()
        return found

    moved, kept = train(False), train(True)
    assert (kept["out"] == 0).any() and (kept["out"] > 0).any()
    for name in kept:
        np.testing.assert_allclose(moved[name], kept[name], rtol=1e-6, atol=1e-7, err_msg=name)
