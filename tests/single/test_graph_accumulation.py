"""Gradient accumulation in a graph: one update with the mean of the micro-batches' gradients."""

from __future__ import annotations

import pytest
import torch
from graph_models import MLP, TrainGraph, eager_losses, same_state, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.engine.core.errors import ArgumentError, GraphError

DRAW = torch.Generator().manual_seed(3)
BATCHES = [(torch.randn(12, 8, generator=DRAW), torch.randint(4, (12,), generator=DRAW)) for _ in range(4)]


class Accumulating(TrainGraph):
    """Gives the loss, the outputs, and a number that no input changes."""

    def __init__(self, model, optimizer, count=3):
        super().__init__(model, optimizer, settings=lambda graph: graph.config.set_gradient_accumulation_steps(count))

    def build(self, x, y, weight=None):
        out = self.model(x)
        loss = self.loss_fn(out, y) * (1.0 if weight is None else weight)
        loss.backward()
        return {"loss": loss, "out": out, "right": (out.argmax(1) == y).sum()}


def by_hand(model, optimizer, batches, count: int = 3) -> list[list[float]]:
    """The losses of the micro-batches of a loop that adds up gradients."""
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        parts = [nn.CrossEntropyLoss()(model(a), b) for a, b in zip(x.chunk(count), y.chunk(count))]
        for part in parts:
            (part / count).backward()
        optimizer.step()
        losses.append([part.item() for part in parts])
    return losses


def test_a_step_is_that_of_the_mean_of_micro_batches():
    eager, model = seeded(MLP), seeded(MLP)
    expected = by_hand(eager, sgd(eager), BATCHES)
    graph = Accumulating(model, sgd(model))
    torch.testing.assert_close([graph(x, y)["loss"].tolist() for x, y in BATCHES], expected, rtol=1e-5, atol=1e-6)
    same_state(eager, model, 1e-6)


def test_micro_batches_of_one_size_give_the_step_of_the_whole_batch():
    eager, model = seeded(MLP), seeded(MLP)
    losses = eager_losses(eager, sgd(eager), iter(BATCHES))
    graph = Accumulating(model, sgd(model))
    torch.testing.assert_close([graph(x, y)["loss"].mean().item() for x, y in BATCHES], losses, rtol=1e-5, atol=1e-6)
    same_state(eager, model, 1e-6)


def test_numbers_come_as_vectors_and_others_along_dim_0():
    model = seeded(MLP)
    x, y = BATCHES[0]
    expected = model(x).detach()
    made = Accumulating(model, sgd(model))(x, y)
    assert made["loss"].shape == (3,) and made["right"].shape == (3,) and made["out"].shape == (12, 4)
    torch.testing.assert_close(made["out"], expected)
    assert made["right"].sum() == (expected.argmax(1) == y).sum()


def test_inputs_of_rank_0_are_the_same_for_all():
    model = seeded(MLP)
    x, y = BATCHES[0]
    made = Accumulating(model, sgd(model))(x, y, torch.tensor(2.0))
    expected = nn.CrossEntropyLoss(reduction="none")(seeded(MLP)(x), y).view(3, 4).mean(1) * 2
    torch.testing.assert_close(made["loss"], expected.detach())


def test_batch_norm_sees_one_micro_batch_after_the_other():
    def net():
        return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))

    eager, model = seeded(net), seeded(net)
    expected = by_hand(eager, sgd(eager), BATCHES)
    graph = Accumulating(model, sgd(model))
    torch.testing.assert_close([graph(x, y)["loss"].tolist() for x, y in BATCHES], expected, rtol=1e-5, atol=1e-6)
    same_state(eager, model, 1e-5)
    assert int(model[1].num_batches_tracked) == 12


def test_dropout_draws_another_mask_for_each_micro_batch_and_step():
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5))
    torch.nn.init.ones_(model[0].weight)
    graph = Accumulating(model, sgd(model, lr=0.0))
    x, y = torch.ones(12, 8), torch.zeros(12, dtype=torch.int64)
    masks = [tuple((part == 0).flatten().tolist()) for _ in range(2) for part in graph(x, y)["out"].chunk(3)]
    assert len(set(masks)) == 6


def test_clipping_looks_at_the_mean_gradient():
    def optimizer(model):
        return flow.optim.SGD(
            [{"params": model.parameters(), "clip_grad_max_norm": 0.01, "clip_grad_norm_type": 2.0}], lr=1.0
        )

    eager, model = seeded(MLP), seeded(MLP)
    eager_losses(eager, optimizer(eager), iter(BATCHES), clips=True)
    graph = Accumulating(model, optimizer(model))
    for x, y in BATCHES:
        graph(x, y)
    same_state(eager, model, 1e-5)


def test_a_batch_that_cannot_be_cut_is_refused():
    model = seeded(MLP)
    with pytest.raises(
        GraphError,
        match=r"with 5 gradient accumulation steps dim 0 of every input is a multiple of 5, got one of shape \(12, 8\)",
    ):
        Accumulating(model, sgd(model), 5)(*BATCHES[0])


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_is_a_whole_number_above_0(count):
    with pytest.raises((ArgumentError, TypeError), match="gradient accumulation steps"):
        Accumulating(seeded(MLP), sgd(seeded(MLP)), count)


def test_a_graph_that_does_not_train_takes_its_batch_whole():
    class Evaluating(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.config.set_gradient_accumulation_steps(3)

        def build(self, x):
            out = self.model(x)
            return out, out.sum()

    model = seeded(MLP)
    out, total = Evaluating(model)(BATCHES[0][0])
    torch.testing.assert_close(out, model(BATCHES[0][0]).detach())
    torch.testing.assert_close(total, out.sum())
