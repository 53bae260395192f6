"""Every optimizer, and all that is done to gradients before an update, on several layouts against one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from nets import LAYOUTS, ONE, Spread, begin, conv, dense, variables

import oneflow as flow
import oneflow.typing as tp

STEPS = 5
RATE = flow.optimizer.PiecewiseScalingScheduler(0.02, [2], 0.5)
CLIP = flow.optimizer.grad_clipping.by_global_norm
DYNAMIC = flow.optimizer.loss_scale.dynamic_loss_scale


@dataclass(frozen=True)
class Case:
    """An optimizer, and what the job is configured with besides."""

    make: Callable[[], Any]
    configure: Callable[[Any], Any] = lambda config: None


def by_rows(config: Any) -> None:
    config.indexed_slices_optimizer_conf({"enable": True, "include_op_names": {"op_name": ["by_rows-table"]}})


CASES = {
    "sgd": Case(lambda: flow.optimizer.SGD(RATE, momentum=0.0)),
    "momentum": Case(lambda: flow.optimizer.SGD(RATE, momentum=0.9)),
    "sgdw": Case(lambda: flow.optimizer.SGDW(RATE, momentum=0.9, weight_decay=0.1, weight_decay_excludes=["bias"])),
    "adam": Case(lambda: flow.optimizer.Adam(RATE, do_bias_correction=True)),
    "adamw": Case(lambda: flow.optimizer.AdamW(RATE, weight_decay=0.1, do_bias_correction=True)),
    "rmsprop": Case(lambda: flow.optimizer.RMSProp(RATE)),
    "centered": Case(lambda: flow.optimizer.RMSProp(RATE, centered=True)),
    "lars": Case(lambda: flow.optimizer.LARS(RATE, lars_coefficient=0.1, weight_decay=0.01)),
    "lamb": Case(lambda: flow.optimizer.LAMB(RATE, weight_decay=0.01)),
    "by_rows": Case(lambda: flow.optimizer.LazyAdam(RATE), by_rows),
    "clipped": Case(lambda: flow.optimizer.SGD(RATE, grad_clipping=CLIP(0.05))),
    "scaled": Case(lambda: flow.optimizer.SGD(RATE, loss_scale_factor=1024.0)),
    "rescaled": Case(
        lambda: flow.optimizer.Adam(RATE, loss_scale_policy=DYNAMIC(2.0**127, 2), grad_clipping=CLIP(0.05))
    ),
    "regularized": Case(
        lambda: flow.optimizer.SGD(RATE), lambda config: (config.train.weight_l1(0.01), config.train.bias_l2(0.1))
    ),
    "halved": Case(
        lambda: flow.optimizer.SGD(RATE, grad_clipping=CLIP(1.0)), lambda config: config.enable_auto_mixed_precision()
    ),
    "accumulated": Case(
        lambda: flow.optimizer.Adam(RATE, grad_clipping=CLIP(0.05)),
        lambda config: config.train.num_gradient_accumulation_steps(2),
    ),
}

MORE_LAYOUTS = {
    **{name: how for name, how in LAYOUTS.items() if name != "dp4"},
    "pp x zero": Spread(4, stages=("0:0-1", "0:2-3"), shares_states=True),
}


def net(how: Spread, words: Any) -> Any:
    """A table of which some rows are used, a convolution, a product of two weights."""
    with how.stage(0):
        rows = flow.gather(how.variable("table", (9, 16)), words)
        h = flow.nn.relu(conv(how, flow.reshape(rows, (rows.shape[0], 1, 4, 4)), 6, 3, "conv"))
    with how.stage(1):
        return dense(how, flow.reshape(h, (h.shape[0], -1)), 5, "dense")


def run_all(how: Spread) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The losses of every case, and all variables at the end; all cases are jobs of one session."""
    begin(how.devices)
    jobs = {name: define(name, case, how) for name, case in CASES.items()}
    words = np.random.default_rng(0).integers(0, 7, (STEPS, 16)).astype(np.int32)
    losses = {}
    for name, job in jobs.items():
        rows = 16 if name == "accumulated" else 8
        losses[name] = np.stack([job(batch[:rows], batch[:rows] % 5) for batch in words])
    return losses, variables()


def define(name: str, case: Case, how: Spread) -> Any:
    config = how.config()
    case.configure(config)
    fed = flow.FixedTensorDef((8,), flow.int32)

    def body(words=fed, labels=fed) -> tp.Numpy:  # type: ignore[no-untyped-def]
        with flow.scope.namespace(name):
            logits = net(how, words)
        with how.stage(1):
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = loss * 64.0 if name == "rescaled" else loss  # too much for its first scale
        case.make().minimize(loss)
        return loss

    body.__name__ = name
    return flow.global_function("train", config)(body)


@lru_cache(maxsize=None)
def on_one_device() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    return run_all(ONE)


@pytest.mark.parametrize("layout", MORE_LAYOUTS)
def test_every_optimizer_updates_the_same_on_every_layout(layout: str) -> None:
    losses, values = run_all(MORE_LAYOUTS[layout])
    expected_losses, expected = on_one_device()
    assert values.keys() == expected.keys()
    for name, value in expected_losses.items():
        np.testing.assert_allclose(losses[name], value, 1e-6, 1e-2 if name == "halved" else 1e-5, err_msg=name)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, 1e-5, 5e-2 if name.startswith("halved") else 1e-5, err_msg=name)


def test_every_case_does_what_it_is_called() -> None:
    """Otherwise the law above would hold for nothing."""
    _, values = on_one_device()
    assert 1 < values["System-Train-DynamicLossScale-rescaled-LossScale"] < 2.0**127
    assert values["System-Train-TrainStep-rescaled"] == STEPS
    assert np.all(values["by_rows-table-m"][7:] == 0) and np.any(values["by_rows-table-m"][:7] != 0)
    distinct = {values[f"{name}-dense-weight"].tobytes() for name in CASES}
    assert len(distinct) == len(CASES)
