"""A graph shares its modules with eager code: parameters and buffers are the same tensors, whoever changes them."""

from __future__ import annotations

import pytest
import torch
from graph_models import MLP, EvalGraph, TrainGraph, eager_losses, same_state, seeded, sgd
from torch._subclasses.fake_tensor import FakeTensor

import oneflow as flow
import oneflow.nn as nn

X, Y = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 3, 0, 1])


def batches(count: int):
    draw = torch.Generator().manual_seed(2)
    return [(torch.randn(6, 8, generator=draw), Y) for _ in range(count)]


def test_batch_norm_statistics_are_updated_as_by_eager_code():
    def net():
        return nn.Sequential(
            nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False)
        )

    eager, model = seeded(net), seeded(net)
    eager_losses(eager, sgd(eager), batches(4))
    graph = TrainGraph(model, sgd(model))
    held = model[1].running_mean
    for x, y in batches(4):
        graph(x, y)
    same_state(eager, model, 1e-6)
    assert model[1].running_mean is held and int(model[1].num_batches_tracked) == 4


def test_statistics_are_updated_by_every_call_whoever_reads_its_result():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice, self.unread, self.linear = nn.BatchNorm1d(8), nn.BatchNorm1d(8), nn.Linear(8, 4)

        def forward(self, x):
            before = self.twice.running_mean * 2
            self.unread(x)
            out = self.linear(self.twice(x) + self.twice(x))
            return out + before.sum() - (self.twice.running_mean * 2).sum()

    eager, model = seeded(Net), seeded(Net)
    expected = eager_losses(eager, sgd(eager), batches(3))
    graph = TrainGraph(model, sgd(model))
    torch.testing.assert_close([graph(x, y).item() for x, y in batches(3)], expected)
    same_state(eager, model, 1e-6)
    assert int(model.twice.num_batches_tracked) == 6 and model.unread.running_mean.abs().sum() > 0


class Remembering(nn.Module):
    """Replaces one buffer and writes into another."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("mean", flow.zeros(4))
        self.register_buffer("count", flow.zeros((), dtype=flow.int64))

    def forward(self, x):
        out = self.linear(x)
        self.mean = self.mean * 0.9 + out.detach().mean(0) * 0.1
        self.count += 1
        return out - self.mean


def test_buffers_that_forward_replaces_are_kept_from_step_to_step():
    eager, model = seeded(Remembering), seeded(Remembering)
    expected = eager_losses(eager, sgd(eager), batches(5))
    graph = TrainGraph(model, sgd(model))
    held = model.mean
    torch.testing.assert_close([graph(x, y).item() for x, y in batches(5)], expected)
    same_state(eager, model, 1e-6)
    assert model.mean is held and int(model.count) == 5


def test_a_buffer_that_is_replaced_without_training_is_kept_too():
    model = seeded(Remembering)
    graph, mean = EvalGraph(model), torch.zeros(4)
    for x, _ in batches(3):
        mean = mean * 0.9 + model.linear(x).detach().mean(0) * 0.1
        torch.testing.assert_close(graph(x), (model.linear(x) - mean).detach())
    torch.testing.assert_close(model.mean, mean)


def test_training_and_evaluation_graphs_share_modules():
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4)))
    train, evaluate = TrainGraph(model, sgd(model)), EvalGraph(model)
    for x, y in batches(3):
        model.train()
        train(x, y)
        model.eval()
        with flow.no_grad():
            torch.testing.assert_close(evaluate(X), model(X), rtol=1e-6, atol=1e-6)


def changed_by_copy(model):
    model.layers[0].weight.data.copy_(torch.ones(16, 8))


def changed_by_load(model):
    model.load_state_dict({name: torch.full_like(value, 0.1) for name, value in model.state_dict().items()})


def changed_by_data(model):
    model.layers[0].weight.data = torch.full((16, 8), 0.5)


def changed_in_place(model):
    with flow.no_grad():
        for p in model.parameters():
            p.mul_(2)


def changed_by_a_step(model):
    optimizer = flow.optim.SGD(model.parameters(), lr=0.5)
    model(X).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "change", [changed_by_copy, changed_by_load, changed_by_data, changed_in_place, changed_by_a_step]
)
def test_a_graph_sees_parameters_that_eager_code_has_changed(change):
    model = seeded(MLP).eval()
    graph = EvalGraph(model)
    before = graph(X)
    change(model)
    with flow.no_grad():
        torch.testing.assert_close(graph(X), model(X))
    assert not torch.equal(graph(X), before)


@pytest.mark.parametrize("change", [changed_by_copy, changed_by_load, changed_by_data])
def test_a_training_graph_goes_on_with_what_eager_code_has_changed(change):
    eager, model = seeded(MLP), seeded(MLP)
    loop, graph = sgd(eager), TrainGraph(model, sgd(model))
    for _ in range(2):
        expected = eager_losses(eager, loop, batches(2))
        torch.testing.assert_close([graph(x, y).item() for x, y in batches(2)], expected)
        change(eager)
        change(model)
    same_state(eager, model)


def test_tied_weights_are_one_variable():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(flow.tanh(self.one(x)))

    eager, model = seeded(Tied), seeded(Tied)
    expected = eager_losses(eager, sgd(eager), batches(4))
    graph = TrainGraph(model, sgd(model))
    torch.testing.assert_close([graph(x, y).item() for x, y in batches(4)], expected)
    assert model.two.weight is model.one.weight and len(list(model.parameters())) == 1
    same_state(eager, model, 1e-6)


def test_frozen_parameters_and_those_that_no_loss_reaches_stay_as_they_are():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.frozen, self.idle = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(x) + self.frozen(x)

    model = seeded(Partly)
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = TrainGraph(model, optimizer)
    for x, y in batches(2):
        graph(x, y)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"used.weight", "used.bias"}
    assert {id(p) for p in optimizer.state} == {id(p) for p in model.used.parameters()}


def test_parameters_outside_of_the_optimizer_stay_as_they_are():
    model = seeded(MLP)
    graph = TrainGraph(model, flow.optim.SGD(model.layers[3].parameters(), lr=0.1))
    first = model.layers[0].weight.clone()
    graph(X, Y)
    assert torch.equal(model.layers[0].weight, first) and model.layers[0].weight.grad is None


def test_what_forward_keeps_is_no_traced_tensor():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.last, self.calls = nn.Linear(8, 4), None, 0
            self.history, self.by_name = ["kept"], {"kept": 1}

        def forward(self, x):
            self.last = self.linear(x)
            self.every = [self.last, x]
            self.named = {"last": self.last}
            self.history.append(self.last)
            self.by_name["last"] = self.last
            self.calls += 1
            return self.last

    model = Keeping()
    graph = EvalGraph(model)
    for _ in range(3):
        graph(X)
    assert model.calls == 1, "Python ran at the first call alone"
    held = [model.last, *getattr(model, "every", []), *getattr(model, "named", {}).values()]
    assert not any(isinstance(value, FakeTensor) for value in held)
    assert model.history == ["kept"] and model.by_name == {"kept": 1}
    assert all(type(p) is nn.Parameter for p in model.parameters())
    model(X).sum().backward()
    assert model.linear.weight.grad is not None


def test_what_build_keeps_is_no_traced_tensor():
    class Keeping(EvalGraph):
        def __init__(self, model):
            super().__init__(model)
            self.seen, self.count = ["kept"], 0

        def build(self, x):
            self.last, self.count = x, self.count + 1
            self.seen.append(x)
            return super().build(x)

    graph = Keeping(nn.Linear(8, 2))
    graph(X)
    assert not hasattr(graph, "last") and graph.seen == ["kept"] and graph.count == 1


def test_python_runs_once():
    calls = []

    class Counting(EvalGraph):
        def build(self, x):
            calls.append(x.shape)
            return super().build(x)

    graph = Counting(nn.Linear(8, 2))
    for _ in range(3):
        graph(X)
    assert calls == [(6, 8)]


def test_a_build_that_fails_leaves_modules_as_they_were():
    model = seeded(Remembering)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    class Failing(EvalGraph):
        def build(self, x):
            super().build(x)
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        Failing(model)(X)
    assert not any(isinstance(value, FakeTensor) for value in model.state_dict().values())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not model._forward_hooks and model(X).shape == (6, 4)


def test_hooks_of_modules_run_in_a_graph():
    model = nn.Linear(8, 4)
    model.register_forward_hook(lambda module, inputs, output: output * 3)
    with flow.no_grad():
        torch.testing.assert_close(EvalGraph(model)(X), model(X))


def test_tensors_from_elsewhere_are_seen_as_they_change():
    scale = torch.ones(())

    class Scaled(EvalGraph):
        def build(self, x):
            return super().build(x) * scale

    model = nn.Linear(8, 4)
    graph = Scaled(model)
    graph(X)
    scale.fill_(5.0)
    torch.testing.assert_close(graph(X), (model(X) * 5).detach())


def test_submodules_and_functions_may_be_called_one_by_one():
    class Parts(EvalGraph):
        def build(self, x):
            for layer in self.model.layers:
                x = layer(x)
            return x + self.model.layers[3].bias

    model = seeded(MLP)
    with flow.no_grad():
        torch.testing.assert_close(Parts(model)(X), model(X) + model.layers[3].bias)


@pytest.mark.parametrize("mode", [flow.no_grad, flow.inference_mode])
def test_the_mode_of_the_caller_does_not_count(mode):
    eager, model = seeded(MLP), seeded(MLP)
    expected = eager_losses(eager, sgd(eager), batches(3))
    graph = TrainGraph(model, sgd(model))
    first, *others = batches(3)
    with mode():
        losses = [graph(*first).item()]
    losses += [graph(x, y).item() for x, y in others]
    torch.testing.assert_close(losses, expected)


def test_inputs_may_lie_in_memory_otherwise():
    model = seeded(MLP)
    graph = EvalGraph(model)
    graph(X)
    for other in (torch.randn(8, 6).t(), torch.randn(1, 8).expand(6, 8), torch.randn(6, 16)[:, ::2]):
        with flow.no_grad():
            torch.testing.assert_close(graph(other), model(other))


def test_gradients_of_inputs_can_be_taken_in_build():
    """A gradient penalty: a gradient that is differentiated again."""

    def loss_of(model, x):
        x = x.detach().requires_grad_()
        out = torch.nn.functional.softplus(model(x)).sum()
        (gradient,) = flow.autograd.grad(out, x, create_graph=True)
        return gradient.square().mean() + out * 0.01

    class Penalty(EvalGraph):
        def __init__(self, model):
            super().__init__(model)
            self.add_optimizer(sgd(model))

        def build(self, x):
            loss = loss_of(self.model, x)
            loss.backward()
            return loss

    eager, model = seeded(MLP), seeded(MLP)
    loop, graph = sgd(eager), Penalty(model)
    for x, _ in batches(3):
        loop.zero_grad()
        loss = loss_of(eager, x)
        loss.backward()
        loop.step()
        torch.testing.assert_close(graph(x), loss.detach())
    same_state(eager, model, 1e-6)


def test_an_average_of_parameters_can_be_kept_in_build():
    model, average = seeded(MLP), seeded(MLP)

    class Averaging(TrainGraph):
        def __init__(self):
            super().__init__(model, sgd(model))
            self.average = average

        def build(self, x, y):
            loss = super().build(x, y)
            with flow.no_grad():
                for kept, p in zip(self.average.parameters(), self.model.parameters()):
                    kept.mul_(0.5).add_(p, alpha=0.5)
            return loss

    graph, expected = Averaging(), model.layers[0].weight.detach().clone()
    for x, y in batches(3):
        expected = expected * 0.5 + model.layers[0].weight.detach() * 0.5
        graph(x, y)
    torch.testing.assert_close(average.layers[0].weight.detach(), expected)


def test_parametrized_weights_and_functions_of_ones_own_are_traced():
    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * ctx.saved_tensors[0] * gradient

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4))

        def forward(self, x):
            return Cubed.apply(self.linear(x))

    eager, model = seeded(Net), seeded(Net)
    expected = eager_losses(eager, sgd(eager), batches(3))
    graph = TrainGraph(model, sgd(model))
    torch.testing.assert_close([graph(x, y).item() for x, y in batches(3)], expected, rtol=1e-5, atol=1e-5)
    same_state(eager, model, 1e-5)
