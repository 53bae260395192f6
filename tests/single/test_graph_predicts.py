"""A graph that does not train packs its filters once and takes along what follows a convolution: the values of the
unfused ops, as the modules' tensors are now."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oneflow as flow
from flowvision.models import ModelCreator, slim
from oneflow.engine.graph.compiled import CompiledStep
from oneflow.engine.ops import native
from oneflow.engine.ops.cpu.native_sequence import FRESH, call_sequence

built = pytest.mark.skipif(native.conv is None, reason="the C extension is not built, or there is no AVX2")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


class Block(nn.Module):
    """Every kind of convolution, with a shortcut, in-place activations, a pool and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.wide = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.deep = nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.ReLU6(inplace=True), nn.Conv2d(16, 24, 1), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.SiLU(inplace=True), nn.Conv2d(6, 24, 1), nn.Sigmoid()
        )
        self.groups = nn.Conv2d(24, 8, 3, 1, 1, groups=2)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 25, 64), nn.GELU(), nn.Linear(64, 10))
        for norm in self.modules():
            if isinstance(norm, nn.BatchNorm2d):
                nn.init.normal_(norm.running_mean)
                nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        x = torch.relu(self.wide(x) + x)
        x = self.deep(x)
        x = self.groups(x * self.squeeze(x))
        return self.head(x), x


class Predict(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, *given: Tensor) -> Any:
        return self.model(*given)


def step_of(graph: flow.nn.Graph) -> CompiledStep:
    (step,) = graph._compiled.values()
    return step


def called(graph: flow.nn.Graph, section: str = "step") -> Counter[str]:
    """How often each op is called, on its own or in a sequence."""
    nodes = [
        node for node in step_of(graph).executor._program.sections[section].graph.nodes if node.op == "call_function"
    ]
    alone = Counter(getattr(node.target, "__name__", "") for node in nodes)
    return alone + Counter(name for node in nodes if node.target is call_sequence for name in node.args[0].ops())


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@built
def test_convolutions_take_along_what_follows() -> None:
    model, x = Block().eval(), torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    with torch.no_grad():
        expected = model(x)
    for one, other in zip(graph(x), expected):
        close(one, other)
        assert one.stride() == other.stride()
    counts = called(graph)
    assert counts["mean"] == 1 and counts["winograd"] == 1 and counts["depthwise"] == 1 and counts["convolution"] == 4
    assert not {"relu", "relu_", "hardtanh_", "hardswish", "silu_", "sigmoid", "native_batch_norm"} & {
        name.split(".")[0] for name in counts
    }
    assert called(graph, "prepare")["folded_weight"] == 2


@built
def test_a_setting_keeps_the_very_ops_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEFLOW_FUSION", "off")
    model, x = Block().eval(), torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    with torch.no_grad():
        expected = model(x)
    assert torch.equal(graph(x)[0], expected[0])
    assert "prepare" not in step_of(graph).executor._program.sections


def test_without_the_extension_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "conv", None)
    model, x = Block().eval(), torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    with torch.no_grad():
        expected = model(x)
    assert torch.equal(graph(x)[0], expected[0])
    assert not {one.__name__ for one in FRESH} & set(called(graph))


@built
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_left_to_torch(dtype: torch.dtype) -> None:
    model, x = Block().eval().to(dtype), torch.randn(2, 3, 9, 9, dtype=dtype)
    graph = Predict(model)
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(graph(x)[0], expected[0])
    assert not {one.__name__ for one in FRESH} & set(called(graph))


class Twice(nn.Module):
    """What a convolution makes is read twice, and written into between: nothing goes into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.other = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.conv(x)
        z = self.other(x)
        kept = z * 1.0
        total = z.add_(y)
        return torch.relu(y), total.relu_(), kept


@built
def test_what_others_read_is_not_taken_along() -> None:
    model, x = Twice().eval(), torch.randn(2, 4, 5, 5)
    with torch.no_grad():
        expected = model(x)
    for one, other in zip(Predict(model)(x), expected):
        close(one, other)


class Written(nn.Module):
    """What a convolution reads is written into before what follows it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 2.0
        y = self.conv(x)
        x.mul_(3.0)
        return torch.relu(y + x), x


@built
def test_what_is_written_meanwhile_is_read_before() -> None:
    model, x = Written().eval(), torch.randn(1, 4, 3, 3)
    with torch.no_grad():
        expected = model(x)
    for one, other in zip(Predict(model)(x), expected):
        close(one, other)


def by_optimizer(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(2, 3, 9, 9))[0].sum().backward()
    optimizer.step()


def by_loading(model: nn.Module) -> None:
    model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()})


def behind_autograd(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.5)


def by_other_memory(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5


def of_one_number(model: nn.Module) -> None:
    with torch.no_grad():
        model.wide[0].weight[3, 2, 1, 1] += 1.0


def of_a_statistic(model: nn.Module) -> None:
    model.wide[1].running_mean[5] += 1.0


@built
@pytest.mark.parametrize(
    "change", [by_optimizer, by_loading, behind_autograd, by_other_memory, of_one_number, of_a_statistic]
)
def test_a_change_of_the_module_is_seen_by_the_next_call(change: Any) -> None:
    model, x = Block().eval(), torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    before = graph(x)[0]
    change(model)
    with torch.no_grad():
        expected = model(x)[0]
    assert (expected - before).abs().max() > 1e-3
    close(graph(x)[0], expected)


@built
def test_filters_are_not_kept_where_changes_cannot_be_seen() -> None:
    """Inference tensors have no version counter."""
    with torch.inference_mode():
        model = Block().eval()
    x = torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    with torch.no_grad():
        close(graph(x)[0], model(x)[0])
    assert "prepare" not in step_of(graph).executor.code


@built
def test_filters_are_packed_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Block().eval(), torch.randn(2, 3, 9, 9)
    graph = Predict(model)
    graph(x)
    executor = step_of(graph).executor
    first = executor._prepared
    graph(x)
    assert executor._prepared is first
    of_one_number(model)
    graph(x)
    assert executor._prepared is not first


@built
def test_a_training_graph_of_the_same_module_is_seen() -> None:
    model, x = Block(), torch.randn(4, 3, 9, 9)

    class Train(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x: Tensor) -> Tensor:
            loss = self.model(x)[0].square().mean()
            loss.backward()
            return loss

    train, predict = Train(), None
    for _ in range(3):
        model.train()
        train(x)
        model.eval()
        predict = predict or Predict(model)
        with torch.no_grad():
            expected = copy.deepcopy(model)(x)[0]
        close(predict(x)[0], expected)


def test_steps_that_change_few_numbers_are_seen() -> None:
    """A gradient of one column changes nothing else, wherever one looks."""
    layer = nn.Linear(256, 64, bias=False)
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.5)

    class Train(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer
            self.add_optimizer(optimizer)

        def build(self, x: Tensor) -> Tensor:
            loss = self.layer(x)[:, 7].sum()
            loss.backward()
            return loss

    train, predict = Train(), flow.nn.Graph.trace(layer)
    for column in (0, 1, 100, 255):
        x = torch.zeros(64, 256)
        x[:, column] = 1.0
        predict(x)
        version = layer.weight._version
        train(x)
        assert layer.weight._version > version
        torch.testing.assert_close(predict(x), layer(x).detach())


NETWORKS = [
    ("resnet18", 33),
    ("mobilenet_v2", 33),
    ("efficientnet_b0", 33),
    ("mobilenet_v3_small", 33),
    ("slim:mobilenet_v2_035", 33),
    ("slim:resnet_v1_50", 33),
]


@built
@pytest.mark.parametrize(("name", "size"), NETWORKS)
def test_networks_have_the_values_of_the_unfused_ops(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = (slim.create_model(name[5:]) if name.startswith("slim:") else ModelCreator.create_model(name)).eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0.0, 0.1)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
    x = torch.randn(1, 3, size, size)
    fused = Predict(model)(x)
    monkeypatch.setenv("ONEFLOW_FUSION", "off")
    plain = Predict(model)(x)
    first = lambda given: given[0] if isinstance(given, (tuple, list)) else given  # noqa: E731 - slim gives its end points too
    close(first(fused), first(plain))
