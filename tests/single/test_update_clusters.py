"""Clusters of the update do what the update does, with what is done to gradients before: by the C extension, by the ops
of their sweeps, in every dtype and order of memory."""

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
from oneflow.engine.ops.updates import native_update, optim_update, update
from oneflow.engine.ops.updates.update_row import UpdateRow
from oneflow.engine.ops.updates.update_sweeps import SWEEPS
from oneflow.engine.passes.update_cluster import NormCluster, UpdateCluster, call_norms, call_update
from oneflow.engine.program import large_products

built = pytest.mark.skipif(not native_update.NAMES, reason="the extension was not built")
ROWS: dict[str, UpdateRow] = {
    **{f"job {row.name}": row for row in update.ROWS},
    **{row.name: row for row in optim_update.ROWS},
    **{row.name: row for row in (tf.ADAM, tf.RMSPROP, tf.FTRL, tf.ADAM_WEIGHT_DECAY)},
    "tf_ftrl by root": tf.FTRL_BY_ROOT,
}
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
        "decay_rate": 0.8,
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
    "norms": update.local_norms,
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


def cluster_of(row: UpdateRow) -> UpdateCluster:
    return UpdateCluster(row.compute, row.recipe)


def close(found: list[list[Tensor]], wanted: list[list[Tensor]], dtype: torch.dtype) -> None:
    for one, other in zip(sum(found, []), sum(wanted, []), strict=True):
        assert one.stride() == other.stride() and one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def check(row: UpdateRow, cluster: Any, columns: list[list[Tensor]], dtype: torch.dtype) -> None:
    """An update by its cluster, of gradients that are unscaled, regularized and clipped, against the same in turn by
    torch's ops."""
    wanted = [[tensor.clone() for tensor in column] for column in columns]
    kept = [grad.clone() for grad in columns[1]]
    chain = update.regularized(wanted[0], update.scaled(wanted[1], 0.5), [0.02] * len(kept), [0.1] * len(kept))
    row.compute(wanted[0], update.scaled(chain, 0.25), *wanted[2:], 0.1, **numbers_of(row))
    call_update(
        *columns,
        0.1,
        cluster=cluster,
        unscale=0.5,
        factor=torch.tensor(0.25, dtype=torch.float64),
        coupled_l1=0.02,
        coupled_l2=0.1,
        **numbers_of(row),
    )
    close([columns[0], *columns[2:]], [wanted[0], *wanted[2:]], dtype)
    assert all(map(torch.equal, columns[1], kept))


@pytest.mark.parametrize("lies", ["plain", "channels_last"])
@pytest.mark.parametrize("name", ROWS)
def test_an_update_and_what_is_done_to_gradients_before_are_one_call(name, lies):
    row = ROWS[name]
    check(row, cluster_of(row), drawn(row, channels_last=lies == "channels_last"), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_updates_of_short_floats_are_those_of_long_ones(name, dtype):
    row = ROWS[name]
    short = drawn(row, dtype)
    long = [[tensor.double() for tensor in column] for column in short]
    for columns in (short, long):
        row.compute(*columns, 0.1, **numbers_of(row))
    for one, other in zip(sum(short, []), sum(long, []), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_every_update_has_a_recipe():
    assert all(row.recipe is not None for row in ROWS.values())


@built
def test_every_sweep_but_one_is_in_the_extension_and_gives_the_same_bits_on_any_number_of_threads():
    assert native_update.NAMES == {sweep.name for sweep in SWEEPS} - {"ftrl"}
    threads = torch.get_num_threads()
    for sweep in SWEEPS:
        if sweep.name not in native_update.NAMES:
            continue
        found = []
        for count in (1, 3):
            torch.manual_seed(0)
            columns = [[torch.rand(200_003), torch.rand(5)] for _ in range(sweep.tensors)]
            torch.set_num_threads(count)
            found.append((native_update.run(sweep, columns, [[0.5] * sweep.numbers]), columns))
        torch.set_num_threads(threads)
        (sums, columns), (others, again) = found
        assert not sweep.sums or sums == others
        assert all(map(torch.equal, sum(columns, []), sum(again, [])))


@built
def test_writes_of_the_extension_are_counted_as_those_of_torch_are():
    columns = drawn(optim_update.RMSPROP)
    before = columns[0][0]._version
    call_update(*columns, 0.01, cluster=cluster_of(optim_update.RMSPROP), **numbers_of(optim_update.RMSPROP))
    assert columns[0][0]._version > before and columns[2][0]._version > 0


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_norms_are_those_of_gradients_as_they_are_clipped(norm_type, l2):
    params, grads = ([one for one in column if one.numel()] for column in drawn(optim_update.SGD, channels_last=True))
    grads[1][7] = 1e4
    found = call_norms(
        params,
        grads,
        cluster=NormCluster(norm_type),
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
    (norm, infinite) = call_norms(grads, grads, cluster=NormCluster(2.0), unscale=None, l1=[0.0] * 2, l2=[0.0] * 2)
    assert norm.item() == pytest.approx(3**0.5) and math.isinf(infinite.item())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_gradients_are_finite_if_every_one_is(dtype):
    good = [torch.randn(3, 5).to(dtype), torch.empty(0, dtype=dtype), torch.full((), 7.0, dtype=dtype)]
    assert update.all_finite(good) and update.all_finite([]) and update.all_finite([good[1]])
    for bad in (math.inf, -math.inf, math.nan):
        assert not update.all_finite([*good, torch.tensor([1.0, bad, -1.0], dtype=dtype)])


@pytest.mark.parametrize("setting", ["native", "off"])
def test_eager_steps_take_the_extension_where_they_may(setting, monkeypatch):
    monkeypatch.setenv("ONEFLOW_FUSION", setting)
    ran: list[str] = []
    monkeypatch.setattr(
        native_update,
        "run",
        lambda sweep, columns, rows, run=native_update.run: (ran.append(sweep.name), run(sweep, columns, rows))[1],
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
    assert ran == (["rmsprop"] * 2 if setting == "native" and native_update.NAMES else [])


# ------------------------------------------------------------------ in a graph


class Train(nn.Graph):
    def __init__(self, tier: str, optimizer: Any, dtype: torch.dtype = torch.float32, scaler: Any = None):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 96)).to(dtype)
        self.add_optimizer(
            optimizer([{"params": list(self.net.parameters()), "clip_grad_max_norm": 0.05, "clip_grad_norm_type": 2.0}])
        )
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.set_fusion(tier)

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


def source(graph: Train) -> str:
    (step,) = graph._compiled.values()
    return step.executor.source


@pytest.mark.parametrize(
    "scaler",
    [None, flow.amp.StaticGradScaler(8.0), flow.amp.GradScaler(init_scale=64.0)],
    ids=["", "static", "dynamic"],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_with_clipping_and_loss_scales_are_those_without_clusters(name, scaler):
    found, wanted = Train("native", OPTIMIZERS[name], scaler=scaler), Train("off", OPTIMIZERS[name], scaler=scaler)
    for one, other in zip(trained(found), trained(wanted)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert "call_norms" not in source(wanted) and "aten.sqrt.default" not in source(wanted)
    assert "# aten.mul.Tensor, aten.sum.default" in source(found)  # norms, and no clipped gradient


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
    assert "size=4096" in source(found) and "# aten.mul.Tensor" in source(found)


def test_an_update_that_is_one_kernel_of_torchs_stays_it_where_nothing_is_done_to_gradients():
    graph = Train("native", lambda groups: flow.optim.AdamW(groups[0]["params"], lr=0.01))
    trained(graph, range(1))
    assert "aten.sqrt.default" not in source(graph)
