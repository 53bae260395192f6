"""The forward graph of a function: aten ops without data, with lines and module paths, and the same without writes."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from oneflow.engine.capture.forward_graph import Captured, forward_graph, functional, node_line, node_path
from oneflow.engine.capture.stand_in import standing_in


def captured(function, *tensors: torch.Tensor, modules=None) -> Captured:
    graph, attributes = forward_graph(function, tensors, modules)
    outputs = next(node for node in graph.nodes if node.op == "output").args[0]
    return Captured(
        graph, tuple(f"x{i}" for i in range(len(tensors))), {}, tuple(f"y{i}" for i in range(len(outputs))), attributes
    )


def targets(found: Captured) -> list[str]:
    return [str(node.target) for node in found.graph.nodes if node.op == "call_function"]


def test_nothing_is_computed_and_autograd_takes_no_part():
    x = torch.full((2, 3), 2.0, requires_grad=True)
    found = captured(lambda x: [(x * x).sum(-1)], x)
    assert targets(found) == ["aten.mul.Tensor", "aten.sum.dim_IntList"]
    assert [tuple(node.meta["val"].shape) for node in found.output_nodes()] == [(2,)]
    assert found.run({"x0": x})[0].tolist() == [12.0, 12.0] and x.grad is None


def test_a_graph_without_writes_gives_the_same_values():
    def function(x):
        y = x.clone()
        y[:, 1:] *= 3
        view = y.view(-1)
        view += torch.tensor([1.0])
        return [y.relu_(), view]

    x = torch.randn(2, 3)
    found = captured(function, x)
    plain = functional(found)
    assert any(target.split(".")[1].endswith("_") for target in targets(found))
    assert not any(target.split(".")[1].endswith("_") for target in targets(plain))
    for got, want in zip(plain.run({"x0": x}), function(x), strict=True):
        torch.testing.assert_close(got, want)


def test_a_graph_that_writes_nothing_stays_as_it_is():
    found = captured(lambda x: [x + 1], torch.ones(2))
    assert functional(found) is found


def test_what_is_written_into_an_input_is_told_at_the_end():
    plain = functional(captured(lambda x: [x.add_(1) * 2], torch.ones(2)))
    assert targets(plain)[-1] == "aten.copy_.default"


class Inner(nn.Module):
    def forward(self, x):
        return x.sin()


def test_nodes_know_their_line_and_their_module():
    outer = nn.Sequential(nn.Identity(), Inner())
    found = captured(lambda x: [outer(x).cos()], torch.ones(2), modules=dict(outer.named_modules()))
    for graph in (
        found,
        functional(captured(lambda x: [outer(x.exp_())], torch.ones(2), modules=dict(outer.named_modules()))),
    ):
        node = next(node for node in graph.graph.nodes if "sin" in str(node.target))
        assert node_path(node) == "1"
        assert node_line(node) == f"{__file__}:{inspect.getsourcelines(Inner.forward)[1] + 1}"
    assert node_path(next(node for node in found.graph.nodes if "cos" in str(node.target))) == ""
    assert not any(part._forward_hooks for part in outer.modules())


@pytest.mark.parametrize(
    "function", [lambda x: [x * float(x)], lambda x: [x.reshape(-1).nonzero()], lambda x: [x] if x else [-x]]
)
def test_looking_at_values_is_refused(function):
    with pytest.raises(
        NotImplementedError, match=r"test_forward_graph.py:\d+: the forward pass needs the values of a tensor here"
    ):
        forward_graph(function, [torch.tensor(1.0)])


def test_other_errors_are_torchs_own_and_not_printed(capfd):
    with pytest.raises(RuntimeError, match="broadcast"):
        forward_graph(lambda x: [x + torch.ones(3)], [torch.ones(2)])
    assert capfd.readouterr() == ("", "")


def test_other_tensors_stand_in_wherever_a_module_stands():
    module = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False)})
    module["b"] = module["a"]
    own = module["a"].weight
    with (
        pytest.raises(ZeroDivisionError),
        standing_in({"": module}, {id(own): "a.weight"}, {"a.weight": torch.zeros(2, 2)}),
    ):
        assert not module["a"](torch.ones(2)).any() and not module["b"](torch.ones(2)).any()
        raise ZeroDivisionError
    assert module["a"].weight is own and module["b"].weight is own
