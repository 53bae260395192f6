"""Optimizers and schedules in a graph: ten steps of each are those of its formula, with groups, decay, clipping and
scaled rates of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from optim_formulas import CASES, OptimCase, clipped, trained
from test_lr_scheduler import BASES
from test_lr_scheduler import CASES as SCHEDULES

import oneflow as flow
import oneflow.nn as nn
from oneflow import optim

STEPS = 10
SHAPES = ((3, 2), (4,), (2, 3, 2), (5,))
DRAW = np.random.default_rng(5)
WEIGHTS = [DRAW.normal(size=shape) for shape in SHAPES]
GRADIENTS = [[DRAW.normal(size=shape).astype(np.float32) for shape in SHAPES] for _ in range(STEPS)]
SECOND = {"weight_decay": 0.2, "clip_grad_max_norm": 0.7, "clip_grad_norm_type": 2.0, "lr_scale": 0.3}


class Weights(nn.Module):
    """Parameters whose gradients are the inputs."""

    def __init__(self, values=WEIGHTS):
        super().__init__()
        self.params = nn.ParameterList([nn.Parameter(flow.tensor(value, dtype=flow.float32)) for value in values])

    def forward(self, *gradients):
        return sum((p * g).sum() for p, g in zip(self.params, gradients))


class Stepping(nn.Graph):
    def __init__(self, weights, optimizer, lr_sch=None):
        super().__init__()
        self.weights = weights
        self.add_optimizer(optimizer, lr_sch=lr_sch)

    def build(self, *gradients):
        loss = self.weights(*gradients)
        loss.backward()
        return loss


def run(graph: nn.Graph, steps: range = range(STEPS)) -> None:
    for t in steps:
        graph(*map(torch.tensor, GRADIENTS[t]))


def made(case: OptimCase, weights: Weights, **second) -> optim.Optimizer:
    params = list(weights.params)
    return getattr(optim, case.name)(
        [{"params": params[:2]}, {"params": params[2:], **second}], lr=case.lr, **case.options
    )


def check(weights: Weights, expected: list[np.ndarray], tolerance: float = 2e-5) -> None:
    for p, value in zip(weights.params, expected, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_are_those_of_the_formula(name):
    """The second group has a decay, a clipping and a multiple of the rate of its own."""
    case, weights = CASES[name], Weights()
    optimizer = made(case, weights, **SECOND)
    run(Stepping(weights, optimizer))
    first = trained(case, WEIGHTS[:2], [step[:2] for step in GRADIENTS])
    cut = [clipped(step[2:], 0.7, 2.0) for step in GRADIENTS]
    check(
        weights, [*first, *trained(case, WEIGHTS[2:], cut, [case.lr * 0.3] * STEPS, weight_decay=0.2)], case.tolerance
    )
    assert optimizer.step_count == STEPS


@pytest.mark.parametrize("norm_type", [2.0, float("inf"), 1.0])
def test_groups_are_clipped_by_norms_of_their_own(norm_type):
    case, weights = CASES["SGD"], Weights()
    params = list(weights.params)
    groups = [
        {"params": params[:2], "clip_grad_max_norm": 0.5, "clip_grad_norm_type": norm_type},
        {"params": params[2:], "clip_grad_max_norm": 3.0, "clip_grad_norm_type": norm_type},
    ]
    run(Stepping(weights, optim.SGD(groups, lr=0.1)))
    one = [clipped(step[:2], 0.5, norm_type) for step in GRADIENTS]
    two = [clipped(step[2:], 3.0, norm_type) for step in GRADIENTS]
    check(weights, [*trained(case, WEIGHTS[:2], one, [0.1] * STEPS), *trained(case, WEIGHTS[2:], two, [0.1] * STEPS)])


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_follow_the_schedule_by_the_graphs_steps(name):
    weights = Weights()
    params = list(weights.params)
    optimizer = optim.SGD([{"params": params[:2], "lr": BASES[0]}, {"params": params[2:], "lr": BASES[1]}], lr=1.0)
    schedule = SCHEDULES[name].make(optimizer)
    shown, last = [group["lr"] for group in optimizer.param_groups], schedule.last_step
    run(Stepping(weights, optimizer, schedule))
    rates = [[SCHEDULES[name].formula(base, t) for t in range(STEPS)] for base in BASES]
    case = CASES["SGD"]
    check(
        weights,
        [
            *trained(case, WEIGHTS[:2], [s[:2] for s in GRADIENTS], rates[0]),
            *trained(case, WEIGHTS[2:], [s[2:] for s in GRADIENTS], rates[1]),
        ],
    )
    assert [group["lr"] for group in optimizer.param_groups] == shown and schedule.last_step == last


def test_a_schedule_that_has_gone_ahead_goes_on_from_there():
    weights = Weights()
    optimizer = optim.SGD(weights.parameters(), lr=0.4)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        schedule.step()
    run(Stepping(weights, optimizer, schedule))
    check(weights, trained(CASES["SGD"], WEIGHTS, GRADIENTS, [0.4 * 0.5 ** (t + 3) for t in range(STEPS)]))


def test_without_a_schedule_a_rate_that_is_set_between_calls_counts():
    weights = Weights()
    optimizer = optim.SGD(weights.parameters(), lr=0.4)
    graph = Stepping(weights, optimizer)
    run(graph, range(5))
    optimizer.param_groups[0]["lr"] = 0.1
    run(graph, range(5, STEPS))
    check(weights, trained(CASES["SGD"], WEIGHTS, GRADIENTS, [0.4] * 5 + [0.1] * 5))


def test_an_optimizer_goes_on_in_a_graph_where_eager_steps_ended_and_back():
    weights, case = Weights(), CASES["Adam amsgrad"]
    optimizer = optim.Adam(weights.parameters(), lr=case.lr, **case.options)

    def eagerly(steps: range) -> None:
        for t in steps:
            optimizer.zero_grad()
            weights(*map(torch.tensor, GRADIENTS[t])).backward()
            optimizer.step()

    graph = Stepping(weights, optimizer)
    eagerly(range(3))
    run(graph, range(3, 6))
    eagerly(range(6, 8))
    run(graph, range(8, STEPS))
    check(weights, trained(case, WEIGHTS, GRADIENTS))
    assert optimizer.step_count == STEPS


def test_several_losses_add_their_gradients():
    weights, case = Weights(), CASES["SGD momentum"]

    class Two(Stepping):
        def build(self, *gradients):
            first, second = (self.weights.params[0] * gradients[0]).sum(), self.weights(*gradients) * 2
            first.backward()
            second.backward()
            return first, second

    run(Two(weights, optim.SGD(weights.parameters(), lr=case.lr, **case.options)))
    check(weights, trained(case, WEIGHTS, [[3 * step[0], *(2 * g for g in step[1:])] for step in GRADIENTS]))


def test_several_optimizers_update_their_own_parameters():
    one, two = Weights(), Weights()

    class Both(nn.Graph):
        def __init__(self):
            super().__init__()
            self.one, self.two = one, two
            self.add_optimizer(optim.Adam(one.parameters(), lr=0.1))
            self.add_optimizer(optim.SGD(two.parameters(), lr=0.1))

        def build(self, *gradients):
            loss = self.one(*gradients) + self.two(*gradients)
            loss.backward()
            return loss

    run(Both())
    check(one, trained(CASES["Adam"], WEIGHTS, GRADIENTS))
    check(two, trained(CASES["SGD"], WEIGHTS, GRADIENTS))


def test_gradients_of_an_eager_backward_pass_stay_as_they_are():
    weights = Weights()
    graph = Stepping(weights, optim.SGD(weights.parameters(), lr=0.1))
    weights(*map(torch.tensor, GRADIENTS[3])).backward()
    run(graph, range(2))
    for p, g in zip(weights.params, GRADIENTS[3]):
        np.testing.assert_array_equal(p.grad.numpy(), g)


def test_a_state_that_the_optimizer_loads_after_the_first_call_is_seen():
    case, donor = CASES["SGD momentum"], Weights()
    giver = optim.SGD(donor.parameters(), lr=case.lr, **case.options)
    run(Stepping(donor, giver), range(4))
    weights = Weights()
    optimizer = optim.SGD(weights.parameters(), lr=0.7, momentum=0.1)
    graph = Stepping(weights, optimizer)
    run(graph, range(1))
    weights.load_state_dict(donor.state_dict())
    optimizer.load_state_dict(giver.state_dict())
    run(graph, range(4, STEPS))
    check(weights, trained(case, WEIGHTS, GRADIENTS))
