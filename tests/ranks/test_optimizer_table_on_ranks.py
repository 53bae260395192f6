"""Every row of the table of optimizers on ranks: variables whole, split, in pieces, gradients accumulated; against numpy formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from nets import Spread, begin
from nets import variables as all_variables
from optimizer_cases import Arrays, Case, Given, cases, check, clip, cosine, expected

import oneflow as flow

STEPS, BATCH = 4, 8
NAMES = ("weight", "bias")
FIRST = {"weight": np.random.default_rng(1).normal(size=(7, 4)), "bias": np.random.default_rng(2).normal(size=(4,))}
DATA = [tuple(np.random.default_rng(10 + t).normal(size=(BATCH, n)).astype(np.float32) for n in (7, 4)) for t in range(STEPS)]
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

    def optimizer(self, case: Case) -> Any:
        more: dict[str, Any] = {"grad_clipping": flow.optimizer.grad_clipping.by_global_norm(CLIP)} if self.clips else {}
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
                weights[name] = case.formula(weights[name], gradient[name], states[name], rate, decay, t, **case.numbers)
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
    return flow.get_variable(name, value.shape, initializer=Given(value), regularizer=regularizer, parallel_distribution=lies)


def define(number: int, case: Case, treatment: Treatment, how: Spread) -> Callable[..., Any]:
    rows = BATCH // how.micro_batches

    def body(x=flow.FixedTensorDef((rows, 7)), y=flow.FixedTensorDef((rows, 4))):  # type: ignore[no-untyped-def]
        with flow.scope.namespace(f"job{number}"), how.stage(0):
            made = flow.nn.bias_add(flow.matmul(x, variable(how, "weight", treatment.l2)), variable(how, "bias", 0.0), "NCHW")
            loss = flow.math.reduce_sum(made * y, axis=[1])
        treatment.optimizer(case).minimize(loss)

    body.__name__ = f"job{number}"
    return flow.global_function("train", how.config())(body)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_optimizer_follows_its_formula_on_every_layout(layout: str) -> None:
    how = LAYOUTS[layout]
    begin(how.devices)
    made = [(f"{name}, {what}", case, treatment) for name, case in cases().items() for what, treatment in treatments(case).items()]
    for job in [define(number, case, treatment, how) for number, (_, case, treatment) in enumerate(made)]:
        for batch in DATA:
            job(*batch)
    found = all_variables()
    for number, (name, case, treatment) in enumerate(made):
        prefix = f"job{number}-"
        try:
            check({key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}, treatment.expected(case))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def test_treatments_do_what_they_are_called() -> None:
    """Otherwise the law above would hold for nothing."""
    for case in cases().values():
        different = treatments(case).values()
        assert len({treatment.expected(case)["weight"].tobytes() for treatment in different}) == len(different)
    assert all(np.sqrt(sum((g**2).sum() for g in gradient.values())) > CLIP for gradient in GRADIENTS)
    want = expected(cases()["SGD naive"].formula, gradients=GRADIENTS, first=FIRST)
    np.testing.assert_allclose(TREATMENTS["plain"].expected(cases()["SGD naive"])["weight"], want["weight"], 1e-6)
