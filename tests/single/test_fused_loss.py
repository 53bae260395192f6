"""The backward pass of a cross entropy over many classes is one op, and gives what torch's two give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
from oneflow import nn
from oneflow.engine.ops.kernels import cross_entropy  # noqa: F401 - registers the op
from oneflow.engine.passes.fused_loss import BYTES

MEAN, SUM, NONE = 1, 2, 0


@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_the_gradient_is_that_of_torch(reduction, rows):
    torch.manual_seed(rows)
    log_softmax = torch.log_softmax(torch.randn(rows, 1000), 1)
    target = torch.randint(0, 1000, (rows,))
    target[::3] = -100  # ignored, wherever they stand
    if reduction == MEAN and rows == 1:
        target[0] = 5  # torch divides by the rows that count
    gradient = torch.randn(rows) if reduction == NONE else torch.tensor(0.7)
    weight = (target != -100).sum().float()
    expected = torch.ops.aten._log_softmax_backward_data(
        torch.ops.aten.nll_loss_backward(gradient, log_softmax, target, None, reduction, -100, weight),
        log_softmax,
        1,
        torch.float32,
    )
    kept = log_softmax.clone()
    found = torch.ops.oneflow.cross_entropy_backward(log_softmax, gradient, target, reduction, -100, weight)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(log_softmax, kept)
    over = torch.ops.oneflow.cross_entropy_backward_(log_softmax, gradient, target, reduction, -100, weight)
    assert torch.equal(over, found) and over.data_ptr() == log_softmax.data_ptr()


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5))

    def build(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


@pytest.mark.parametrize(("rows", "is_fused"), [(300, True), (200, False)])
def test_a_graph_of_many_classes_learns_as_eager_code_does(rows, is_fused):
    classes = 1000
    assert (rows * classes * 4 >= BYTES) == is_fused
    torch.manual_seed(0)
    model, eager = nn.Linear(8, classes), nn.Linear(8, classes)
    eager.load_state_dict(model.state_dict())
    x, y, optimizer = (
        torch.randn(rows, 8),
        torch.randint(0, classes, (rows,)),
        torch.optim.SGD(eager.parameters(), lr=0.5),
    )
    graph = Train(model)
    for _ in range(5):
        loss = F.cross_entropy(eager(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(graph(x, y), loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.weight, eager.weight, rtol=1e-5, atol=1e-6)
    (step,) = graph._compiled.values()
    targets = {node.target for section in step.executor._program.sections.values() for node in section.graph.nodes}
    assert (torch.ops.oneflow.cross_entropy_backward_.default in targets) == is_fused
