"""A graph as text, its names and flags, its modules behind proxies, and functions as graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graph_models import GPT, MLP, Block, EvalGraph, TrainGraph, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.nn.graph import GraphConfig, GraphModule, ProxyModule

X, Y = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])


class Named(EvalGraph):
    pass


def test_names_count_the_graphs_of_a_class():
    class OfItsOwn(EvalGraph):
        pass

    assert [OfItsOwn(nn.Linear(2, 2)).name for _ in range(3)] == ["OfItsOwn_0", "OfItsOwn_1", "OfItsOwn_2"]


def test_flags_tell_whether_a_graph_trains_and_is_compiled():
    model = seeded(MLP)
    train, evaluate = TrainGraph(model, sgd(model)), EvalGraph(model)
    assert train.training is True and evaluate.training is False
    assert train.is_compiled is False
    train(X, Y)
    assert train.is_compiled is True and evaluate.is_compiled is False


def test_building_compiles_without_a_step():
    model = seeded(MLP)
    before = model.layers[0].weight.clone()
    graph = TrainGraph(model, sgd(model))
    graph.build_graph(X, Y)
    graph.finish_complie_and_init_runtime()
    assert graph.is_compiled and graph._graph.step.item() == 0 and torch.equal(model.layers[0].weight, before)
    graph(X, Y)
    assert graph._graph.step.item() == 1


def test_repr_is_a_tree_of_modules_parameters_and_buffers():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    graph = TrainGraph(model, sgd(model), flow.optim.lr_scheduler.StepLR(sgd(model), 3))
    assert (
        repr(graph)
        == f"""(GRAPH:{graph.name}:TrainGraph): (
  (CONFIG:config:GraphConfig(amp=None, gradient_accumulation_steps=1, dynamic_shapes=False))
  (MODULE:model:Sequential()): (
    (MODULE:model.0:Linear(in_features=2, out_features=3, bias=True)): (
      (PARAMETER:model.0.weight:tensor(..., size=(3, 2), dtype=oneflow.float32, requires_grad=True)): ()
      (PARAMETER:model.0.bias:tensor(..., size=(3,), dtype=oneflow.float32, requires_grad=True)): ()
    )
    (MODULE:model.1:BatchNorm1d({model[1].extra_repr()})): (
      (PARAMETER:model.1.weight:tensor(..., size=(3,), dtype=oneflow.float32, requires_grad=True)): ()
      (PARAMETER:model.1.bias:tensor(..., size=(3,), dtype=oneflow.float32, requires_grad=True)): ()
      (BUFFER:model.1.running_mean:tensor(..., size=(3,), dtype=oneflow.float32, requires_grad=False)): ()
      (BUFFER:model.1.running_var:tensor(..., size=(3,), dtype=oneflow.float32, requires_grad=False)): ()
      (BUFFER:model.1.num_batches_tracked:tensor(..., size=(), dtype=oneflow.int64, requires_grad=False)): ()
    )
  )
  (MODULE:loss_fn:{type(graph.loss_fn.origin).__name__}({graph.loss_fn.extra_repr()})): ()
  (OPTIMIZER:SGD, StepLR)
)"""
    )


@pytest.mark.parametrize(
    "level, there, absent",
    [
        (-1, [], ["building", "MODULE", "aten"]),
        (0, ["building ...", "compiled"], ["MODULE", "aten"]),
        (1, ["compiled", "(MODULE:model:MLP"], ["aten"]),
        (
            2,
            ["(MODULE:model:MLP", "aten.addmm", "model.layers.0 (Linear)", "graph_models.py:", "forward ", "backward "],
            ["def step"],
        ),
        (3, ["aten.addmm", "def step("], []),
    ],
)
def test_debug_prints_as_much_as_its_level_says(level, there, absent, capsys):
    model = seeded(MLP)
    graph = TrainGraph(model, sgd(model), settings=lambda graph: graph.debug(level))
    graph(X, Y)
    printed = capsys.readouterr().out
    assert all(text in printed for text in there) and not any(text in printed for text in absent)
    assert not there or printed.startswith(f"{graph.name}: ")
    graph(X, Y)
    assert capsys.readouterr().out == "", "printed once, when it is compiled"


@pytest.mark.parametrize("level", [-2, 1.5, "2"])
def test_a_level_is_a_whole_number_from_minus_1(level):
    with pytest.raises((AssertionError, TypeError), match="v_level"):
        EvalGraph(nn.Linear(2, 2)).debug(level)


# ------------------------------------------------------------------ proxies


def test_a_module_of_a_graph_is_a_proxy_that_gives_the_module():
    model = seeded(GPT)
    graph = EvalGraph(model)
    proxy = graph.model
    assert isinstance(proxy, ProxyModule) and proxy.to(nn.Module) is model and proxy.origin is model
    block = proxy.blocks[1]
    assert isinstance(block, ProxyModule) and isinstance(block.to(nn.Module), Block) and block.origin is model.blocks[1]
    assert proxy.tokens.weight is model.tokens.weight and proxy.blocks[0].attention.heads == 2
    assert repr(proxy) == repr(model)


def test_lists_of_modules_give_proxies():
    model = seeded(GPT)
    proxy = EvalGraph(model).model
    assert len(proxy.blocks) == 2 and [block.origin for block in proxy.blocks] == list(model.blocks)
    assert model.blocks[0] in proxy.blocks and proxy.blocks[0] in proxy.blocks and model not in proxy.blocks
    assert [(name, m.origin) for name, m in proxy.named_modules()] == list(model.named_modules())
    assert [(name, m.origin) for name, m in proxy.named_children()] == list(model.named_children())
    assert [m.origin for m in proxy.modules()] == list(model.modules()) and [
        m.origin for m in proxy.children()
    ] == list(model.children())
    assert proxy.get_submodule("blocks.0.attention").origin is model.blocks[0].attention
    assert [name for name, _ in proxy.named_parameters()] == [name for name, _ in model.named_parameters()]


def test_settings_are_those_of_one_module_in_one_graph():
    class Checkpointed(EvalGraph):
        def __init__(self, model):
            super().__init__(model)
            for module in self.model.modules():
                if isinstance(module.to(nn.Module), Block):
                    module.to(GraphModule).activation_checkpointing = True

    model = seeded(GPT)
    graph = Checkpointed(model)
    assert graph.model.blocks[0].to(GraphModule) is graph.model.blocks[0].config
    assert graph.model.blocks[1].config.activation_checkpointing and not graph.model.config.activation_checkpointing
    assert graph.model.blocks[0].config.to(nn.Module) is model.blocks[0]
    assert not EvalGraph(model).model.blocks[0].config.activation_checkpointing


def test_attributes_set_through_a_proxy_are_the_modules():
    model = seeded(MLP)
    graph = EvalGraph(model)
    graph.model.extra = 3
    other = nn.Linear(8, 4)
    graph.model.layers = other
    assert model.extra == 3 and model.layers is other
    graph.model.to(torch.float64)
    assert model.layers.weight.dtype == torch.float64


def test_a_module_behind_a_proxy_can_be_assigned():
    one = EvalGraph(seeded(MLP))
    two = EvalGraph(one.model)
    assert two.model.origin is one.model.origin


def test_an_attribute_may_change_its_kind():
    graph = Named(nn.Linear(2, 2))
    graph.model = 3
    assert graph.model == 3 and not graph._graph.modules
    graph.model = nn.Linear(2, 2)
    assert list(graph._graph.modules) == ["model"] and isinstance(graph.model, ProxyModule)


def test_settings_that_change_nothing_are_taken():
    graph = EvalGraph(nn.Linear(2, 2))
    assert isinstance(graph.config, GraphConfig)
    for name in ("allow_fuse_model_update_ops", "allow_fuse_add_to_output", "allow_fuse_cast_scale", "enable_compress_memory", "enable_multi_tensor_update",
                 "enable_choose_best_memory_allocation", "enable_fused_model_update_cast", "enable_straighten_algorithm"):  # fmt: skip
        assert getattr(graph.config, name)(True) is None
    graph.config.set_outputs_buffer_size(2)
    before = torch.backends.cudnn.benchmark
    try:
        graph.config.enable_cudnn_conv_heuristic_search_algo(False)
        assert torch.backends.cudnn.benchmark is True
    finally:
        torch.backends.cudnn.benchmark = before


def test_every_setting_is_told():
    told = (Path(__file__).parents[2] / "docs" / "graphs.md").read_text(encoding="utf-8")
    missing = [
        name
        for name, value in vars(GraphConfig).items()
        if callable(value) and not name.startswith("_") and name not in told
    ]
    assert not missing, f"docs/graphs.md does not name {missing}"


# ------------------------------------------------------------------ functions as graphs

MODEL = seeded(MLP)


def test_trace_makes_a_graph_of_a_function():
    calls = []

    @nn.Graph.trace
    def step(x, *, scale):
        """Scaled."""
        calls.append(1)
        return MODEL(x) * scale

    for _ in range(2):
        torch.testing.assert_close(step(X, scale=2.0), (MODEL(X) * 2).detach())
    assert (
        calls == [1]
        and step.__name__ == "step"
        and step.__doc__ == "Scaled."
        and list(step.graph._graph.modules) == ["MODEL"]
    )
    with flow.no_grad():
        MODEL.layers[0].bias.add_(1)
    torch.testing.assert_close(step(X, scale=2.0), (MODEL(X) * 2).detach())


def test_trace_makes_a_graph_of_a_module():
    model = seeded(MLP)
    step = nn.Graph.trace(model)
    torch.testing.assert_close(step(X), model(X).detach())
    assert step.graph.is_compiled


def test_trace_makes_a_graph_of_a_method():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 2)

        def twice(self, x):
            return self.linear(x) * 2

    net = Net()
    step = nn.Graph.trace(net.twice)
    torch.testing.assert_close(step(X), net.twice(X).detach())
    with flow.no_grad():
        net.linear.bias.add_(1)
    torch.testing.assert_close(step(X), net.twice(X).detach())


def test_trace_finds_modules_that_a_function_encloses():
    model = seeded(MLP)

    def step(x):
        return model(x)

    traced = nn.Graph.trace(step)
    traced(X)
    assert traced.graph._graph.modules["model"] is model


def test_attributes_of_a_class_of_ones_own_may_have_any_name():
    class Named(nn.Graph):
        def __init__(self):
            super().__init__()
            self.step, self.modules, self.settings, self.added, self.loss_scale = 3, [1], "mine", None, 2.0
            self.model = nn.Linear(2, 2)

        def build(self, x):
            return self.model(x) * self.step * self.loss_scale

    graph, x = Named(), flow.ones(1, 2)
    assert torch.equal(graph(x), graph._graph.modules["model"](x) * 6.0)
    assert (graph.step, graph.modules, graph.settings, graph.added) == (3, [1], "mine", None)
