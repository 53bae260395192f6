"""What a graph takes and gives: nested tensors and constants, the same at every call; results are fresh tensors."""

from __future__ import annotations

import threading
from collections import OrderedDict, namedtuple

import pytest
import torch
from graph_models import MLP, EvalGraph, TrainGraph, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.engine.core.errors import GraphError, UnsupportedError

STATIC = "nn.Graph ONLY accepts static inputs tensor meta, please check whether your input tensor meta each step is the same as the input of first call graph"
Pair = namedtuple("Pair", ["a", "b"])


class Given(nn.Graph):
    """A graph of a function."""

    def __init__(self, build, settings=lambda graph: None):
        super().__init__()
        self.function = build
        settings(self)

    def build(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def ones(*shape: int, **kwargs) -> torch.Tensor:
    return torch.ones(*shape, **kwargs)


def test_arguments_and_results_may_be_nested():
    def build(batch, pair, scale=None, *, flag, name):
        assert batch["none"] is None and flag is True and name == "add"
        x, (y, z) = batch["x"], batch["more"]
        return {
            "sum": x + y + z * scale,
            "list": [x * pair.a, None, "text", 3],
            "tuple": (y, (z - 1,)),
            "pair": Pair(x, y),
        }

    graph = Given(build)
    batch = {"x": ones(2), "more": [ones(2) * 2, ones(2) * 3], "none": None}
    for _ in range(2):
        made = graph(batch, Pair(ones(2) * 4, ones(1)), 10, flag=True, name="add")
        assert list(made) == ["sum", "list", "tuple", "pair"] and made["sum"].tolist() == [33, 33]
        assert made["list"][0].tolist() == [4, 4] and made["list"][1:] == [None, "text", 3]
        assert type(made["tuple"]) is tuple and made["tuple"][1][0].tolist() == [2, 2]
        assert isinstance(made["pair"], Pair) and made["pair"].b.tolist() == [2, 2]


def test_dictionaries_keep_their_kind():
    made = Given(lambda x: OrderedDict(b=x, a=x + 1))(ones(2))
    assert type(made) is OrderedDict and list(made) == ["b", "a"]


def test_a_graph_may_take_nothing_and_give_nothing():
    assert Given(lambda: None)() is None
    assert Given(lambda: torch.arange(3))().tolist() == [0, 1, 2]
    assert Given(lambda x: ())(ones(2)) == ()


def test_arguments_that_build_does_not_use_are_taken():
    graph = Given(lambda x, unused, y: y - x)
    assert graph(ones(2), ones(5), ones(2) * 3).tolist() == [2, 2] and graph(ones(2), ones(5), ones(2)).tolist() == [
        0,
        0,
    ]


def test_named_arguments_are_told_apart():
    graph = Given(lambda *, x, y: x - y)
    assert graph(x=ones(2), y=ones(2) * 3).tolist() == graph(y=ones(2) * 3, x=ones(2)).tolist() == [-2, -2]


def test_an_input_that_is_given_back_is_a_copy():
    x = ones(2)
    one, two = Given(lambda x: (x, x.view(2, 1)))(x)
    one.add_(5)
    two.add_(7)
    assert x.tolist() == [1, 1] and one.tolist() == [6, 6] and two.flatten().tolist() == [8, 8]


def test_inputs_that_build_writes_into_are_written():
    x = ones(2)
    assert Given(lambda x: x.add_(1) * 2)(x).tolist() == [4, 4]
    assert x.tolist() == [2, 2]


def test_results_are_fresh_at_every_call():
    model = seeded(MLP)
    graph = EvalGraph(model)
    first = graph(ones(6, 8))
    kept = first.clone()
    second = graph(ones(6, 8) * 2)
    assert torch.equal(first, kept) and not torch.equal(first, second)
    first.zero_()
    assert torch.equal(graph(ones(6, 8)), kept)


def test_results_of_both_kinds_of_graphs_can_be_used_by_autograd_afterwards():
    model = seeded(MLP)
    train, evaluate = TrainGraph(model, sgd(model)), EvalGraph(model)
    loss, out = train(ones(2, 8), torch.tensor([0, 1])), evaluate(ones(2, 8))
    weight = torch.ones((), requires_grad=True)
    (weight * loss + (weight * out).sum()).backward()
    torch.testing.assert_close(weight.grad, loss + out.sum())
    assert not loss.requires_grad and loss.is_leaf


def test_a_parameter_that_is_given_back_is_a_copy():
    model = nn.Linear(2, 2)

    class Giving(EvalGraph):
        def build(self, x):
            return self.model.weight, self.model(x)

    weight, _ = Giving(model)(ones(1, 2))
    assert torch.equal(weight, model.weight) and weight.data_ptr() != model.weight.data_ptr()


@pytest.mark.parametrize(
    "other, told",
    [
        ((ones(3), 1), r"input 0 was float32\(2\) on cpu at the first call and is float32\(3\) on cpu now"),
        ((ones(2, 1), 1), r"input 0 was float32\(2\) on cpu at the first call and is float32\(2, 1\)"),
        ((ones(2).double(), 1), r"input 0 was float32\(2\) on cpu at the first call and is float64\(2\)"),
        ((ones(2).to("meta"), 1), r"input 0 was float32\(2\) on cpu at the first call and is float32\(2\) on meta"),
        ((ones(2), 2), "input 1 was 1 at the first call and is 2 now"),
        ((ones(2), True), "input 1 was 1 at the first call and is True now"),
        ((ones(2), 1.0), "input 1 was 1 at the first call and is 1.0 now"),
        ((ones(2), (1,)), "they are nested otherwise"),
        ((ones(2),), "they are nested otherwise"),
        ((ones(2), None), "input 1 was 1 at the first call and is None now"),
    ],
)
def test_inputs_are_as_at_the_first_call(other, told):
    graph = Given(lambda x, factor=1: x * 1)
    graph(ones(2), 1)
    with pytest.raises(GraphError, match=f"{STATIC}.*{told}.*enable_dynamic_shapes") as caught:
        graph(*other)
    assert isinstance(caught.value, RuntimeError)
    assert graph(ones(2), 1).tolist() == [1, 1], "the graph is as it was"


def test_a_number_that_changes_can_be_a_tensor():
    graph = Given(lambda x, factor: x * factor)
    assert [graph(ones(1), torch.tensor(f)).item() for f in (1.0, 2.0)] == [1, 2]


def test_with_dynamic_shapes_each_signature_is_compiled_once_and_the_last_are_kept():
    seen = []

    def build(x, factor=1):
        seen.append((tuple(x.shape), x.dtype, factor))
        return x.sum() * factor

    graph = Given(build, lambda graph: graph.config.enable_dynamic_shapes(size=2))
    calls = [(ones(2),), (ones(3),), (ones(2),), (ones(3),), (ones(3), 2), (ones(3),), (ones(2),)]
    assert [graph(*call).item() for call in calls] == [2, 3, 2, 3, 6, 3, 2]
    of = torch.float32
    assert seen == [((2,), of, 1), ((3,), of, 1), ((3,), of, 2), ((2,), of, 1)], (
        "two are kept, the one that came first goes"
    )


def test_a_training_graph_of_many_shapes_counts_one_row_of_steps():
    eager, model = seeded(MLP), seeded(MLP)
    loop = flow.optim.Adam(eager.parameters(), lr=0.01)
    graph = TrainGraph(
        model, flow.optim.Adam(model.parameters(), lr=0.01), settings=lambda graph: graph.config.enable_dynamic_shapes()
    )
    for size in (4, 2, 4, 3, 2):
        x, y = torch.randn(size, 8, generator=torch.Generator().manual_seed(size)), torch.zeros(size, dtype=torch.int64)
        loop.zero_grad()
        expected = nn.CrossEntropyLoss()(eager(x), y)
        expected.backward()
        loop.step()
        torch.testing.assert_close(graph(x, y), expected.detach())
    assert graph._graph.step.item() == 5


class Opaque:
    pass


@pytest.mark.parametrize(
    "argument, where", [(Opaque(), r"\[0\]"), ({"a": [1, Opaque()]}, r"\[0\]\['a'\]\[1\]"), ({1, 2}, r"\[0\]")]
)
def test_other_leaves_are_refused(argument, where):
    with pytest.raises(
        UnsupportedError,
        match=f"argument {where} has a leaf of type (Opaque|set); make a tensor of it, or give it to the graph's __init__",
    ) as caught:
        Given(lambda x: x)(argument)
    assert isinstance(caught.value, NotImplementedError)


def test_two_threads_that_call_a_graph_first_compile_it_once():
    calls, results = [], []
    model = seeded(MLP)

    class Counting(EvalGraph):
        def build(self, x):
            calls.append(1)
            return super().build(x)

    graph, gate = Counting(model), threading.Barrier(2)

    def call():
        gate.wait()
        results.append(graph(ones(3, 8)))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1] and len(results) == 2
    for made in results:
        torch.testing.assert_close(made, model(ones(3, 8)).detach())


def test_a_model_output_is_given_back_as_one():
    ModelOutput = pytest.importorskip("transformers.utils").ModelOutput
    import dataclasses

    @dataclasses.dataclass
    class Out(ModelOutput):
        loss: torch.Tensor | None = None
        logits: torch.Tensor | None = None

    graph = Given(lambda x: Out(logits=x * 2))
    for _ in range(2):
        made = graph(ones(2))
        assert isinstance(made, Out) and made.logits.tolist() == [2, 2] and made.loss is None


def test_a_tensor_that_build_makes_and_writes_into_is_new_at_every_step():
    class Steps(flow.nn.Graph):
        def build(self, x):
            made = torch.tensor([1.0, 2.0, 3.0])
            made[1:].add_(1)
            return x + made

    graph = Steps()
    for _ in range(3):
        assert graph(torch.zeros(3)).tolist() == [1.0, 3.0, 4.0]
