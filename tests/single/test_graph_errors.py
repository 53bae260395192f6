"""What a graph refuses: each message says what came, what was expected, what to do, and names the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graph_models import MLP, EvalGraph, TrainGraph, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.engine.core.errors import ArgumentError, GraphError, UnsupportedError

X, Y = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])


def test_init_calls_super_first():
    class Early(nn.Graph):
        def __init__(self):
            self.model = nn.Linear(2, 2)

    with pytest.raises(
        GraphError,
        match=r"test_graph_errors.py:\d+: Early.__init__\(\) calls super\(\).__init__\(\) before it assigns 'model'",
    ):
        Early()


def test_init_calls_super_at_all():
    class Never(nn.Graph):
        def __init__(self):
            pass

        def build(self, x):
            return x

    with pytest.raises(GraphError, match=r"Never.__init__\(\) calls super\(\).__init__\(\) before anything else"):
        Never()(X)
    with pytest.raises(GraphError, match=r"Never.__init__\(\) calls super\(\).__init__\(\) before anything else"):
        Never().config  # noqa: B018


def test_build_is_defined():
    class Bare(nn.Graph):
        pass

    with pytest.raises(
        UnsupportedError, match=r"Bare does not define build\(self, ...\), the step of the graph"
    ) as caught:
        Bare()(X)
    assert isinstance(caught.value, NotImplementedError)


def test_graphs_are_not_nested(error):
    inner = EvalGraph(nn.Linear(2, 2))

    class Outer(nn.Graph):
        def __init__(self):
            super().__init__()
            self.inner = inner  # here

    with error(GraphError, r"Outer_\d+: a graph cannot hold another graph \('inner'\); share modules between them"):
        Outer()


def test_an_attribute_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="EvalGraph has no attribute 'other'"):
        EvalGraph(nn.Linear(2, 2)).other  # noqa: B018


def building(function, model=None, trains: bool = False):
    """A graph of a function of itself and one argument."""

    class Built(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = seeded(MLP) if model is None else model
            if trains:
                self.add_optimizer(sgd(self.model.to(nn.Module)))

        def build(self, x):
            return function(self, x)

    return Built()


def test_backward_is_called_on_one_number(error):
    def build(graph, x):
        graph.model(x).backward()  # here

    with error(
        GraphError,
        r"Built_\d+: Grad can be implicitly created only for scalar outputs: .* this tensor has the shape \(6, 4\); take its mean\(\) or sum\(\)",
    ):
        building(build, trains=True)(X)


def test_backward_takes_no_gradient(error):
    def build(graph, x):
        graph.model(x).sum().backward(torch.ones(()))  # here

    with error(GraphError, "on one number and without a gradient"):
        building(build, trains=True)(X)


def test_backward_needs_an_optimizer(error):
    def build(graph, x):
        graph.model(x).sum().backward()  # here

    with error(
        GraphError,
        r"backward\(\) in build\(\), but the graph trains nothing; give it an optimizer by add_optimizer\(\) in __init__\(\)",
    ):
        building(build)(X)


def test_backward_of_what_depends_on_no_parameter(error):
    def build(graph, x):
        x.sum().backward()  # here

    with error(GraphError, "backward\\(\\) of a tensor that depends on no parameter of the graph's optimizers"):
        building(build, trains=True)(X)


def test_an_optimizer_needs_backward():
    with pytest.raises(
        GraphError,
        match=r"Built_\d+ has an optimizer, but build\(\) calls backward\(\) of no loss .*; call loss.backward\(\) in build\(\)",
    ):
        building(lambda graph, x: graph.model(x).sum(), trains=True)(X)


LOOKS = {
    "item": lambda x: x.sum().item(),
    "__float__": lambda x: float(x.sum()),
    "__int__": lambda x: int(x.sum()),
    "__bool__": lambda x: 1 if x.sum() > 0 else 0,
    "numpy": lambda x: x.numpy(),
    "tolist": lambda x: x.tolist(),
    "__index__": lambda x: [1, 2, 3][x.sum().long()],
    "equal": lambda x: torch.equal(x, x),
}


@pytest.mark.parametrize("name", LOOKS)
def test_values_are_not_looked_at(name):
    with pytest.raises(
        GraphError,
        match=rf"test_graph_errors.py:\d+: Built_\d+: ({name}|item) in build\(\) looks at values, which are not there while a graph is built .*; build\(\) runs once, on tensors without data: use tensor ops in its place such as flow.where",
    ) as caught:
        building(lambda graph, x: LOOKS[name](x))(X)
    line = int(str(caught.value).split(":")[1])
    assert Path(__file__).read_text().splitlines()[line - 1].strip().startswith(f'"{name}"')


@pytest.mark.parametrize(
    "shape",
    [
        lambda x: x[x > 0],
        lambda x: torch.nonzero(x),
        lambda x: torch.unique(x),
        lambda x: torch.masked_select(x, x > 0),
    ],
)
def test_shapes_do_not_depend_on_values(shape):
    with pytest.raises(
        GraphError,
        match=r"in build\(\) gives a tensor whose shape depends on values; a graph has the same shapes at every step",
    ):
        building(lambda graph, x: shape(x))(X)


def test_a_running_mean_over_all_batches_looks_at_their_number():
    with pytest.raises(GraphError, match=r"__float__ in build\(\) looks at values"):
        building(lambda graph, x: graph.model(x), nn.BatchNorm1d(8, momentum=None))(X)


def test_a_wrong_shape_names_the_module_and_the_line(error):
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 3), nn.Linear(4, 2)

        def forward(self, x):
            return self.second(self.first(x))  # here

    with error(GraphError, r"Built_\d+: linear in 'model.second' \(Linear\): .*\[6, 3\]"):
        building(lambda graph, x: graph.model(x), Wrong())(X)


def test_an_optimizer_has_parameters_of_the_graphs_modules_alone():
    other = nn.Linear(3, 5)
    with pytest.raises(
        GraphError,
        match=r"group 0 of the graph's SGD has a parameter of shape \(5, 3\) that belongs to no module of the graph; assign the module to an attribute",
    ):
        TrainGraph(seeded(MLP), sgd(other))(X, Y)


def compiled() -> TrainGraph:
    model = seeded(MLP)
    graph = TrainGraph(model, sgd(model))
    graph(X, Y)
    return graph


def later_module(graph):
    graph.more = nn.Linear(2, 2)


def later_optimizer(graph):
    graph.add_optimizer(sgd(nn.Linear(2, 2)))


def later_scaler(graph):
    graph.set_grad_scaler(flow.amp.GradScaler())


def later_amp(graph):
    graph.config.enable_amp(True)


def later_accumulation(graph):
    graph.config.set_gradient_accumulation_steps(2)


def later_shapes(graph):
    graph.config.enable_dynamic_shapes()


@pytest.mark.parametrize(
    "change, told",
    [
        (later_module, r"TrainGraph_\d+ is compiled; module 'more' is assigned before its first call"),
        (later_optimizer, r"TrainGraph_\d+ is compiled; an optimizer is added before its first call"),
        (later_scaler, r"TrainGraph_\d+ is compiled; a grad scaler is set before its first call"),
        (later_amp, r"the settings of a graph are read at its first call; set them in __init__\(\)"),
        (later_accumulation, "the settings of a graph are read at its first call"),
        (later_shapes, "the settings of a graph are read at its first call"),
    ],
)
def test_a_compiled_graph_stays_as_it_is(change, told):
    with pytest.raises((GraphError, ArgumentError), match=rf"test_graph_errors.py:\d+: {told}"):
        change(compiled())


@pytest.mark.parametrize(
    "optimizer, told",
    [
        (torch.optim.SGD([torch.ones(1, requires_grad=True)]), "torch.optim.sgd.SGD"),
        (0.1, "builtins.float"),
        (None, "NoneType"),
    ],
)
def test_an_optimizer_is_one_of_this_package(optimizer, told):
    with pytest.raises(ArgumentError, match=f"add_optimizer takes an optimizer of flow.optim, got .*{told}"):
        TrainGraph(seeded(MLP), optimizer)


def test_an_optimizer_without_an_update_of_its_own_has_none_in_a_graph():
    model = seeded(MLP)
    with pytest.raises((UnsupportedError, GraphError), match="LBFGS"):
        TrainGraph(model, flow.optim.LBFGS(model.parameters()))(X, Y)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: flow.optim.lr_scheduler.ReduceLROnPlateau(o),
        lambda o: 0.1,
        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    ],
)
def test_a_schedule_is_a_function_of_the_step(make):
    model = seeded(MLP)
    optimizer = sgd(model)
    with pytest.raises(
        ArgumentError,
        match="lr_sch is a scheduler of flow.optim.lr_scheduler whose rate is a function of the step, got (ReduceLROnPlateau|float|ExponentialLR)",
    ):
        TrainGraph(model, optimizer, make(optimizer))


def test_sparse_optimizers_are_refused():
    class Sparse(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = seeded(MLP)
            self.add_optimizer(sgd(self.model.to(nn.Module)), is_sparse=True)

    with pytest.raises(UnsupportedError, match="is_sparse=True.*leave it out"):
        Sparse()


def test_sparse_gradients_are_refused():
    model = nn.Sequential(torch.nn.Embedding(5, 4, sparse=True), nn.Flatten(), nn.Linear(8, 4))
    with pytest.raises(
        UnsupportedError,
        match="module 'model.0' has sparse gradients, and a graph has none; build it with sparse=False",
    ):
        TrainGraph(model, sgd(model))(torch.zeros(6, 2, dtype=torch.int64), Y)


class Opaque:
    pass


@pytest.mark.parametrize(
    "result, told",
    [
        (lambda x: Opaque(), "a result"),
        (lambda x: {"a": [x, Opaque()]}, r"result \['a'\]\[1\]"),
        (lambda x: (a for a in [x]), "a result"),
    ],
)
def test_results_that_are_no_tensors_are_refused(result, told):
    with pytest.raises(
        UnsupportedError,
        match=rf"test_graph_errors.py:\d+: a graph gives .* build\(\) gave {told} of type (Opaque|generator); give back the tensors that it holds, or leave it out",
    ) as caught:
        building(lambda graph, x: result(x))(X)
    assert isinstance(caught.value, NotImplementedError)


def test_everything_lies_on_one_device():
    with pytest.raises(
        GraphError,
        match=r"the parameters and inputs of a graph lie on one device, these lie on cpu, meta; move the module and the inputs",
    ):
        EvalGraph(seeded(MLP))(X.to("meta"))


@pytest.mark.parametrize("name", ["enable_xla_jit", "enable_tensorrt", "enable_openvino"])
def test_other_compilers_are_refused(name):
    graph = EvalGraph(nn.Linear(2, 2))
    getattr(graph.config, name)(False)
    with pytest.raises(
        UnsupportedError, match=f"config.{name}: graphs are compiled by this package alone; leave it out"
    ):
        getattr(graph.config, name)()


@pytest.mark.parametrize(
    "name, bad",
    [("enable_amp", 2), ("enable_dynamic_shapes", "x"), ("allow_fuse_model_update_ops", 3), ("allow_fuse_add_to_output", 3), ("allow_fuse_cast_scale", 3),
     ("set_outputs_buffer_size", 0), ("enable_compress_memory", 3), ("enable_choose_best_memory_allocation", 3), ("enable_multi_tensor_update", 3),
     ("enable_fused_model_update_cast", 3), ("enable_cudnn_conv_heuristic_search_algo", 3)],
)  # fmt: skip
def test_settings_are_checked(name, bad):
    with pytest.raises((ArgumentError, TypeError), match="mode|value"):
        getattr(EvalGraph(nn.Linear(2, 2)).config, name)(bad)


def test_trace_takes_what_can_be_called():
    with pytest.raises(ArgumentError, match="nn.Graph.trace takes a function or a module, got int"):
        nn.Graph.trace(3)


def test_a_module_has_no_settings_of_a_tensor():
    with pytest.raises(ArgumentError, match="a module has settings as a GraphModule; GraphTensor is for tensors"):
        EvalGraph(nn.Linear(2, 2)).model.to(nn.graph.GraphTensor)


def test_what_is_not_built_cannot_be_finished():
    with pytest.raises(GraphError, match=r"EvalGraph_\d+ is not built yet; call build_graph\(...\)"):
        EvalGraph(nn.Linear(2, 2)).finish_complie_and_init_runtime()


def test_errors_of_the_users_own_pass_through():
    def build(graph, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        building(build)(X)
