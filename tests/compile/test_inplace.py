"""Elementwise ops may write over what nothing reads again, and over nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.capture.cleanup import declare_views
from oneflow.engine.passes.inplace import write_over
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


def rewritten(function, *inputs: torch.Tensor):
    """The targets of a function's graph after the pass; its values and its inputs must be those of before."""
    module = make_fx(function, tracing_mode="fake")(*[t.clone() for t in inputs])
    declare_views(module.graph)
    write_over(module.graph)
    given = [t.clone() for t in inputs]
    got = generate(module.graph, "test").call(*given)
    torch.testing.assert_close(got, function(*inputs))
    for before, after in zip(inputs, given):
        assert torch.equal(before, after)
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def test_a_chain_uses_one_piece_of_memory():
    assert rewritten(lambda x: torch.relu(x * 2.0 + 1.0), X) == [aten.mul.Tensor, aten.add_.Tensor, aten.relu_.default]


def test_the_second_term_of_a_sum_may_be_taken():
    assert rewritten(lambda x: x + x * 2.0, X)[-1] is aten.add_.Tensor


def test_a_scaled_second_term_may_not():
    assert rewritten(lambda x: torch.add(x, x * 2.0, alpha=3.0), X)[-1] is aten.add.Tensor


def test_a_term_that_is_read_in_another_order_too_may_not():
    assert rewritten(lambda x: (y := x[:, :3] * 2.0) + y.t(), X)[-1] is aten.add.Tensor


def test_the_pieces_of_an_unsafe_split_lie_in_the_memory_that_it_divides():
    def function(x):
        y = x * 2.0
        left, right = torch.unsafe_split(y, 2, 1)
        return torch.relu(left) + right, y

    assert aten.relu.default in rewritten(function, X)


def test_a_gradient_is_written_over():
    def backward(x):
        y = torch.relu(x * 1.5)
        return aten.threshold_backward.default(y * 3.0, y, 0)

    assert rewritten(backward, X)[-1] is aten.threshold_backward.grad_input


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_a_softmax_is_written_over_its_scores(function, dim):
    scores = torch.linspace(-3.0, 3.0, 7 * 1003).reshape(7, 1003)
    assert (
        len(set(rewritten(lambda x: function(x * 2.0, dim), scores)) & {aten._softmax.out, aten._log_softmax.out}) == 1
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.relu(x),  # an argument of the graph
        lambda x: torch.relu(x.view(12)),  # and a view of one
        lambda x: ((y := x * 2.0), torch.relu(y)),  # a result
        lambda x: ((y := x * 2.0), torch.relu(y.view(12))),  # a view of a result
        lambda x: torch.relu(y := x * 2.0) - torch.exp(y),  # read again later
        lambda x: torch.relu((x[:1] * 2.0).expand(3, 4)),  # elements that share a place
        lambda x: torch.relu(y := x * 2.0) + torch.exp(y.t()).t(),  # a view that is read later
        lambda x: (x * 2.0).double() + x,  # of another dtype than the sum's other term, which is promoted
        lambda x: (y := x * 2.0) + y,  # both terms at once
    ],
    ids=range(9),
)
def test_what_is_still_needed_is_left_alone(function):
    targets = rewritten(function, X)
    assert aten.relu_.default not in targets


def test_views_of_what_was_written_over_follow_it():
    rewritten(lambda x: torch.relu((torch.relu(x * 2.0) + 1.0).view(12)).view(3, 4) * torch.arange(4.0), X)


def test_outputs_of_one_op_are_separate():
    def both(x):
        values, _ = torch.sort(x * 2.0)
        return torch.relu(values)

    assert rewritten(both, X)[-1] is aten.relu_.default


def a_function_and_a_relu(relu_of_its_result: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs a graph in which a function gives a view of its argument, and relu is taken of that view or of the
    argument."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(aten.mul.Tensor, (x, 2.0))
    kept = graph.call_function(lambda value: value.t(), (made,))
    viewed = (
        graph.call_function(aten.view.default, (made, (12,)))
        if not relu_of_its_result
        else graph.call_function(aten.t.default, (kept,))
    )
    result = graph.call_function(aten.relu.default, (viewed,))
    viewed.meta["val"] = result.meta["val"] = X if relu_of_its_result else X.view(12)
    graph.output((made if relu_of_its_result else kept, result))
    write_over(graph)
    return generate(graph, "test").call(X)


def test_what_a_function_may_have_kept_is_not_written_over():
    kept, _ = a_function_and_a_relu(relu_of_its_result=False)
    assert torch.equal(kept, 2 * X.t())


def test_what_a_function_may_have_given_as_a_view_is_not_written_over():
    made, _ = a_function_and_a_relu(relu_of_its_result=True)
    assert torch.equal(made, 2 * X)
