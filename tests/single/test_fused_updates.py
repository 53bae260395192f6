"""Fused updates compute the same as the formula after what is done to gradients before it, by the C extension and by
torch's ops."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import oneflow as flow
from fastnn import updates as tf
from oneflow import nn
from oneflow.engine.ops import native
from oneflow.engine.ops.updates import formulas, gradients, sweeps
from oneflow.engine.ops.updates.rows import State, Tensors, UpdateRow
from oneflow.engine.passes.fuse_updates import fused_update, gradient_norms
from oneflow.engine.program import large_products

built = pytest.mark.skipif(not sweeps.RECIPES, reason="the extension was not built")
ROWS: dict[str, UpdateRow] = {row.name: row for row in (*formulas.ROWS, *tf.ROWS)}
SWEPT = [name for name, row in ROWS.items() if row.qualified_name in sweeps.RECIPES]


def by_sign(params: Tensors, grads: Tensors, m: Tensors, lr: float, *, beta1: float) -> None:
    """m: moving mean of g; w -= lr * sign(m)"""
    formulas.average_(m, grads, beta1)
    torch._foreach_sub_(params, [lr * mean.sign() for mean in m])


WITHOUT_KERNELS = {"by_sign": UpdateRow(by_sign, "element", (State("m"),))}
NUMBERS: dict[str, Any] = {
    **{
        "beta": 0.9,
        "momentum": 0.9,
        "dampening": 0.2,
        "nesterov": True,
        "maximize": True,
        "weight_decay": 0.1,
        "beta1": 0.8,
        "beta2": 0.9,
        "epsilon": 1e-3,
    },
    **{
        "decoupled": True,
        "do_bias_correction": True,
        "lr_decay": 0.1,
        "initial_accumulator_value": 0.2,
        "rho": 0.7,
        "alpha": 0.8,
        "decay": 0.8,
    },
    **{
        "coefficient": 0.1,
        "first_mean_square": 1.0,
        "power": -0.5,
        "l1_strength": 0.1,
        "l2_strength": 0.1,
        "first_accumulator": 0.1,
        "count": 2.0,
    },
    "norms": gradients.local_norms,
}
SHAPES = ((3, 5, 7, 9), (4099,), (1,), (0,), (2, 1, 3, 1))
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def numbers_of(row: UpdateRow) -> dict[str, Any]:
    taken = inspect.signature(row.compute).parameters.values()
    return {one.name: NUMBERS[one.name] for one in taken if one.kind is one.KEYWORD_ONLY and one.name in NUMBERS}


def drawn(row: UpdateRow, dtype: torch.dtype = torch.float32, channels_last: bool = False) -> list[list[Tensor]]:
    """Variables with gradients, which lie plainly, and states, in columns. Means of squares are above the squares of
    means."""
    torch.manual_seed(5)
    params, grads = ([torch.randn(shape).to(dtype) for shape in SHAPES] for _ in range(2))
    if channels_last:
        params = [p.contiguous(memory_format=torch.channels_last) if p.dim() == 4 else p for p in params]
    states = []
    for state in row.states:
        low = 0.1 if state.suffix in ("mean_gradient", "m") else 0.5
        shapes = [p.shape if state.shape is None else state.shape for p in params]
        states.append(
            [
                torch.empty_like(p, dtype=dtype).copy_(torch.rand(shape) * 0.1 + low)
                if state.shape is None
                else torch.rand(shape)
                for p, shape in zip(params, shapes)
            ]
        )
    return [params, grads, *states]


def close(found: list[list[Tensor]], wanted: list[list[Tensor]], dtype: torch.dtype) -> None:
    for one, other in zip(sum(found, []), sum(wanted, []), strict=True):
        assert one.stride() == other.stride() and one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def check(row: UpdateRow, columns: list[list[Tensor]]) -> None:
    """A fused update, from gradients that are unscaled, regularized and clipped, against the formula after each of
    these by torch's ops."""
    wanted = [[tensor.clone() for tensor in column] for column in columns]
    kept = [grad.clone() for grad in columns[1]]
    chain = gradients.regularized(wanted[0], gradients.scaled(wanted[1], 0.5), [0.02] * len(kept), [0.1] * len(kept))
    row.compute(wanted[0], gradients.scaled(chain, 0.25), *wanted[2:], 0.1, **numbers_of(row))
    fused_update(
        *columns,
        0.1,
        formula=row.compute,
        unscale=0.5,
        factor=torch.tensor(0.25, dtype=torch.float64),
        coupled_l1=0.02,
        coupled_l2=0.1,
        **numbers_of(row),
    )
    close([columns[0], *columns[2:]], [wanted[0], *wanted[2:]], torch.float32)
    assert all(map(torch.equal, columns[1], kept))


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("name", [*ROWS, *WITHOUT_KERNELS])
def test_an_update_and_what_is_done_to_gradients_before_are_one_call(name, layout):
    row = {**ROWS, **WITHOUT_KERNELS}[name]
    check(row, drawn(row, channels_last=layout == "channels_last"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*ROWS, *WITHOUT_KERNELS])
def test_updates_of_short_floats_are_those_of_long_ones(name, dtype):
    """Of values that are few and far from each other: where a formula takes a sign, rounding decides about none."""
    row = {**ROWS, **WITHOUT_KERNELS}[name]
    params, grads, *states = drawn(row, dtype)
    for tensor in (*params, *grads):
        tensor.copy_(torch.where(tensor < 0.0, -1.0, 1.0) * torch.where(tensor.abs() < 1.0, 1.0, 2.0))
    for column in states:
        for tensor in column:
            tensor.fill_(0.125 if tensor.mean() < 0.3 else 0.5)
    short = [params, grads, *states]
    long = [[tensor.double() for tensor in column] for column in short]
    for columns in (short, long):
        row.compute(*columns, 0.1, **numbers_of(row))
    for one, other in zip(sum(short, []), sum(long, []), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_an_update_needs_no_kernel():
    columns = drawn(WITHOUT_KERNELS["by_sign"])
    assert not sweeps.run_update(WITHOUT_KERNELS["by_sign"].qualified_name, columns, sweeps.Direction(), 0.1, {})


def test_an_update_with_the_name_of_another_does_not_get_its_kernel():
    def adam(params: Tensors, grads: Tensors, lr: float) -> None: ...

    assert UpdateRow(adam).qualified_name not in sweeps.RECIPES


@built
def test_every_recipe_belongs_to_a_row_and_every_sweep_to_a_recipe():
    assert set(sweeps.RECIPES) <= {row.qualified_name for row in ROWS.values()}
    used = {name for recipe in sweeps.RECIPES.values() for name in recipe.sweeps}
    assert used == set(native.update.names())


@built
@pytest.mark.parametrize("name", SWEPT)
def test_the_extension_gives_the_same_bits_on_any_number_of_threads(name):
    row, threads, found = ROWS[name], torch.get_num_threads(), []
    for count in (1, 3):
        torch.manual_seed(0)
        columns = [[torch.rand(200_003), torch.rand(5)] for _ in range(2)]
        columns += [[torch.rand(p.shape if s.shape is None else s.shape) for p in columns[0]] for s in row.states]
        torch.set_num_threads(count)
        numbers = numbers_of(row)
        assert sweeps.run_update(row.qualified_name, columns, sweeps.Direction(0.5, 0.5, 0.5), 0.1, numbers)
        found.append(columns)
    torch.set_num_threads(threads)
    for one, other in zip(*(sum(columns, []) for columns in found)):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


@built
def test_writes_of_the_extension_are_counted_as_those_of_torch_are():
    columns = drawn(formulas.RMSPROP)
    before = columns[0][0]._version
    fused_update(*columns, 0.01, formula=formulas.rmsprop, **numbers_of(formulas.RMSPROP))
    assert columns[0][0]._version > before and columns[2][0]._version > 0


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_norms_are_those_of_gradients_as_they_are_clipped(norm_type, l2):
    params, grads = ([one for one in column if one.numel()] for column in drawn(formulas.SGD, channels_last=True))
    grads[1][7] = 1e4
    found = gradient_norms(
        params,
        grads,
        norm_type=norm_type,
        unscale=-0.5,
        l1=[0.0] * len(grads),
        l2=[l2] * len(grads),
    )
    for norm, param, grad in zip(found, params, grads, strict=True):
        torch.testing.assert_close(
            norm, torch.linalg.vector_norm((-0.5 * grad + l2 * param).double(), norm_type), rtol=1e-5, atol=0.0
        )


def test_an_infinite_gradient_leaves_other_gradients_alone():
    grads = [torch.ones(3), torch.tensor([1.0, math.inf])]
    (norm, infinite) = gradient_norms(grads, grads, norm_type=2.0, unscale=None, l1=[0.0] * 2, l2=[0.0] * 2)
    assert norm.item() == pytest.approx(3**0.5) and math.isinf(infinite.item())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_gradients_are_finite_if_every_one_is(dtype):
    good = [torch.randn(3, 5).to(dtype), torch.empty(0, dtype=dtype), torch.full((), 7.0, dtype=dtype)]
    assert gradients.all_finite(good) and gradients.all_finite([]) and gradients.all_finite([good[1]])
    for bad in (math.inf, -math.inf, math.nan):
        assert not gradients.all_finite([*good, torch.tensor([1.0, bad, -1.0], dtype=dtype)])


@pytest.mark.parametrize("setting", ["native", "off"])
def test_eager_steps_take_the_extension_where_they_may(setting, monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", setting)
    ran: list[str] = []
    monkeypatch.setattr(
        sweeps,
        "run_sweep",
        lambda name, columns, rows, run=sweeps.run_sweep: (ran.append(name), run(name, columns, rows))[1],
    )
    torch.manual_seed(0)
    start = torch.randn(7, 5, 3, 3)
    for layout in (torch.contiguous_format, torch.channels_last):
        weight = torch.nn.Parameter(start.clone(memory_format=layout))
        optimizer = flow.optim.RMSprop([weight], lr=0.1, alpha=0.9, eps=1e-3)
        weight.grad = start.cos()  # plain, whatever the weight is
        optimizer.step()
        gradient = start.cos().double()
        torch.testing.assert_close(
            weight.detach().double(),
            start - 0.1 * gradient / (0.1 * gradient * gradient + 1e-3).sqrt(),
            rtol=1e-5,
            atol=1e-5,
        )
        assert weight._version > 0
    assert ran == (["rmsprop"] * 2 if setting == "native" and sweeps.RECIPES else [])


# ------------------------------------------------------------------ in a graph


class Train(nn.Graph):
    def __init__(self, fusion: str, optimizer: Any, dtype: torch.dtype = torch.float32, scaler: Any = None):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 96)).to(dtype)
        self.add_optimizer(
            optimizer([{"params": list(self.net.parameters()), "clip_grad_max_norm": 0.05, "clip_grad_norm_type": 2.0}])
        )
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.set_fusion(fusion)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


OPTIMIZERS = {
    "SGD": lambda groups: flow.optim.SGD(groups, lr=0.5, momentum=0.9),
    "AdamW": lambda groups: flow.optim.AdamW(groups, lr=0.01),
    "RMSprop": lambda groups: flow.optim.RMSprop(groups, lr=0.01),
    "LAMB": lambda groups: flow.optim.LAMB(groups, lr=0.01),
}


def trained(graph: Train, steps: range = range(3)) -> list[Tensor]:
    for number in steps:
        graph(torch.randn(32, 96, generator=torch.Generator().manual_seed(number)).to(graph.net[0].weight.dtype))
    return [parameter.detach().clone() for parameter in graph.net.to(nn.Module).parameters()]


def called(graph: Train) -> set[str]:
    (step,) = graph._compiled.values()
    nodes = [node for section in step.executor._program.sections.values() for node in section.graph.nodes]
    return {getattr(node.target, "__name__", "") for node in nodes}


def source(graph: Train) -> str:
    (step,) = graph._compiled.values()
    return step.executor.source


@pytest.mark.parametrize(
    "scaler",
    [None, flow.amp.StaticGradScaler(8.0), flow.amp.GradScaler(init_scale=64.0)],
    ids=["", "static", "dynamic"],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_with_clipping_and_loss_scales_are_those_without_fusion(name, scaler):
    found, wanted = Train("native", OPTIMIZERS[name], scaler=scaler), Train("off", OPTIMIZERS[name], scaler=scaler)
    for one, other in zip(trained(found), trained(wanted)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not {"gradient_norms", "fused_update"} & called(wanted)
    assert {"gradient_norms", "fused_update"} <= called(found) and "clipped_by_norm" not in called(found)


def test_a_resumed_run_equals_one_that_was_never_stopped():
    first = Train("native", OPTIMIZERS["LAMB"])
    trained(first, range(2))
    second = Train("native", OPTIMIZERS["LAMB"])
    second.load_state_dict(first.state_dict())
    assert all(map(torch.equal, trained(second, range(2, 4)), trained(first, range(2, 4))))


def test_a_large_gradient_is_made_and_used_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(large_products, "ROWS_BYTES", 2**12)
    plain = {
        name: lambda groups, make=make: make([{"params": groups[0]["params"]}]) for name, make in OPTIMIZERS.items()
    }
    found, wanted = Train("native", plain["RMSprop"]), Train("off", plain["RMSprop"])
    for one, other in zip(trained(found), trained(wanted)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert "size=4096" in source(found) and "formula=" in source(found)


def test_an_update_that_is_one_kernel_of_torchs_stays_it_where_nothing_is_done_to_gradients():
    graph = Train("native", lambda groups: flow.optim.AdamW(groups[0]["params"], lr=0.01))
    trained(graph, range(1))
    assert "fused_update" not in called(graph)
