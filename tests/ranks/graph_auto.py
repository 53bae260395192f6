"""Laws of auto parallel: a plain module trains on ranks as in one process, its layouts found by cost, within a limit of
memory."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from global_rank import RANK, SIZE, S, spread
from graph_laws import (
    ALL,
    Evaluate,
    Train,
    adam,
    assigned_of,
    batches,
    close,
    copies,
    model_of,
    momentum,
    nothing,
    plain_losses,
    same,
    trained_alone,
    whole,
)
from graph_settings import accumulate, every_setting, zero
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, GraphError
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.program.notes import local_note, val
from oneflow.nn.graph import GraphModule


@lru_cache(maxsize=None)
def auto(also: Callable[[Any], None] = nothing, **options: Any) -> Any:
    def settings(graph: Any) -> None:
        graph.config.enable_auto_parallel(True)
        also(graph)
        for name, value in options.items():
            getattr(graph.config, name)(value)

    return settings


def trained(name: str, settings: Any, optimizer: Any = adam) -> tuple[Any, nn.Module, list[Tensor]]:
    """A plain module, local inputs, no word about SBP."""
    model = model_of(name)
    graph = Train(model, optimizer(model), settings)
    return graph, model, [whole(graph(x, y)) for x, y in batches(name)]


def as_alone(name: str, also: Any = nothing, optimizer: Any = adam, **options: Any) -> Any:
    alone, losses = trained_alone(name, optimizer, also)
    graph, model, found = trained(name, auto(also, **options), optimizer)
    close(found, losses)
    same(model, alone)
    chosen = graph._graph.auto
    assert chosen and f"AUTO PARALLEL:{chosen}" in repr(graph), repr(graph)
    return graph


def law_plain_modules_train_as_one_process_does() -> None:
    as_alone("MLP")
    as_alone("MLP", optimizer=momentum)
    as_alone("conv net", optimizer=momentum)
    graph = as_alone("GPT")
    assert "placement=oneflow.placement" in repr(graph) and "auto_parallel=True" in repr(graph)


def law_auto_parallel_goes_with_the_other_settings() -> None:
    as_alone("GPT", every_setting)
    as_alone("MLP", accumulate(2))
    graph = as_alone("MLP", zero(3))
    assert all(str(p.sbp[0]) == str(S(0)) for p in graph._graph.modules["model"].parameters())


def law_weights_of_the_cost_model_change_no_number() -> None:
    for options in (
        {"set_auto_parallel_computation_cost_ratio": 5.0, "set_auto_parallel_wait_time": 0.0},
        {
            "set_auto_parallel_computation_cost_ratio": 1e-4,
            "enable_auto_parallel_trunk_algo": True,
            "enable_auto_parallel_sbp_collector": True,
        },
    ):
        as_alone("MLP", **options)


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.wide, self.narrow, self.head = (
            nn.Linear(8, 16),
            nn.Linear(16, 512),
            nn.Linear(512, 16),
            nn.Linear(16, 6),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.narrow(torch.relu(self.wide(torch.relu(self.first(x)))))))


def wide() -> nn.Module:
    torch.manual_seed(3)
    return Wide()


def law_a_layer_that_does_not_fit_is_split() -> None:
    """Weights, gradients and two states of a wide layer are more than the limit: no rank ever has one of its weights
    whole."""
    model = wide()
    bytes_of_layer = 4 * 4 * model.wide.weight.numel()
    alone, data = copy.deepcopy(model), batches("MLP")
    expected = [Train(alone, adam(alone))(x, y) for x, y in data[:1]]
    graph = Train(model, adam(model), auto(set_auto_parallel_memory_limit=bytes_of_layer + 40_000))
    close([whole(graph(x, y)) for x, y in data[:1]], expected)
    close([whole(p) for p in model.parameters()], list(alone.parameters()))
    weights = model.wide.weight, model.narrow.weight
    assert all(any(str(one).startswith("oneflow.sbp.split") for one in weight.sbp) for weight in weights), [
        weight.sbp for weight in weights
    ]
    assert all(weight._part.numel() * SIZE == weight.numel() for weight in weights)
    step = lower_job(assigned_of(graph, *data[0]), RANK).sections["step"].graph
    gathered = [
        val(local_note(node).boxing.node)
        for node in step.nodes
        if node.op == "call_function" and "gather" in str(node.target)
    ]
    assert all(
        tensor.numel() < weights[0].numel() for tensor in gathered
    )  # and none is put together to compute with it


def law_a_limit_that_nothing_fits_into_is_refused_on_every_rank() -> None:
    model = wide()
    graph = Train(model, adam(model), auto(set_auto_parallel_memory_limit=20_000))
    x, y = batches("MLP", 1)[0]
    try:
        graph(x, y)
    except ArgumentError as error:
        assert "no layout that was found fits into 19.5 KiB a device (set_auto_parallel_memory_limit(20000))" in str(
            error
        ) and "raise the limit" in str(error), error
    else:
        raise AssertionError("it was not refused")


def law_what_is_chosen_is_never_worse_than_data_parallel() -> None:
    for name in ("MLP", "conv net"):
        model = model_of(name)
        copies(model)
        x, y = batches(name, 1)[0]
        found = assigned_of(Train(model, adam(model), auto()), spread(x, ALL, S(0)), spread(y, ALL, S(0))).auto
        assert found.best.estimate.total <= found.data_parallel.estimate.total


def law_inputs_that_differ_are_refused() -> None:
    model = model_of("MLP")
    x, y = batches("MLP", 1)[0]
    try:
        Train(model, adam(model), auto())(x + RANK, y)
    except GraphError as error:
        assert "input 0, a local tensor that is the same on every rank (else make it global with to_global)" in str(
            error
        ), error
    else:
        raise AssertionError("it was not refused")


def law_global_parameters_and_inputs_may_be_given() -> None:
    """Those that are split stay as they are, unless what the user says is to be ignored."""
    alone, losses = trained_alone("MLP")
    for ignores in (False, True):
        model = model_of("MLP")
        copies(model)
        weight = model.layers[0].weight
        weight.data = weight.detach().to_global(sbp=S(1))
        graph = Train(model, adam(model), auto(enable_auto_parallel_ignore_user_sbp_config=ignores))
        close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in batches("MLP")], losses)
        same(model, alone)
        assert ignores or weight.sbp == (S(1),)


def law_evaluation_follows_training_and_leaves_layouts_alone() -> None:
    alone, _ = trained_alone("conv net")
    graph, model, _ = trained("conv net", auto())
    before = {name: p.sbp for name, p in model.named_parameters()}
    model.eval(), alone.eval()
    evaluate = Evaluate(model)
    evaluate.config.enable_auto_parallel(True)
    for x, _ in batches("conv net", 2):
        close([whole(evaluate(x))], [alone(x)], 2e-5)
    alone.train()
    assert {name: p.sbp for name, p in model.named_parameters()} == before


def law_states_are_saved_and_loaded() -> None:
    """Into another graph that searches, into one that does not, and from a file."""
    data = batches("MLP")
    alone, losses = trained_alone("MLP")
    model = model_of("MLP")
    graph = Train(model, adam(model), auto())
    found = [whole(graph(x, y)) for x, y in data[:2]]
    place = [tempfile.mkdtemp()] if RANK == 0 else [None]
    torch.distributed.broadcast_object_list(place)
    flow.save(graph.state_dict(), f"{place[0]}/state", global_dst_rank=0)
    for settings in (auto(), auto(zero(1)), nothing):
        torch.manual_seed(99)
        other = type(model)()
        torch.manual_seed(3)
        inputs: Callable[[Tensor], Any] = lambda x: x  # noqa: E731
        if settings is nothing:
            copies(other)
            inputs = lambda x: spread(x, ALL, S(0))  # noqa: E731
        resumed = Train(other, adam(other), settings)
        resumed.load_state_dict(flow.load(f"{place[0]}/state", global_src_rank=0))
        close(found + [whole(resumed(inputs(x), inputs(y))) for x, y in data[2:]], losses)
        same(other, alone)
    torch.distributed.barrier()
    if RANK == 0:
        shutil.rmtree(place[0])


def law_stages_stay_and_what_is_in_them_is_chosen() -> None:
    def stages(graph: Any) -> None:
        accumulate(2)(graph)
        graph.model.layers[0].to(GraphModule).set_stage(0)
        graph.model.layers[3].to(GraphModule).set_stage(1)

    alone, losses = trained_alone("MLP", adam, accumulate(2))
    graph, model, found = trained("MLP", auto(stages))
    close(found, losses)
    same(model, alone)
    assert graph._graph.auto and len({str(p.placement) for p in model.parameters()}) == 2


class Recurrent(nn.Module):
    """Keeps weak references of its weights, as all recurrent modules of torch do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.RNN(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


def law_local_recurrent_modules_become_global() -> None:
    draw = torch.Generator().manual_seed(5)
    data = [(torch.randn(6, 3, 4, generator=draw), torch.randint(3, (6,), generator=draw)) for _ in range(3)]

    def stages(graph: Any) -> None:
        graph.model.body.to(GraphModule).set_stage(0)
        graph.model.head.to(GraphModule).set_stage(1)

    for settings in (auto(), stages):
        torch.manual_seed(3)
        alone = Recurrent()
        model = copy.deepcopy(alone)
        expected = plain_losses(alone, data)
        graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), settings)
        close([whole(graph(x, y)) for x, y in data], expected)
        same(model, alone)
