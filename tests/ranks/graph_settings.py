"""Laws of the settings of graphs on ranks: ZeRO, accumulation, mixed precision, checkpointing, loss scales; evaluation
after training, and states."""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from typing import Any

import torch
from global_rank import SIZE, B, S, spread
from graph_laws import (
    ALL,
    GRID,
    STEPS,
    Evaluate,
    Train,
    adam,
    batches,
    close,
    copies,
    model_of,
    momentum,
    nothing,
    same,
    split_layers,
    trained,
    trained_alone,
    whole,
)
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.collective import bucket_start


def zero(stage: int, least: int = 1) -> Any:
    return lambda graph: graph.config.enable_zero(True, stage=stage, shard_min_size=least)


def states_of(graph: Any) -> list[Any]:
    return [value for kept in graph._graph.added[0].optimizer.state.values() for value in kept.values()]


def law_zero_trains_as_one_process_does_with_states_shared_out() -> None:
    for optimizer, stage in ((adam, 1), (momentum, 2)):
        alone, losses = trained_alone("GPT", optimizer)
        graph, model, found = trained("GPT", copies, optimizer=optimizer, settings=zero(stage))
        close(found, losses)
        same(model, alone)
        assert all(p.sbp == (B,) for p in model.parameters())
        assert all(state.sbp == (S(0),) for state in states_of(graph) if state.shape[0] >= SIZE)


def law_zero_leaves_small_parameters_whole() -> None:
    alone, losses = trained_alone("MLP")
    graph, model, found = trained("MLP", copies, settings=zero(2, 96))
    close(found, losses)
    same(model, alone)
    assert {tuple(state.shape): state.sbp for state in states_of(graph)} == {
        (16, 8): (S(0),),
        (16,): (B,),
        (6, 16): (S(0),),
        (6,): (B,),
    }


def law_the_third_stage_of_zero_splits_parameters_as_well() -> None:
    for name in ("MLP", "GPT"):
        alone, losses = trained_alone(name)
        graph, model, found = trained(name, copies, settings=zero(3))
        close(found, losses)
        same(model, alone)
        assert all(p.sbp == (S(0),) for p in model.parameters()) and all(
            state.sbp == (S(0),) for state in states_of(graph)
        )


def law_zero_goes_with_tensor_parallel() -> None:
    alone, losses = trained_alone("GPT")
    for stage in (2, 3):
        _, model, found = trained(
            "GPT", lambda model: split_layers(model, GRID), (S(0), B), settings=zero(stage), place=GRID
        )
        close(found, losses)
        same(model, alone)


@lru_cache(maxsize=None)
def accumulate(count: int = 2) -> Any:
    return lambda graph: graph.config.set_gradient_accumulation_steps(count)


def law_accumulation_trains_as_one_process_does() -> None:
    for name in ("MLP", "conv net"):
        alone, losses = trained_alone(name, settings=accumulate())
        _, model, found = trained(name, copies, settings=accumulate())
        assert found[0].shape == (2,)
        close(found, losses)
        same(model, alone)


class Scores(Train):
    def build(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.model(x)
        nn.functional.cross_entropy(scores, y).backward()
        return scores


def law_results_of_micro_batches_come_in_the_order_of_the_batch() -> None:
    model = model_of("MLP")
    alone = Scores(model, adam(model), accumulate(4))
    other = model_of("MLP")
    copies(other)
    graph = Scores(other, adam(other), accumulate(4))
    x, y = batches("MLP", 1)[0]
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0))))], [alone(x, y)])


def every_setting(graph: Any) -> None:
    accumulate()(graph)
    zero(2)(graph)
    graph.set_grad_scaler(flow.amp.GradScaler(init_scale=1024.0, growth_interval=2))
    for block in graph.model.blocks:
        block.to(flow.nn.graph.GraphModule).activation_checkpointing = True


def law_zero_accumulation_checkpointing_and_a_loss_scale_go_together() -> None:
    alone, losses = trained_alone("GPT", settings=every_setting)
    graph, model, found = trained("GPT", copies, settings=every_setting)
    close(found, losses)
    same(model, alone)
    assert float(graph._graph.scale_state[0]) == 1024.0 * 2 ** (STEPS // 2)


def checkpointed(graph: Any) -> None:
    for block in graph.model.blocks:
        block.to(flow.nn.graph.GraphModule).activation_checkpointing = True


def law_checkpointing_goes_with_tensor_parallel() -> None:
    alone, losses = trained_alone("GPT", settings=checkpointed)
    _, model, found = trained("GPT", split_layers, B, settings=checkpointed)
    close(found, losses)
    same(model, alone)


def law_mixed_precision_trains_as_one_process_does() -> None:
    """Sums over ranks are rounded in another order, to eight bits."""

    def settings(graph: Any) -> None:
        graph.config.enable_amp(True, dtype=torch.bfloat16)

    alone, losses = trained_alone("MLP", settings=settings)
    _, model, found = trained("MLP", copies, settings=settings)
    close(found, losses, 0.02)
    same(model, alone, 0.03)


def law_an_overflow_on_one_rank_is_one_on_all() -> None:
    """A step whose gradients are not finite on one rank changes nothing on any, and halves the scale."""
    model = model_of("MLP")
    copies(model)
    graph = Train(
        model,
        adam(model),
        lambda graph: graph.set_grad_scaler(flow.amp.GradScaler(init_scale=8.0, growth_interval=100)),
    )
    before = {name: whole(tensor) for name, tensor in model.state_dict().items()}
    x, y = batches("MLP", 1)[0]
    x[-1] = float("inf")  # a sample of the last rank
    graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))
    assert float(graph._graph.scale_state[0]) == 4.0
    for name, tensor in model.state_dict().items():
        assert torch.equal(whole(tensor), before[name])


# ------------------------------------------------------------------ evaluation, and states


def law_a_graph_evaluates_after_training_in_any_layout() -> None:
    for settings in (zero(1), zero(3)):
        alone, _ = trained_alone("conv net")
        _, model, _ = trained("conv net", copies, settings=settings)
        x = batches("conv net", 1)[0][0]
        model.eval(), alone.eval()
        close([whole(Evaluate(model)(spread(x, ALL, S(0))))], [alone(x)], 2e-5)
        close([whole(model(spread(x, ALL, S(0))))], [alone(x)], 2e-5)


def law_a_saved_state_goes_on_as_if_it_had_not_been_saved() -> None:
    """Saved by a graph with ZeRO, loaded by one without and by one of another layout."""
    alone, losses = trained_alone("MLP")
    data = batches("MLP")
    for first, second in ((zero(2), nothing), (nothing, zero(3)), (zero(3), zero(1))):
        model = model_of("MLP")
        copies(model)
        graph = Train(model, adam(model), first)
        found = [whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in data[:2]]
        state = graph.state_dict()
        assert all(value.is_global for value in state.values() if isinstance(value, Tensor))
        torch.manual_seed(99)
        other = type(model)()
        copies(other)
        torch.manual_seed(3)
        resumed = Train(other, adam(other), second)
        resumed.load_state_dict(state)
        found += [whole(resumed(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in data[2:]]
        close(found, losses)
        same(other, alone)


def law_a_state_goes_through_a_file() -> None:
    """Rank 0 writes and reads; the others hear of it."""
    data = batches("MLP")
    graph, _, _ = trained("MLP", copies, settings=zero(2))
    place = [tempfile.mkdtemp()] if flow.env.get_rank() == 0 else [None]
    torch.distributed.broadcast_object_list(place)
    path = f"{place[0]}/state"
    flow.save(graph.state_dict(), path, global_dst_rank=0)
    expected = [whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in data]
    model = model_of("MLP")
    copies(model)
    resumed = Train(model, adam(model))
    resumed.load_state_dict(flow.load(path, global_src_rank=0))
    close([whole(resumed(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for x, y in data], expected)
    if flow.env.get_rank() == 0:
        shutil.rmtree(place[0])


def buckets_in(graph: Any) -> list[Any]:
    """What one call of a rank's program begins to sum over the ranks, for each such call."""
    ((_, step),) = graph._compiled.items()
    sections = step.executor._program.sections.values()
    return [node.args[1] for section in sections for node in section.graph.nodes if node.target is bucket_start]


def law_buckets_hold_what_flow_boxing_says_and_change_no_number() -> None:
    _, losses = trained_alone("MLP")
    for setting, most in (
        (lambda: flow.boxing.nccl.set_fusion_max_ops_num(3), 3),
        (lambda: flow.boxing.enable_fusion(False), 1),
    ):
        try:
            setting()
            graph, _, found = trained("MLP", copies)
        finally:
            flow.boxing.nccl.set_fusion_max_ops_num(64)
            flow.boxing.enable_fusion(True)
        close(found, losses)
        assert sum(map(len, buckets_in(graph))) == 4 and max(map(len, buckets_in(graph))) == most
