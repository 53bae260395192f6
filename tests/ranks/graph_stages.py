"""Laws of pipelines: a graph whose modules are stages on placements of their own trains as one process does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from global_rank import SIZE, B, S, spread
from graph_laws import Train, adam, assigned_of, batches, close, model_of, momentum, nothing, same, trained_alone, whole
from graph_settings import accumulate, checkpointed, zero
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.nn.graph import GraphModule

HALF = max(1, SIZE // 2)  # the law is looked up where there is one rank
FIRST, LAST = placement("cpu", range(HALF)), placement("cpu", range(HALF, 2 * HALF))


def lay(model: nn.Module, is_last: Callable[[str], bool]) -> None:
    """Brings the parameters and buffers of two stages to their placements; one that both have lies on the first."""
    made: dict[int, Any] = {}
    for path, module in model.named_modules():
        place = LAST if is_last(path) else FIRST
        for name, tensor in list(module._parameters.items()):
            if tensor is not None:
                module._parameters[name] = made.setdefault(id(tensor), nn.Parameter(spread(tensor, place, B)))
        for name, tensor in list(module._buffers.items()):
            module._buffers[name] = spread(tensor, place, B)


def gpt_last(path: str) -> bool:
    return path.startswith(("blocks.1", "norm", "head"))


def gpt_stages(graph: Any) -> None:
    """Stages that take the placement of their parameters, but for the head: its weight lies on the first stage."""
    *blocks, last = graph.model.blocks
    for module in (graph.model.tokens, graph.model.places, *blocks):
        module.to(GraphModule).set_stage(0)
    for module in (last, graph.model.norm):
        module.to(GraphModule).set_stage(1)
    graph.model.head.to(GraphModule).set_stage(1, LAST)


def pipeline(name: str, is_last: Any, stages: Any, settings: Any = nothing, optimizer: Any = adam) -> list[Tensor]:
    alone, losses = trained_alone(name, optimizer, settings)
    model = model_of(name)
    lay(model, is_last)

    def both(graph: Any) -> None:
        settings(graph)
        stages(graph)

    graph = Train(model, optimizer(model), both)
    found = [graph(spread(x, FIRST, S(0)), spread(y, LAST, S(0))) for x, y in batches(name)]
    assert found[0].placement == LAST
    close(list(map(whole, found)), losses)
    same(model, alone)
    assert {str(p.placement) for p in model.parameters()} == {str(FIRST), str(LAST)}
    return found


def mlp_stages(graph: Any) -> None:
    graph.model.layers[0].to(GraphModule).set_stage(0, FIRST)
    graph.model.layers[3].to(GraphModule).set_stage(1, LAST)


def law_two_stages_train_as_one_process_does() -> None:
    for settings in (nothing, accumulate(2)):
        pipeline("MLP", lambda path: path.endswith("3"), mlp_stages, settings)


def law_parameters_may_lie_on_another_stage_than_the_module_that_reads_them() -> None:
    for settings in (nothing, accumulate(2), zero(2), lambda graph: (accumulate(4)(graph), zero(1)(graph))):
        pipeline("MLP", lambda path: path.endswith("0"), mlp_stages, settings)


def law_stages_run_several_micro_batches_at_a_time() -> None:
    """The compiler sees a pipeline, whose schedule is one forward, one backward."""
    model = model_of("MLP")
    lay(model, lambda path: path.endswith("3"))
    x, y = batches("MLP", 1)[0]

    def settings(graph: Any) -> None:
        accumulate(4)(graph)
        mlp_stages(graph)

    assigned = assigned_of(Train(model, adam(model), settings), spread(x, FIRST, S(0)), spread(y, LAST, S(0)))
    assert assigned.stages == [FIRST._mesh, LAST._mesh]
    first, last = (compile_rank(assigned, rank).schedule for rank in (0, SIZE - 1))
    assert first[:3] == (("forward", 0), ("forward", 1), ("backward", 0)) and last[:2] == (
        ("forward", 0),
        ("backward", 0),
    )


def law_stages_take_the_placement_of_their_parameters() -> None:
    def stages(graph: Any) -> None:
        graph.model.layers[0].to(GraphModule).set_stage(0)
        graph.model.layers[3].config.stage_id = 1

    pipeline("MLP", lambda path: path.endswith("3"), stages, accumulate(4))


def law_batch_norm_and_dropout_go_over_stages() -> None:
    def stages(graph: Any) -> None:
        for module in (graph.model.conv, graph.model.norm):
            module.to(GraphModule).set_stage(0, FIRST)
        graph.model.head.to(GraphModule).set_stage(1, LAST)

    for settings in (nothing, accumulate(2)):
        pipeline("conv net", lambda path: path == "head", stages, settings, momentum)


def law_tied_weights_and_skip_connections_go_over_stages() -> None:
    for settings in (nothing, accumulate(4)):
        pipeline("GPT of two blocks", gpt_last, gpt_stages, settings)


def everything(graph: Any) -> None:
    accumulate(2)(graph)
    checkpointed(graph)
    zero(2)(graph)
    graph.set_grad_scaler(flow.amp.GradScaler(init_scale=1024.0, growth_interval=2))


def law_stages_go_with_zero_checkpointing_and_a_loss_scale() -> None:
    pipeline("GPT of two blocks", gpt_last, gpt_stages, everything)


class Moved(flow.nn.Graph):
    """Values go from placement to placement by hand."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        mlp_stages(self)
        self.add_optimizer(adam(model))

    def build(self, x: Any, y: Any) -> Any:
        first, _, _, last = self.model.layers
        hidden = torch.relu(first(x)).to_global(placement=LAST, sbp=B)
        assert hidden.placement == LAST and hidden.sbp == (B,) and x.placement == FIRST
        scores = last(hidden)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()
        return loss, (hidden * 2).to_global(placement=FIRST, sbp=S(0))


def law_to_global_in_build_moves_between_the_placements_of_stages() -> None:
    x, y = batches("MLP", 1)[0]
    model = model_of("MLP")
    hidden = torch.relu(model.layers[0](x))
    expected = nn.functional.cross_entropy(model.layers[3](hidden), y)
    lay(model, lambda path: path.endswith("3"))
    loss, twice = Moved(model)(spread(x, FIRST, S(0)), spread(y, LAST, S(0)))
    close([whole(loss), whole(twice)], [expected, hidden * 2])
    assert (
        loss.placement == LAST and twice.placement == FIRST and twice.sbp == (S(0) if HALF > 1 else B,)
    )  # on one rank it is whole


class Skip(nn.Module):
    """What the first layer makes goes on to the second and to the end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        return self.last(self.second(hidden + x)) + hidden


class Shrink(flow.nn.Graph):
    def __init__(self, has_stages: bool) -> None:
        super().__init__()
        self.model = Skip()
        if has_stages:
            for module, number, place in (
                (self.model.first, 0, FIRST),
                (self.model.second, 0, FIRST),
                (self.model.last, 1, LAST),
            ):
                module.to_global(place, B)
                module.to(GraphModule).set_stage(number, place)
        self.add_optimizer(adam(self.model))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, x: Any) -> Any:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def law_an_input_on_the_last_stage_may_be_read_by_the_first() -> None:
    """With a skip connection, whose gradient the last stage adds up, a first stage that ran ahead would wait for the
    last, and that for it."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(2))
    alone = Shrink(False)
    expected = [alone(x) for _ in range(2)]
    for place, is_pipeline in ((FIRST, True), (LAST, False)):
        graph, given = Shrink(True), spread(x, place, S(0))
        close([whole(graph(given)) for _ in range(2)], expected)
        assert (assigned_of(Shrink(True), given).stages is not None) == is_pipeline


class Scores(flow.nn.Graph):
    def __init__(self, model: nn.Module, stages: Callable[[Any], None]) -> None:
        super().__init__()
        self.model = model
        stages(self)

    def build(self, x: Tensor) -> Tensor:
        return self.model(x)


def law_stages_evaluate_after_training() -> None:
    alone, _ = trained_alone("GPT of two blocks")
    model = model_of("GPT of two blocks")
    lay(model, gpt_last)
    graph = Train(model, adam(model), gpt_stages)
    for x, y in batches("GPT of two blocks"):
        graph(spread(x, FIRST, S(0)), spread(y, LAST, S(0)))
    model.eval()
    reference = copy.deepcopy(alone).eval()
    x = batches("GPT of two blocks", 1)[0][0]
    close([whole(Scores(model, gpt_stages)(spread(x, FIRST, S(0))))], [reference(x)], 1e-4)
    state = graph.state_dict()
    assert {str(value.placement) for value in state["model"].values()} == {str(FIRST), str(LAST)}


# ------------------------------------------------------------------ local modules


def local_pipeline(name: str, stages: Callable[[Any], None], settings: Any = nothing) -> nn.Module:
    """A module and batches of plain torch; other ranks have other values, of which none counts."""
    alone, losses = trained_alone(name, settings=settings)
    model = model_of(name)
    if flow.env.get_rank():
        for p in model.parameters():
            p.data.normal_()

    def both(graph: Any) -> None:
        settings(graph)
        stages(graph)

    graph = Train(model, adam(model), both)
    noise = 0.0 if flow.env.get_rank() == 0 else 1.0
    found = [graph(x + noise if x.is_floating_point() else x, y) for x, y in batches(name)]
    close(list(map(whole, found)), losses)
    same(model, alone)
    return model


def law_modules_and_inputs_of_plain_torch_become_a_pipeline_by_their_stages_alone() -> None:
    def numbered(graph: Any) -> None:
        graph.model.layers[0].to(GraphModule).set_stage(0)
        graph.model.layers[3].to(GraphModule).set_stage(1)

    for settings in (nothing, accumulate(2)):
        for stages in (numbered, mlp_stages):
            model = local_pipeline("MLP", stages, settings)
            assert [model.layers[i].weight.placement for i in (0, 3)] == [FIRST, LAST]


def law_a_local_gpt_becomes_a_pipeline() -> None:
    """Its tied weight lies where it is first used."""

    def stages(graph: Any) -> None:
        graph.model.to(GraphModule).set_stage(0)
        for module in (graph.model.blocks[1], graph.model.norm, graph.model.head):
            module.to(GraphModule).set_stage(1)

    model = local_pipeline("GPT of two blocks", stages, accumulate(4))
    assert model.head.weight is model.tokens.weight and model.head.weight.placement == FIRST


def law_local_inputs_go_to_the_first_stage_of_global_modules() -> None:
    alone, losses = trained_alone("MLP")
    model = model_of("MLP")
    lay(model, lambda path: path.endswith("3"))
    graph = Train(model, adam(model), mlp_stages)
    close([whole(graph(x, y)) for x, y in batches("MLP")], losses)
    same(model, alone)


def law_batch_norm_of_a_local_module_goes_to_its_stage() -> None:
    def stages(graph: Any) -> None:
        graph.model.norm.to(GraphModule).set_stage(1)
        graph.model.head.to(GraphModule).set_stage(1)
        graph.model.conv.to(GraphModule).set_stage(0)

    model = local_pipeline("conv net", stages)
    assert model.norm.running_mean.placement == LAST and model.conv.weight.placement == FIRST


def law_optimizers_keep_what_they_had_of_local_parameters() -> None:
    """Two eager steps, then a pipeline: the momentum goes on."""
    alone = model_of("MLP").eval()
    model = copy.deepcopy(alone)

    def momentum_of(net: nn.Module) -> Any:
        return flow.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def eager(net: nn.Module, optimizer: Any, data: Any) -> list[Tensor]:
        found = []
        for x, y in data:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        return found

    data = batches("MLP", 4)
    expected = eager(alone, momentum_of(alone), data)
    optimizer = momentum_of(model)
    found = eager(model, optimizer, data[:2])
    graph = Train(model, optimizer, mlp_stages)
    found += [whole(graph(x, y)) for x, y in data[2:]]
    close(found, expected)


def law_stages_that_do_not_share_out_the_ranks_say_so() -> None:
    model = model_of("MLP")

    def three(graph: Any) -> None:
        for number, layer in enumerate((0, 2, 3)):
            graph.model.layers[layer].to(GraphModule).set_stage(number)

    x, y = batches("MLP", 1)[0]
    try:
        Train(model, adam(model), three)(x, y)
    except RuntimeError as error:
        assert f"{SIZE} ranks are not shared out evenly among stages 0 to 2" in str(
            error
        ) and "set_stage(id, placement)" in str(error)
    else:
        assert SIZE % 3 == 0
