"""What two ranks say of graphs that they cannot build: both raise, and neither waits for the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, GraphError
from oneflow.nn.graph import GraphModule

ALL, FIRST = flow.placement("cpu", [0, 1]), flow.placement("cpu", [0])
B, S = flow.sbp.broadcast, flow.sbp.split


class Net(flow.nn.Graph):
    def __init__(
        self,
        model: nn.Module,
        step: Callable[..., Any] = lambda model, x: model(x),
        settings: Callable[[Any], None] = lambda graph: None,
    ) -> None:
        super().__init__()
        self.model, self.step_of = model, step
        settings(self)

    def build(self, *inputs: Any) -> Any:
        return self.step_of(self.model, *inputs)


def linear(place: Any = ALL, sbp: Any = B) -> nn.Module:
    return nn.Linear(4, 4).to_global(place, sbp)


def given() -> Any:
    return torch.ones(2, 4).to_global(ALL, S(0))


def rank() -> int:
    return flow.env.get_rank()


def refusal(run: Callable[[], Any], kind: type[Exception] = RuntimeError) -> str:
    try:
        run()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was refused")


def refused(run: Callable[[], Any], *texts: str) -> None:
    said = refusal(run)
    for text in texts:
        assert text in said, said


def law_all_tensors_of_a_graph_are_global_or_all_are_local() -> None:
    refused(
        lambda: Net(linear())(torch.ones(2, 4)),
        "'model.weight' is global and 'input 0' is local",
        "to_global(placement, sbp)",
    )
    refused(lambda: Net(nn.Linear(4, 4))(given()), "'input 0' is global and 'model.weight' is local")


def law_all_tensors_of_a_graph_lie_on_one_placement() -> None:
    refused(
        lambda: Net(linear(FIRST))(given()), "lie on one placement; 'model.weight' lies on", "ranks=[0]), 'input 0' on"
    )
    refused(lambda: Net(linear(FIRST))(given()), "set_stage(id, placement)")
    refused(lambda: Net(linear(flow.placement("cpu", [[0, 1]]), (B, B)))(given()), "lie on one placement")
    refused(
        lambda: Net(linear(), lambda model, x: model(x).to_global(FIRST, B))(given()),
        "to_global in build() to",
        "a graph runs where its parameters and inputs lie",
    )


def law_layouts_in_build_fit_their_tensors() -> None:
    refused(
        lambda: Net(linear(), lambda model, x: model(x).to_global(sbp=S(2)))(given()),
        "a tensor of 2 dims cannot be split along dim 2",
    )
    refused(
        lambda: Net(linear(), lambda model, x: model(x).to_global(sbp=(B, B)))(given()),
        "one SBP for each axis of the placement: (2 vs 1)",
    )
    refused(
        lambda: Net(linear(), lambda model, x: model(x).to_local())(given()),
        "to_local in build()",
        "call to_local on the result",
    )


def law_inputs_keep_their_layout_from_call_to_call() -> None:
    net = Net(linear())
    net(given())
    refused(
        lambda: net(given().to_global(sbp=B)),
        "was float32(4, 4) on cpu as S(0) on [0-1] at the first call and is float32(4, 4) on cpu as B on [0-1] now",
    )


def law_ranks_that_build_different_graphs_are_told_the_first_line_that_differs() -> None:
    refused(
        lambda: Net(linear(), lambda model, x: model(x) * (2.0 + rank()))(given()),
        *(
            "is not the same graph on every rank",
            "aten.mul.Tensor",
            "rank 0 has",
            "2.0)",
            "rank 1 has",
            "3.0)",
            "the same code, settings and shapes",
        ),
    )


def law_a_graph_that_goes_on_on_one_rank_is_another_graph() -> None:
    refused(
        lambda: Net(linear(), lambda model, x: model(x) if rank() else model(x).relu())(given()),
        "is not the same graph on every rank",
        "aten.relu.default",
    )


def law_constants_of_other_values_are_different_graphs() -> None:
    extra = torch.full((4,), float(rank()))
    refused(
        lambda: Net(linear(), lambda model, x: model(x) + extra)(given()),
        "is not the same graph on every rank",
        "of digest",
    )


def law_settings_of_optimizers_are_part_of_a_graph() -> None:
    model = linear()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.5 + 0.1 * rank())

    def step(model: Any, x: Any) -> Any:
        loss = model(x).mean()
        loss.backward()
        return loss

    refused(
        lambda: Net(model, step, lambda graph: graph.add_optimizer(optimizer))(given()),
        "is not the same graph on every rank",
        "0.5",
        "0.6",
    )


def law_ranks_that_set_other_buckets_are_told_so() -> None:
    model = linear()
    flow.boxing.nccl.set_fusion_threshold_mbytes(16 + rank())
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)

    def step(model: Any, x: Any) -> None:
        model(x).mean().backward()

    try:
        refused(
            lambda: Net(model, step, lambda graph: graph.add_optimizer(optimizer))(given()),
            "is not the same graph",
            f"bytes={16 * 2**20}",
            f"bytes={17 * 2**20}",
        )
    finally:
        flow.boxing.nccl.set_fusion_threshold_mbytes(16)


def law_a_rank_that_raises_in_build_is_named_on_the_others() -> None:
    def step(model: Any, x: Any) -> Any:
        if rank() == 1:
            raise KeyError("only here")
        return model(x)

    if rank() == 1:
        assert refusal(lambda: Net(linear(), step)(given()), KeyError) == "'only here'"
    else:
        refused(lambda: Net(linear(), step)(given()), "rank 1 could not build the graph: KeyError: 'only here'")


def law_a_rank_whose_input_is_local_is_named_on_the_others() -> None:
    x = given()
    said = refusal(lambda: Net(linear())(x if rank() == 0 else torch.ones(2, 4)), GraphError)
    assert "'input 0' is local" in said and ("rank 1 could not build the graph: GraphError" in said) == (rank() == 0), (
        said
    )


def law_a_stage_takes_a_placement() -> None:
    settings = Net(linear()).model.to(GraphModule)
    assert "set_stage takes a flow.placement, got [0, 1]" in refusal(
        lambda: settings.set_stage(0, [0, 1]), ArgumentError
    )
    assert "stage_id" in refusal(lambda: settings.set_stage(-1), ArgumentError)


def law_states_of_global_parameters_are_global() -> None:
    model = linear()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer.state[model.weight]["momentum_buffer"] = torch.zeros(4, 4)

    def step(model: Any, x: Any) -> Any:
        loss = model(x).mean()
        loss.backward()
        return loss

    refused(
        lambda: Net(model, step, lambda graph: graph.add_optimizer(optimizer))(given()),
        "the local state",
        "of a global parameter of shape (4, 4)",
    )
