"""Predict jobs on several ranks: filters are normalised and packed once per change of variables, results are one
device's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distributed import compiled
from nets import begin

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.program import Program

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
NORMAL = flow.random_normal_initializer(stddev=0.5)
POSITIVE = flow.random_uniform_initializer(0.3, 2.0)
PACKED = (
    mkldnn._convolution_pointwise.default,
    mkldnn._convolution_pointwise.binary,
    mkldnn._convolution_pointwise_.binary,
)
LIES = ("data parallel", "split filters", "split channels")
"""Filters that are split are gathered where the pictures are split; where the channels are to be split too, each rank
uses its own."""


def conv(x: Any, name: str, count: int, lies: str) -> Any:
    split = None if lies == "data parallel" else ["S(0)"]
    weight = flow.get_variable(name, (count, x.shape[1], 3, 3), initializer=NORMAL, parallel_distribution=split)
    y = flow.nn.conv2d(x, weight, 1, "SAME")
    return y.with_distribute(flow.distribute.split(1)) if lies == "split channels" else y


def norm(x: Any, name: str, training: bool) -> Any:
    numbers = dict.fromkeys(("beta_initializer", "moving_mean_initializer"), NORMAL)
    scales = dict.fromkeys(("gamma_initializer", "moving_variance_initializer"), POSITIVE)
    return flow.layers.batch_normalization(x, 1, training=training, name=name, momentum=0.9, **numbers, **scales)


def net(x: Any, lies: str, training: bool = False, count: int = 6) -> Any:
    """Two convolutions with their normalisations, the second one around a shortcut, a pool and a dense layer."""
    h = flow.nn.relu(norm(conv(x, "a", count, lies), "norm_a", training))
    h = flow.nn.relu(norm(conv(h, "b", count, lies), "norm_b", training) + h)
    h = flow.nn.avg_pool2d(h, 2, 2, "VALID")
    return flow.layers.dense(flow.reshape(h, (h.shape[0], -1)), 3, kernel_initializer=NORMAL, name="fc")


def by_hand(x: np.ndarray) -> np.ndarray:
    """What the net gives, by torch's own ops, from the variables as the session has them."""
    v = {name: torch.from_numpy(variable.numpy()) for name, variable in flow.get_all_variables().items()}

    def normed(y: torch.Tensor, name: str) -> torch.Tensor:
        statistics = (v[f"{name}-moving_mean"], v[f"{name}-moving_variance"], v[f"{name}-gamma"], v[f"{name}-beta"])
        return torch.nn.functional.batch_norm(y, *statistics, eps=0.001)

    h = torch.relu(normed(torch.conv2d(torch.from_numpy(x), v["a"], padding=1), "norm_a"))
    h = torch.relu(normed(torch.conv2d(h, v["b"], padding=1), "norm_b") + h)
    h = torch.nn.functional.avg_pool2d(h, 2)
    return (h.flatten(1) @ v["fc-weight"].T + v["fc-bias"]).numpy()


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).normal(size=(batch, 4, 6, 6)).astype(np.float32)


def assert_right(predict: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    found = predict(x)
    np.testing.assert_allclose(found, by_hand(x), rtol=1e-4, atol=1e-5 * np.abs(found).max())
    return found


def programs(batch: int, lies: str) -> list[Program]:
    def job(x=flow.FixedTensorDef((batch, 4, 6, 6))):
        return net(x, lies)

    assigned = compiled(job, 2, train=False)
    return [compile_rank(assigned, rank) for rank in assigned.ranks]


def targets(program: Program, section: str) -> Counter[Any]:
    return Counter(node.target for node in program.sections[section].graph.nodes if node.op == "call_function")


@pytest.mark.parametrize("batch", [4, 5])
@pytest.mark.parametrize("lies", LIES)
def test_every_rank_prepares_once_what_one_device_prepares(
    lies: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEFLOW_FUSION", "off")  # oneDNN's filters; the package's own extension would go before it
    for program in programs(batch, lies):
        assert not program.writes and set(program.sections) == {"prepare", "step"}
        step, prepare = targets(program, "step"), targets(program, "prepare")
        assert (step[aten.native_batch_norm.default] == 0) is (lies == "data parallel")
        read = {key[1] for key in program.sections["step"].inputs if key[0] == "variable"}
        if torch.backends.mkldnn.is_available() and lies != "split filters":
            assert prepare[mkldnn._reorder_convolution_weight.default] == 2 and step[aten.convolution.default] == 0
            assert sum(step[op] for op in PACKED) == 2
            assert not read & {"a", "b"}


def both(lies: str, batch: int, count: int = 6) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A train job and a predict job of the net."""

    @flow.global_function("train")
    def train(x: tp.Numpy.Placeholder((4, 4, 6, 6))) -> tp.Numpy:
        loss = flow.math.square(net(x, lies, True, count))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1e-4]), momentum=0.0).minimize(loss)
        return loss

    @flow.global_function("predict")
    def predict(x=flow.FixedTensorDef((batch, 4, 6, 6))) -> tp.Numpy:
        return net(x, lies, False, count)

    return train, predict


@pytest.mark.parametrize("lies", LIES)
def test_a_change_of_variables_is_seen_by_the_next_call(lies: str, tmp_path: Path) -> None:
    begin(2)
    train, predict = both(lies, 5)
    x = images(5)
    first = assert_right(predict, x)
    np.testing.assert_array_equal(predict(x), first)
    train(images(4))
    trained = assert_right(predict, x)
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    train(images(4))
    again = assert_right(predict, x)
    flow.train.CheckPoint().init()
    drawn = assert_right(predict, x)
    flow.load_variables({"norm_a-beta": np.full(6, 3.0, np.float32)})
    set_ = assert_right(predict, x)
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    np.testing.assert_array_equal(predict(x), trained)
    results = [first, trained, again, drawn, set_]
    assert not any(np.allclose(one, other, rtol=1e-5) for i, one in enumerate(results) for other in results[:i])


@pytest.mark.parametrize("lies", LIES)
def test_a_batch_or_filters_for_fewer_ranks_than_there_are(lies: str) -> None:
    """One picture, and one filter: where they are split, the second rank has none."""
    begin(2)
    train, predict = both(lies, 1, count=1)
    assert_right(predict, images(1))
    train(images(4))
    assert_right(predict, images(1))


def test_what_a_predict_job_assigns_to_is_read_by_each_step() -> None:
    begin(2)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        flow.assign(w, w * 2.0)
        return flow.math.exp(w) * x

    @flow.global_function("predict")
    def reads(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return flow.math.exp(flow.get_variable("w", (2,), initializer=flow.ones_initializer())) * x

    x = np.ones((4, 2), np.float32)
    for step in range(3):
        np.testing.assert_allclose(job(x), np.full((4, 2), np.exp(2.0**step)), rtol=1e-6)
        np.testing.assert_allclose(reads(x), np.full((4, 2), np.exp(2.0 ** (step + 1))), rtol=1e-6)


def pipelined(x: Any) -> Any:
    with flow.scope.placement("cpu", "0:0"):
        x = x * 2.0
    with flow.scope.placement("cpu", "0:1"):
        return x + 1.0


MET: dict[str, Callable[[Any], Any]] = {
    "gathered": lambda x: (x * 2.0).with_distribute(flow.distribute.broadcast()) + 1.0,
    "gathered result": lambda x: (x * 2.0 + 1.0).with_distribute(flow.distribute.broadcast()),
    "handed over": pipelined,
}


@pytest.mark.parametrize("how", MET)
def test_a_rank_takes_part_in_what_others_need(how: str) -> None:
    """The first rank alone sends a whole result; the others gather with it, and send what it needs, though they read
    nothing of it."""
    begin(2)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return MET[how](x)

    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(job(x), x * 2 + 1)
