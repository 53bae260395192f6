"""Copies of graphs, threads that share one, and an autocast around a call."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from graph_models import MLP, TrainGraph, seeded

import oneflow as flow
from oneflow.engine.core.errors import GraphError
from oneflow.nn.graph import GraphModule


def trained(model, optimizer=None):
    return TrainGraph(model, optimizer or flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(4, 8, generator=draw), torch.randint(3, (4,), generator=draw)


def values(graph):
    return [p.detach().clone() for p in graph.model.parameters()]


def test_a_copy_of_a_graph_trains_on_from_where_the_graph_was_and_by_itself():
    graph = trained(seeded(MLP))
    graph.model.to(GraphModule).activation_checkpointing = True
    for _ in range(2):
        graph(*batch())
    other = copy.deepcopy(graph)
    before = values(graph)
    assert other.name != graph.name and not other.is_compiled and other.model.config.activation_checkpointing
    losses = [other(*batch()).item() for _ in range(3)]
    torch.testing.assert_close(values(graph), before, rtol=0, atol=0)
    assert losses == [graph(*batch()).item() for _ in range(3)]
    torch.testing.assert_close(values(graph), values(other), rtol=0, atol=0)
    assert int(other.state_dict()["System-Train-TrainStep"]) == 5


def test_a_copy_of_a_graph_that_was_not_called_can_be_set():
    graph = trained(seeded(MLP))
    other = copy.deepcopy(graph)
    other.config.set_gradient_accumulation_steps(2)
    assert other(*batch()).shape == (2,) and graph(*batch()).shape == ()


def test_a_graph_is_not_pickled():
    with pytest.raises(GraphError, match="use copy.deepcopy"):
        pickle.dumps(trained(seeded(MLP)))


def test_threads_that_train_one_graph_take_turns():
    """Every step is made, none on parameters that another one is writing."""
    graph, alone = trained(seeded(MLP)), trained(seeded(MLP))
    graph(*batch()), alone(*batch())
    losses = []

    def steps():
        for _ in range(20):
            losses.append(graph(*batch()).item())

    threads = [threading.Thread(target=steps) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [alone(*batch()).item() for _ in range(80)]
    assert sorted(losses) == sorted(expected)
    torch.testing.assert_close(values(graph), values(alone), rtol=0, atol=0)


def test_an_autocast_around_a_call_is_refused():
    graph = trained(seeded(MLP))
    for _ in range(2):  # at the first call, and when it is compiled
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(GraphError, match=r"inside autocast\('cpu'\).*config.enable_amp\(True, dtype=...\)"),
        ):
            graph(*batch())
        graph(*batch())
    mixed = trained(seeded(MLP))
    mixed.config.enable_amp(True, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        mixed(*batch())
