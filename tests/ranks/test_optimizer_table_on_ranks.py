"""Every row of the table of optimizers on ranks: variables whole, split, in pieces, gradients accumulated; against
numpy formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from nets import Spread, begin
from nets import variables as all_variables
from optimizer_cases import ROWS, Arrays, Case, Given, cases, check, clip, cosine, expected

import oneflow as flow

STEPS, BATCH = 4, 8
NAMES = ("weight", "bias")
FIRST = {"weight": np.random.default_rng(1).normal(size=(7, 4)), "bias": np.random.default_rng(2).normal(size=(4,))}
DATA = [
    tuple(np.random.default_rng(10 + t).normal(size=(BATCH, n)).astype(np.float32) for n in (7, 4))
    for t in range(STEPS)
]
GRADIENTS = [{"weight": x.T.astype(float) @ y / BATCH, "bias": y.astype(float).mean(0)} for x, y in DATA]
CLIP, L2 = 0.4, 0.2

LAYOUTS = {
    "whole": Spread(2),
    "rows": Spread(2, ("S(0)",)),
    "columns": Spread(2, ("S(1)",)),
    "in pieces": Spread(2, shares_states=True),
    "rows, accumulated": Spread(2, ("S(0)",), micro_batches=2),
    "in pieces, accumulated": Spread(2, shares_states=True, micro_batches=2),
    "columns, in pieces": Spread(4, ("B", "S(1)"), hierarchy=(2, 2), shares_states=True),
}


@dataclass(frozen=True)
class Treatment:
    """What is done besides: weight decay where the class takes one, L2 of the weight, clipping."""

    decay: float = 0.0
    l2: float = 0.0
    clips: bool = False

    def optimizer(self, case: Case, names: list[str]) -> Any:
        more: dict[str, Any] = {"variables": names}
        more |= {"grad_clipping": flow.optimizer.grad_clipping.by_global_norm(CLIP)} if self.clips else {}
        if self.decay and case.decays:
            more |= {"weight_decay": self.decay, "weight_decay_excludes": ["bias"]}
        return case.make(cosine(), **more)

    def expected(self, case: Case) -> Arrays:
        """The formulas, step by step, as L2 and clipping look at the weights of the step."""
        weights, states = dict(FIRST), {name: {} for name in NAMES}
        for t, gradient in enumerate(GRADIENTS):
            gradient = gradient | {"weight": gradient["weight"] + self.l2 * weights["weight"]}
            gradient = clip([gradient], CLIP, False)[0] if self.clips else gradient
            for name in NAMES:
                decay = self.decay if name == "weight" and case.decays else 0.0
                rate = cosine().lr(t)
                weights[name] = case.formula(
                    weights[name], gradient[name], states[name], rate, decay, t, **case.numbers
                )
        return weights | {f"{name}-{key}": value for name, state in states.items() for key, value in state.items()}


TREATMENTS = {
    "plain": Treatment(),
    "l2": Treatment(l2=L2),
    "decayed": Treatment(decay=0.3, l2=L2),
    "clipped": Treatment(decay=0.3, l2=L2, clips=True),
}


def treatments(case: Case) -> dict[str, Treatment]:
    """Those that differ for an optimizer."""
    return {what: treatment for what, treatment in TREATMENTS.items() if case.decays or what != "decayed"}


def variable(how: Spread, name: str, l2: float) -> Any:
    """As the layout says, if it can lie so."""
    value = FIRST[name]
    lies = None if how.weights is None or (value.ndim == 1 and "S(1)" in how.weights) else how.weights
    regularizer = flow.regularizers.l2(l2) if l2 and name == "weight" else None
    return flow.get_variable(
        name, value.shape, initializer=Given(value), regularizer=regularizer, parallel_distribution=lies
    )


@dataclass(frozen=True)
class Trained:
    """One network among those that a job trains; ``prefix`` begins the names of its variables."""

    prefix: str
    case: Case
    treatment: Treatment


def of_row(row: str) -> list[Trained]:
    """Every case of an optimizer of the table with every treatment."""
    mine = {name: case for name, case in cases().items() if name.split()[0] == row}
    return [
        Trained(f"{name} {what}".replace(" ", "_"), case, how)
        for name, case in mine.items()
        for what, how in treatments(case).items()
    ]


def define(row: str, how: Spread) -> Callable[..., Any]:
    """A job that trains one network per case and treatment, each with variables and an optimizer of its own."""
    rows = BATCH // how.micro_batches

    def body(x=flow.FixedTensorDef((rows, 7)), y=flow.FixedTensorDef((rows, 4))):  # type: ignore[no-untyped-def]
        losses = []
        for one in of_row(row):
            with flow.scope.namespace(one.prefix), how.stage(0):
                weight, bias = variable(how, "weight", one.treatment.l2), variable(how, "bias", 0.0)
                made = flow.nn.bias_add(flow.matmul(x, weight), bias, "NCHW")
                losses.append(flow.math.reduce_sum(made * y, axis=[1]))
        optimizers = [
            one.treatment.optimizer(one.case, [f"{one.prefix}-{name}" for name in NAMES]) for one in of_row(row)
        ]
        flow.optimizer.CombinedOptimizer(optimizers).minimize(losses)

    body.__name__ = row
    return flow.global_function("train", how.config())(body)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_optimizer_follows_its_formula_on_every_layout(layout: str) -> None:
    how = LAYOUTS[layout]
    begin(how.devices)
    for job in [define(row, how) for row in ROWS]:
        for batch in DATA:
            job(*batch)
    found = all_variables()
    for one in [one for row in ROWS for one in of_row(row)]:
        prefix = f"{one.prefix}-"
        try:
            check(
                {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)},
                one.treatment.expected(one.case),
            )
        except AssertionError as error:
            raise AssertionError(f"{one.prefix}: {error}") from None


def test_treatments_do_what_they_are_called() -> None:
    """Otherwise the law above would hold for nothing."""
    for case in cases().values():
        different = treatments(case).values()
        assert len({treatment.expected(case)["weight"].tobytes() for treatment in different}) == len(different)
    assert all(np.sqrt(sum((g**2).sum() for g in gradient.values())) > CLIP for gradient in GRADIENTS)
    want = expected(cases()["SGD naive"].formula, gradients=GRADIENTS, first=FIRST)
    np.testing.assert_allclose(TREATMENTS["plain"].expected(cases()["SGD naive"])["weight"], want["weight"], 1e-6)
