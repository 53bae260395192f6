"""Generated code, and the errors of a step that fails."""

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from compiled_jobs import batch, calls, images, labels, perceptron, program_of, sgd, train_job
from one_rank import step_graph
from torch import fx

import oneflow as flow
from oneflow.engine.step.codegen import generate


class Value:
    """Something whose life can be watched."""


def test_values_are_dropped_after_their_last_use():
    alive: list[weakref.ref[Value]] = []
    counts = []

    def make(*inputs: Any) -> Value:
        counts.append(sum(ref() is not None for ref in alive))
        value = Value()
        alive.append(weakref.ref(value))
        return value

    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(5):
        node = graph.call_function(make, (node,))
    graph.output((node,))
    code = generate(graph, "chain")
    assert isinstance(code.call(Value())[0], Value)
    gc.collect()
    assert counts == [0, 1, 1, 1, 1], "at each call only its own input is alive"


def test_values_that_are_read_again_live_until_then():
    def tag(name, *inputs):
        return [name, *inputs]

    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(tag, ("a", x))
    b = graph.call_function(tag, ("b", a))
    graph.call_function(tag, ("unused", a))
    c = graph.call_function(tag, ("c", a, [b], (a,)), {})
    graph.output((c, b))
    got = generate(graph, "job").call("x")
    assert got == (["c", ["a", "x"], [["b", ["a", "x"]]], (["a", "x"],)], ["b", ["a", "x"]])


def test_constants_of_every_kind():
    def same(*args, **kwargs):
        return args, kwargs

    values = (None, True, 1, -2.5, "text", float("inf"), float("-inf"), torch.float32, (1,), [2, (3,)], ())
    graph = fx.Graph()
    graph.output(graph.call_function(same, values, {"key": torch.strided}))
    code = generate(graph, "job")
    args, kwargs = code.call()
    assert args == values and kwargs == {"key": torch.strided}
    assert [type(a) for a in args] == [type(v) for v in values]


def test_a_line_of_code_leads_to_its_node():
    program = program_of(train_job(perceptron))
    code = generate(step_graph(program), "job")
    lines = code.source.splitlines()
    assert set(code.node_at.values()) == set(calls(step_graph(program)))
    for number, node in code.node_at.items():
        assert "(" in lines[number - 1] or "[" in lines[number - 1], (lines[number - 1], node)


def line_of(function: Callable[..., Any], mark: str) -> str:
    source, start = inspect.getsourcelines(function)
    return f"{__file__}:{start + next(i for i, text in enumerate(source) if mark in text)}"


@pytest.mark.parametrize("train", [False, True])
def test_a_failing_step_names_the_op_and_the_line(train):
    @flow.global_function(type="train" if train else "predict")
    def job(x=images(), y=labels()):
        logits = perceptron(x)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits, name="my_loss")  # the loss
        if train:
            sgd().minimize(loss)
        return loss * 2

    x, y = batch()
    job(x, y)
    y[2] = 5
    with pytest.raises(RuntimeError) as caught:
        job(x, y)
    assert "job 'job' failed at step 1 in op 'my_loss' (nn.sparse_softmax_cross_entropy_with_logits) from " in str(
        caught.value
    )
    assert line_of(test_a_failing_step_names_the_op_and_the_line, "# the loss") in str(caught.value)
    y[2] = 4
    job(x, y)


def test_an_index_out_of_range_names_the_gather():
    @flow.global_function()
    def job(i=flow.FixedTensorDef((2,), dtype=flow.int64)):
        table = flow.get_variable("table", (3, 2), initializer=flow.ones_initializer())
        return flow.gather(table * 2, i, name="lookup") + 1  # the lookup

    assert job(np.array([0, 2])).get().shape == (2, 2)
    with pytest.raises(RuntimeError, match="in op 'lookup'") as caught:
        job(np.array([0, 3]))
    assert line_of(test_an_index_out_of_range_names_the_gather, "# the lookup") in str(caught.value)
