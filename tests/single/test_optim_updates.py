"""The rows of the updates of ``flow.optim``: pieces of a variable, other layouts in memory, gradients left alone; and
clipping by norm."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from optim_formulas import clipped

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ops.updates import formulas, gradients
from oneflow.engine.ops.updates.gradients import clipped_by_norm
from oneflow.engine.ops.updates.rows import State, UpdateRow
from oneflow.optim.optimizer import first_state

NUMBERS: dict[str, Any] = {
    "momentum": 0.9,
    "dampening": 0.2,
    "nesterov": False,
    "maximize": False,
    "weight_decay": 0.1,
    "beta1": 0.8,
    "beta2": 0.9,
    "epsilon": 1e-3,
    "decoupled": True,
    "do_bias_correction": True,
    "lr_decay": 0.1,
    "initial_accumulator_value": 0.2,
    "rho": 0.7,
    "alpha": 0.8,
    "beta": 0.9,
    "coefficient": 0.1,
}
ROWS = {row.name: row for row in formulas.ROWS}
ELEMENTWISE = {name: row for name, row in ROWS.items() if row.sees == "element"}


def numbers_of(row: UpdateRow) -> dict[str, Any]:
    taken = inspect.signature(row.compute).parameters
    return {name: number for name, number in NUMBERS.items() if name in taken} | (
        {"norms": gradients.local_norms} if row.takes_norms else {}
    )


def call(row: UpdateRow, params, grads, states, count) -> None:
    row.compute(params, grads, *states, 0.1, **numbers_of(row), **({"count": count} if row.takes_count else {}))


def made(row: UpdateRow) -> tuple[list[torch.Tensor], list[list[torch.Tensor]], list[list[torch.Tensor]]]:
    """Two variables, three steps of gradients and the first states."""
    draw = torch.Generator().manual_seed(3)
    params = [torch.randn(6, 4, generator=draw), torch.randn(5, generator=draw)]
    grads = [[torch.randn(p.shape, generator=draw) for p in params] for _ in range(3)]
    states = [[first_state(p, state, NUMBERS) for p in params] for state in row.states]
    return params, grads, states


def test_no_two_rows_have_one_name():
    assert len(ROWS) == len(formulas.ROWS)


def test_only_a_row_that_says_so_takes_a_count():
    with pytest.raises(ArgumentError, match="takes count= if and only if its row says takes_count=True"):
        UpdateRow(lambda params, grads, lr: None, takes_count=True)
    with pytest.raises(ArgumentError, match="takes count= if and only if its row says takes_count=True"):
        UpdateRow(lambda params, grads, lr, *, count: None)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_update_that_sees_elements_is_the_same_in_pieces(name):
    row = ROWS[name]
    assert row.may_be_by_rows
    (whole, _), grads, ((*states,)) = made(row)
    pieces = whole.clone()
    states = [state[:1] for state in states]
    parts = [[state[0].clone()] for state in states]
    for t, (grad, _) in enumerate(grads):
        call(row, [whole], [grad], states, t + 1.0)
        for rows in (slice(0, 2), slice(2, 6)):
            call(row, [pieces[rows]], [grad[rows]], [[state[rows] for state in column] for column in parts], t + 1.0)
    assert torch.equal(whole, pieces)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(states, parts))


@pytest.mark.parametrize(
    "row, numbers",
    [
        (formulas.SGD, {"weight_decay": 0.1, "l2": 0.2}),
        *((formulas.SGD, {"weight_decay": 0.1, "maximize": up}) for up in (False, True)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_product_that_is_added_to_a_variable_as_it_is_made_updates_it_as_a_gradient_does(row, numbers, dtype):
    draw = torch.Generator().manual_seed(3)
    weight, a, b = (torch.randn(shape, generator=draw).to(dtype) for shape in ((6, 4), (6, 3), (3, 4)))
    expected = weight.clone()
    row.compute([expected], [a @ b], 0.1, **numbers)
    gradients.by_rows([weight], a, b, 0.1, function=row.compute, size=1, linear=row.linear, **numbers)
    torch.testing.assert_close(weight, expected)


def test_only_an_update_of_elements_without_states_is_linear():
    for more in ({"sees": "variable"}, {"sees": "element", "states": (State("m"),)}):
        with pytest.raises(
            ArgumentError,
            match="is linear= in its gradient only if it sees elements and has no states; leave it out of its row",
        ):
            UpdateRow(lambda params, grads, lr: None, linear=formulas.linear_sgd, **more)


SGDS = [
    (formulas.SGD, {"weight_decay": 0.1}),
    (formulas.MOMENTUM, {"weight_decay": 0.0, "beta": 0.9}),
    *((row, None) for row in (formulas.SGD, formulas.SGD_MOMENTUM)),
]


@pytest.mark.parametrize("row, numbers", SGDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_updated_as_float32_is_but_for_rounding(row, numbers, dtype):
    draw = torch.Generator().manual_seed(3)
    numbers = {**(numbers_of(row) if numbers is None else numbers), **({"count": 1.0} if row.takes_count else {})}
    weight, grad = (torch.randn(100, generator=draw).to(dtype) for _ in range(2))
    short, wide = (
        [[weight.to(kind)], [grad.to(kind)], *([torch.zeros(100, dtype=kind)] for _ in row.states)]
        for kind in (dtype, torch.float32)
    )
    row.compute(*short, 0.1, **numbers)
    row.compute(*wide, 0.1, **numbers)
    for (a,), (b,) in zip(short, wide):
        assert torch.equal(a, b.to(dtype))


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_read_only_and_may_lie_otherwise_in_memory(name):
    row = ROWS[name]
    params, grads, states = made(row)
    others, other_states = [p.clone() for p in params], [[s.clone() for s in column] for column in states]
    for t, step in enumerate(grads):
        before = [g.clone() for g in step]
        call(row, params, step, states, t + 1.0)
        assert all(torch.equal(a, b) for a, b in zip(before, step))
        call(row, others, [step[0].T.contiguous().T, step[1]], other_states, t + 1.0)
    for a, b in zip(params, others):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1000.0])
def test_gradients_are_clipped_by_their_common_norm(norm_type, max_norm):
    grads = made(formulas.SGD)[1][0]
    want = clipped([g.numpy().astype(np.float64) for g in grads], max_norm, norm_type)
    for got in (
        clipped_by_norm(grads, max_norm=max_norm, norm_type=norm_type),
        clipped_by_norm(
            grads,
            max_norm=max_norm,
            norm_type=norm_type,
            norm=torch.linalg.vector_norm(torch.cat([g.ravel() for g in grads]), norm_type),
        ),
    ):
        for a, b in zip(got, want):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_coefficient_of_clipping_has_a_millionth_below_it():
    grads = [torch.full((4,), 3.0)]
    assert clipped_by_norm(grads, max_norm=1.0, norm_type=2.0)[0][0].item() == pytest.approx(3 / 6.000001, rel=1e-7)
    assert torch.equal(grads[0], torch.full((4,), 3.0))
    assert clipped_by_norm([], max_norm=1.0, norm_type=2.0) == []


def test_short_floats_are_clipped_by_a_norm_in_float32():
    grads = [torch.full((1000,), 1.0, dtype=torch.bfloat16), torch.ones(24)]
    got = clipped_by_norm(grads, max_norm=16.0, norm_type=2.0)
    assert [g.dtype for g in got] == [torch.bfloat16, torch.float32] and got[1][0].item() == pytest.approx(
        0.5, rel=1e-4
    )
