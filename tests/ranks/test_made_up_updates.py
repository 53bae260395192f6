"""What the row of an update allows, and what is refused where it does not say that it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_updates import DECLARES_NORMS, SAYS_NOTHING, SEES_VARIABLES, Scaled
from nets import Spread, begin, variables
from optimizer_cases import Given, lars

import oneflow as flow
from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optimizer.optimizers import WeightDecay

FIRST = {"a": np.random.default_rng(1).normal(size=(6, 4)), "b": np.random.default_rng(2).normal(size=(5, 4))}
GRADIENTS = [
    {name: np.random.default_rng(10 + t).normal(size=value.shape) for name, value in FIRST.items()} for t in range(3)
]
ROWS = Spread(2, ("S(0)",))
PIECES = Spread(2, shares_states=True)
STAGES = Spread(2, stages=("0:0", "0:1"))


def weight(how: Spread, name: str, stage: int) -> Any:
    with how.stage(stage):
        return flow.get_variable(
            name, FIRST[name].shape, initializer=Given(FIRST[name]), parallel_distribution=how.weights
        )


def train(how: Spread, optimizer: Any, config: Any = None) -> dict[str, np.ndarray]:
    begin(how.devices)
    defs = {name: flow.FixedTensorDef(value.shape) for name, value in FIRST.items()}

    @flow.global_function("train", config or how.config())
    def job(a=defs["a"], b=defs["b"]):  # type: ignore[no-untyped-def]
        with how.stage(0):
            first = flow.math.reduce_sum(weight(how, "a", 0) * a)
        with how.stage(1):
            optimizer.minimize(first + flow.math.reduce_sum(weight(how, "b", 1) * b))

    for gradient in GRADIENTS:
        job(*(np.concatenate([value.astype(np.float32)] * how.micro_batches) for value in gradient.values()))
    return variables()


def expected() -> dict[str, np.ndarray]:
    weights = dict(FIRST)
    for gradient in GRADIENTS:
        weights = {name: w - 0.01 * np.linalg.norm(w) * gradient[name] for name, w in weights.items()}
    return weights


@pytest.mark.parametrize(
    "how, row",
    [
        (Spread(1), SAYS_NOTHING),
        (Spread(1), DECLARES_NORMS),
        (Spread(2), SAYS_NOTHING),
        (Spread(2), SEES_VARIABLES),
        (STAGES, SEES_VARIABLES),
        (STAGES, DECLARES_NORMS),
        (ROWS, DECLARES_NORMS),
        (Spread(2, ("S(0)",), micro_batches=2), DECLARES_NORMS),
        (Spread(2, ("S(1)",)), DECLARES_NORMS),
        (PIECES, DECLARES_NORMS),
        (Spread(4, ("S(0)",)), DECLARES_NORMS),
        (Spread(4, ("B", "S(1)"), hierarchy=(2, 2), shares_states=True), DECLARES_NORMS),
    ],
)
def test_an_update_is_right_wherever_its_row_lets_it_go(how: Spread, row: UpdateRow) -> None:
    found = train(how, Scaled(row))
    for name, value in expected().items():
        np.testing.assert_allclose(found[name], value, 1e-5, 1e-6)
    parts = np.concatenate(
        [w - 0.01 * np.linalg.norm(w) * g for w, g in zip(np.split(FIRST["a"], 2), np.split(GRADIENTS[0]["a"], 2))]
    )
    assert not np.allclose(
        parts, FIRST["a"] - 0.01 * np.linalg.norm(FIRST["a"]) * GRADIENTS[0]["a"], 1e-3
    )  # norms of parts are others


REFUSED = r"test_made_up_updates.py:\d+: variable '%s' %s, and Scaled \(update 'by_own_norm', which sees '%s'\) cannot do that; %s"


@pytest.mark.parametrize("how", [ROWS, PIECES, Spread(2, ("S(1)",)), Spread(2, ("S(0)",), micro_batches=2)])
@pytest.mark.parametrize("row", [SAYS_NOTHING, SEES_VARIABLES])
def test_parts_of_variables_are_refused(how: Spread, row: UpdateRow) -> None:
    with pytest.raises(
        UnsupportedError, match=REFUSED % ("a", "is updated in parts, on ranks 0, 1", row.sees, "keep it and its")
    ):
        train(how, Scaled(row))


def test_variables_of_several_stages_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=REFUSED % ("a", "is updated on other ranks than 'b'", "everything", "place both on")
    ):
        train(STAGES, Scaled(SAYS_NOTHING))


@pytest.mark.parametrize("devices", [1, 2])
def test_several_groups_are_refused(devices: int) -> None:
    optimizer = Scaled(SAYS_NOTHING)
    optimizer.weight_decay = WeightDecay(0.1, includes="b")
    what = "is to be updated apart from 'a': its rate, weight decay or L2 is another"
    with pytest.raises(
        UnsupportedError, match=REFUSED % ("b", what, "everything", "give all variables of the optimizer the same")
    ):
        train(Spread(devices), optimizer)


def by_rows_in_use(*names: str) -> Any:
    config = flow.function_config()
    config.indexed_slices_optimizer_conf({"enable": True, "include_op_names": {"op_name": list(names)}})
    return config


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("row", [SAYS_NOTHING, SEES_VARIABLES])
def test_row_wise_updates_are_refused(devices: int, row: UpdateRow) -> None:
    with pytest.raises(
        UnsupportedError, match=REFUSED % ("a", "is to be updated row-wise", row.sees, "take it out of")
    ):
        train(Spread(devices), Scaled(row), by_rows_in_use("a", "b"))


@pytest.mark.parametrize("devices", [1, 2])
def test_row_wise_norms_are_those_of_each_variable(devices: int) -> None:
    """One is split, the other whole: their norms are taken among different ranks."""
    begin(devices)
    defs = {name: flow.FixedTensorDef(value.shape) for name, value in FIRST.items()}

    @flow.global_function("train", by_rows_in_use("a", "b"))
    def job(a=defs["a"], b=defs["b"]):  # type: ignore[no-untyped-def]
        split, whole = (weight(Spread(devices, lies), name, 0) for name, lies in (("a", ("S(0)",)), ("b", None)))
        loss = flow.math.reduce_sum(split * a) + flow.math.reduce_sum(whole * b)
        flow.optimizer.LARS(flow.optimizer.ConstantScheduler(0.1), lars_coefficient=0.1).minimize(loss)

    used = [0, 1, 4]
    weights, states = {name: value.copy() for name, value in FIRST.items()}, {name: {} for name in FIRST}
    for t, gradient in enumerate(GRADIENTS):
        given = {name: np.where(np.isin(np.arange(len(g)), used)[:, None], g, 0) for name, g in gradient.items()}
        job(*(value.astype(np.float32) for value in given.values()))
        for name, w in weights.items():
            w[used] = lars(w[used], given[name][used], states[name], 0.1, 0.0, t, coefficient=0.1)
    found = variables()
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, 1e-5, 1e-6, err_msg=name)
