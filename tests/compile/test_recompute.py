"""The pass that makes values again: which nodes it repeats, where, and which it leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, fx

import oneflow.nn as nn
from oneflow.engine.capture.cleanup import clean
from oneflow.engine.capture.module_joint import ModuleStep, Where, trace_step
from oneflow.engine.capture.recompute import recompute
from oneflow.engine.program.notes import joint_note

aten = torch.ops.aten
X = torch.linspace(-1, 1, 12).view(3, 4)
W = torch.linspace(-1, 2, 16).view(4, 4)


class Step:
    """``function(w, x, region)`` gives a loss; what it does in ``with region():`` is one region each."""

    def __init__(self, function: Any, variables: dict[str, Tensor] | None = None) -> None:
        self._variables = variables or {"w": W}
        self._where, self._count = Where("", "Graph"), 0
        self._function = function

    def region(self) -> Step:
        return self

    def __enter__(self) -> None:
        self._count += 1
        self._where = Where("block", "Block", self._count)

    def __exit__(self, *exception: object) -> None:
        self._where = Where("", "Graph")

    def graph(self) -> fx.Graph:
        def run(values: dict[str, Tensor], feeds: list[Tensor], add_feed: Any) -> list[Tensor]:
            loss = self._function(values, *feeds, self.region)
            loss.backward()
            return [loss]

        parameters = {name: nn.Parameter(value) for name, value in self._variables.items()}
        traced = trace_step(
            ModuleStep("step", parameters, [X], run, lambda: self._where, torch.device("cpu"), trained=frozenset({"w"}))
        )
        clean(traced.joint.graph)
        return traced.joint.graph

    def outputs(self, graph: fx.Graph) -> list[Tensor]:
        arguments = [
            *(value.clone() for value in self._variables.values()),
            X.clone(),
            torch.zeros(1, dtype=torch.int64),
        ]
        return fx.GraphModule(torch.nn.Module(), graph)(*arguments)


def made_again(step: Step) -> Counter[str]:
    """How often each op was repeated. The values of the graph are what they were, bit by bit."""
    plain, graph = step.graph(), step.graph()
    recompute(graph)
    graph.lint()
    for before, now in zip(step.outputs(plain), step.outputs(graph), strict=True):
        assert torch.equal(before, now)
    return _ops(graph) - _ops(plain)


def _ops(graph: fx.Graph) -> Counter[str]:
    return Counter(str(node.target) for node in graph.nodes if node.op == "call_function")


def test_what_the_backward_pass_reads_is_made_again_and_what_later_ops_read_is_kept() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        hidden = x @ values["w"]
        with region():
            made = hidden.sin().tanh().cos()
        return made.exp().sum()

    assert made_again(Step(function)) == {"aten.sin.default": 1, "aten.tanh.default": 1}


def test_without_regions_nothing_changes() -> None:
    assert not made_again(Step(lambda values, x, region: (x @ values["w"]).sin().tanh().sum()))


def test_values_are_made_again_right_before_the_backward_pass_first_reads_one() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        with region():
            made = (x @ values["w"]).sin().tanh().cos()
        return made.exp().sigmoid().sum()

    graph = Step(function).graph()
    recompute(graph)
    calls = [node for node in graph.nodes if node.op == "call_function"]
    again = [
        i for i, node in enumerate(calls) if node.target is aten.tanh.default and joint_note(node).part == "backward"
    ]
    before = [i for i, node in enumerate(calls) if joint_note(node).part == "backward"]
    assert len(again) == 1 and again[0] > before[0], "the backward pass of what follows comes first"
    assert all(joint_note(node).region is None for node in calls if joint_note(node).part == "backward")


def test_regions_are_made_again_one_by_one_in_the_order_of_the_backward_pass() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        for _ in range(2):
            with region():
                x = (x @ values["w"]).sin().tanh().cos()
        return x.sum()

    step = Step(function)
    assert made_again(step)["aten.tanh.default"] == 2
    graph = step.graph()
    recompute(graph)
    tanhs = [node for node in graph.nodes if node.target is aten.tanh.default]
    assert [joint_note(node).part for node in tanhs] == ["forward"] * 2 + ["backward"] * 2
    first, second = tanhs[2:]
    assert not any(user in first.users for user in second.users)


def test_what_the_region_gets_from_outside_is_kept() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        hidden = (x @ values["w"]).exp()
        with region():
            made = hidden.sin()
        return made.sum()

    assert not made_again(Step(function))


def test_in_place_ops_on_its_own_values_are_made_again_in_order() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        with region():
            made = x @ values["w"]
            early = made + 1
            made.mul_(2).add_(early.sin().detach())
            made = made.cos().sin()
        return made.sum()

    assert made_again(Step(function))["aten.mul_.Tensor"] == 1


def test_what_reads_memory_that_is_changed_later_is_kept() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        hidden = x @ values["w"]
        with region():
            made = (hidden + 1).sin().cos()
        hidden.mul_(3)
        return (made + hidden).sum()

    assert made_again(Step(function)) == {"aten.sin.default": 1}


def test_variables_are_written_once() -> None:
    def function(values: Any, x: Tensor, region: Any) -> Tensor:
        with region():
            made = (x @ values["w"] + values["count"]).sin().cos()
            values["count"].detach().add_(1)
            made = made * values["count"].detach()
        return made.sum()

    again = made_again(Step(function, {"w": W, "count": torch.zeros(4)}))
    assert again == {"aten.sin.default": 1}, "neither the sum with the variable's old value, nor what writes it"
