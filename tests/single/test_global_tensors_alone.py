"""Global tensors in a world of one rank, and what an op decides: pure, so it can be asked about any number of ranks."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch

import oneflow as flow
from oneflow.engine.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.engine.global_tensor.choose import choose, functional_of
from oneflow.engine.global_tensor.members import DECISIONS
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.mesh import Mesh

aten = torch.ops.aten
B, P, S0, S1 = BROADCAST, PARTIAL, split(0), split(1)
HERE = flow.placement("cpu", [0])


def chosen(op: Any, sources: list[Sbp], *args: Any) -> Sbp:
    """How the result of an op lies on two ranks whose inputs lie so."""
    metas = [arg.to("meta") if isinstance(arg, torch.Tensor) else arg for arg in args]
    call = Call(op, metas, {}, op(*metas), 2)
    (signature,) = choose(call, [(sbp,) for sbp in sources], [False] * len(sources), Mesh((0, 1), (2,)))
    return signature.outputs[0]


X, Y = torch.empty(64, 64), torch.empty(64, 64)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [(S0, B, S0), (B, S1, S1), (S1, S0, P), (B, B, B), (P, B, P), (B, P, P)],
)
def test_a_product_lies_as_its_factors_let_it(first: Sbp, second: Sbp, result: Sbp) -> None:
    assert chosen(aten.mm.default, [first, second], X, Y) is result


@pytest.mark.parametrize(("first", "second", "result"), [(S0, S0, S0), (P, P, P), (B, B, B), (S1, S1, S1), (S0, B, S0)])
def test_a_sum_lies_as_its_terms_do(first: Sbp, second: Sbp, result: Sbp) -> None:
    assert chosen(aten.add.Tensor, [first, second], X, Y) is result


def test_ops_that_are_not_linear_add_up_partial_sums_to_slices() -> None:
    assert chosen(aten.relu.default, [P], X) is S0
    assert chosen(aten.mul.Tensor, [P, B], X, Y) is P
    assert chosen(aten.sum.default, [S0], X) is P and chosen(aten.sum.default, [B], X) is B
    assert chosen(aten.transpose.int, [S0], X, 0, 1) is S1


def test_what_came_whole_stays_whole() -> None:
    for op in (aten.relu.default, aten.sum.default, aten.t.default):
        assert chosen(op, [B], X) is B


def test_a_layout_is_not_changed_to_a_partial_sum_only_to_save_the_next_collective() -> None:
    assert chosen(aten.view.default, [S1], torch.empty(512, 512), [512 * 512]) is not P


def test_functions_that_write_have_the_function_that_gives_a_new_tensor() -> None:
    assert (
        functional_of(aten.add_.Tensor) is aten.add.Tensor and functional_of(aten.pow_.Scalar) is aten.pow.Tensor_Scalar
    )
    assert functional_of(aten.index_put_.default) is aten.index_put.default and functional_of(aten.add.Tensor) is None


def test_numbers_that_change_do_not_make_new_decisions() -> None:
    x = flow.ones(4, 4, placement=HERE, sbp=flow.sbp.split(0))
    (x * 0.5, x.add(x, alpha=0.5))
    before = len(DECISIONS.made)
    for step in range(20):
        (x * (0.3 + step), x.add(x, alpha=1.5 + step))
    assert len(DECISIONS.made) == before


@pytest.mark.parametrize("foreach", [False, True])
def test_rates_that_change_do_not_make_new_decisions(foreach: bool) -> None:
    x = torch.nn.Parameter(flow.ones(4, 4, placement=HERE, sbp=flow.sbp.split(0)))
    optimizer = torch.optim.AdamW([x], 0.1, foreach=foreach)
    made = []
    for step in range(4):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimizer.step()
        made.append(len(DECISIONS.made))
    assert made[1] == made[-1]


def test_an_op_without_a_rule_is_told_of_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    x = flow.rand(5, 5, placement=HERE, sbp=flow.sbp.split(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.linalg.inv(x)
    monkeypatch.setenv("ONEFLOW_DEBUG_MODE", "1")
    y = flow.rand(6, 6, placement=HERE, sbp=flow.sbp.split(0))
    with pytest.warns(UserWarning, match="aten.linalg_inv_ex.default has no SBP rule: its global tensors are gathered"):
        torch.linalg.inv(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.linalg.inv(y)  # once


def test_a_global_tensor_of_one_rank_is_the_tensor() -> None:
    values = torch.randn(4, 6)
    x = values.to_global(HERE, flow.sbp.split(1))  # type: ignore[attr-defined]
    for function in (
        torch.relu,
        lambda t: t @ t.t(),
        lambda t: t.softmax(-1),
        lambda t: t[1:3, ::2],
        lambda t: t.sort(1)[0],
        torch.linalg.svdvals,
    ):
        assert torch.allclose(torch.from_numpy(function(x).numpy()), function(values), atol=1e-6)


def test_tensors_of_other_dtypes_and_kinds() -> None:
    x = flow.arange(6, placement=HERE, sbp=flow.sbp.broadcast)
    assert (x.float() / 4).to(torch.int32).tolist() == [0, 0, 0, 0, 1, 1]
    with pytest.raises(RuntimeError, match='placement with "meta" type because there is no device'):
        x.to("meta")
    with torch.inference_mode():
        y = flow.ones(3, 3, placement=HERE, sbp=flow.sbp.split(0))
        y[0] = 2.0
        assert (y @ y).sum().item() == 48.0


def test_the_number_in_a_global_tensor() -> None:
    x = torch.arange(4.0).to_global(HERE, flow.sbp.broadcast)  # type: ignore[attr-defined]
    view = x[2]
    x.mul_(2)
    assert (view.item(), x.sum().item(), (x.requires_grad_()[1] * 3).item()) == (4.0, 12.0, 6.0)
    with pytest.raises(RuntimeError, match="4 elements"):
        x.item()


def test_gradients_follow_data_that_was_replaced() -> None:
    x = torch.nn.Parameter(flow.ones(4, 4, placement=HERE, sbp=flow.sbp.split(0)))
    x.data = flow.ones(4, 4, placement=HERE, sbp=flow.sbp.broadcast)
    (x * x).sum().backward()
    assert x.sbp == x.grad.sbp == (flow.sbp.broadcast,)


def test_a_leaf_goes_when_nobody_holds_it() -> None:
    gc.collect()
    x = torch.nn.Parameter(flow.ones(4, 4, placement=HERE, sbp=flow.sbp.split(0)))
    part = weakref.ref(x._part)
    (x * x).sum().backward()
    gc.disable()
    try:
        del x
        assert part() is None
    finally:
        gc.enable()


def test_local_operands_are_rejected_whatever_their_values() -> None:
    x = flow.arange(4, placement=HERE, sbp=flow.sbp.broadcast)
    for local in (torch.arange(4), torch.tensor([0, 1, 2, 4]), torch.tensor(1)):
        with pytest.raises(RuntimeError, match="inconsistent attributes"):
            x == local  # noqa: B015


def test_local_operands_are_rejected_whichever_module_calls() -> None:
    x = flow.ones(4, placement=HERE, sbp=flow.sbp.broadcast)
    namespace = {"__name__": "torch.nn.modules.rnn", "x": x, "local": torch.tensor(0.0)}
    with pytest.raises(RuntimeError, match="inconsistent attributes"):
        exec("x + local", namespace)


def test_local_constants_are_allowed_in_one_thread_only() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from oneflow.engine.global_tensor.constants import local_constants

    x = flow.ones(4, placement=HERE, sbp=flow.sbp.broadcast)
    with local_constants(), ThreadPoolExecutor() as pool:
        assert (x + torch.ones(4)).tolist() == [2.0] * 4
        with pytest.raises(RuntimeError, match="inconsistent attributes"):
            pool.submit(lambda: x + torch.ones(4)).result()


@pytest.mark.parametrize("make", [
    lambda: torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    lambda: torch.nn.GRU(3, 4), lambda: torch.nn.RNN(3, 4), lambda: torch.nn.LSTMCell(3, 4), lambda: torch.nn.GRUCell(3, 4),
])  # fmt: skip
def test_recurrent_modules_begin_with_global_zeros(make: Any) -> None:
    torch.manual_seed(0)
    module = make()
    x = torch.randn(5, 3) if isinstance(module, torch.nn.RNNCellBase) else torch.randn(5, 2, 3)
    expected = module(x)
    module.to_global(HERE, flow.sbp.broadcast)
    found = module(x.to_global(HERE, flow.sbp.broadcast))
    for one, other in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)):
        torch.testing.assert_close(one.to_local(), other)


def test_one_hot_of_a_global_tensor() -> None:
    x = flow.tensor([2, 0], placement=HERE, sbp=flow.sbp.broadcast)
    assert flow.nn.functional.one_hot(x, 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_a_scaler_takes_global_losses() -> None:
    scaler = flow.amp.GradScaler(init_scale=4.0)
    loss = flow.ones((), placement=HERE, sbp=flow.sbp.broadcast)
    assert scaler.scale(loss).item() == 4.0
