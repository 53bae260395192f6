"""What samples cannot show of flow.nn and flow.layers: padding, variables, moving statistics, masks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

sys.path.insert(0, str(Path(__file__).parent / "samples"))

from runner import outputs, trace
from sample import Sample, ints, rand

from oneflow import layers, losses, nn
from oneflow.compat import compat
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.placement import parse_placement
from oneflow.engine.core.sbp import split
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.interpret import interpret
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.engine.job.settings import Settings
from oneflow.engine.ops import dropout as dropout_rows
from oneflow.engine.ops import loss as loss_rows
from oneflow.engine.ops import padding
from oneflow.engine.ops.kernels import counter_random


def traced(call: Callable[..., Any], *inputs: np.ndarray, is_train: bool = False) -> tuple[Trace, list[Blob]]:
    return trace(Sample("", call, inputs, None, is_train=is_train))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "out", "pads"),
    [
        (224, 7, 2, 112, (3, 2)),
        (112, 3, 2, 56, (1, 0)),
        (56, 3, 2, 28, (1, 0)),
        (28, 5, 1, 28, (2, 2)),
        (28, 2, 2, 14, (0, 0)),
        (7, 2, 2, 4, (1, 0)),
        (56, 1, 2, 28, (0, 0)),
        (4, 3, 2, 2, (1, 0)),
    ],
)
def test_same_padding(size: int, kernel: int, stride: int, out: int, pads: tuple[int, int]) -> None:
    for word in ("SAME", "same_lower"):
        assert padding.explicit(word, [size], [kernel], [stride], False) == (pads,)
    assert padding.explicit("SAME_UPPER", [size], [kernel], [stride], False) == (pads[::-1],)
    assert padding.explicit("SAME", [size], [kernel], [stride], False, same_is_upper=True) == (pads[::-1],)
    assert padding.count(size, kernel, stride, *pads) == out


def test_pads_that_torch_takes_itself() -> None:
    assert padding.symmetric(((3, 2),), [224], [7], [2]) == (3,)
    assert padding.symmetric(((1, 0),), [7], [2], [2]) == (1,)
    assert padding.symmetric(((0, 1),), [4], [3], [2]) is None
    assert padding.symmetric(((1, 0),), [4], [2], [1]) is None


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("kernel", range(1, 4))
@pytest.mark.parametrize("stride", range(1, 4))
def test_ceil_mode_is_that_of_torch(size: int, kernel: int, stride: int) -> None:
    if size < kernel:
        return
    ((before, after),) = padding.ceiled(((0, 0),), [size], [kernel], [stride])
    expected = torch.nn.functional.max_pool1d(torch.zeros(1, 1, size), kernel, stride, ceil_mode=True).shape[-1]
    assert padding.count(size, kernel, stride, before, after) == expected


def test_lists_of_paddings() -> None:
    assert padding.explicit([0, (0, 0), 1, (2, 3)], [5, 5], [3, 3], [1, 1], False) == ((1, 1), (2, 3))
    assert padding.explicit([0, 1, (2, 3), 0], [5, 5], [3, 3], [1, 1], True) == ((1, 1), (2, 3))


def test_convolutions_pad_inside_torch_where_they_can() -> None:
    def graph(size: int, stride: int) -> str:
        call = lambda x, w: nn.conv2d(x, w, stride, "SAME")  # noqa: E731
        state, blobs = traced(call, rand(1, 1, size, size), rand(1, 1, 3, 3))
        node = blobs[0].node
        return make_fx(lambda x, w: node.target(x, w, **node.kwargs))(
            torch.zeros(1, 1, size, size), torch.zeros(1, 1, 3, 3)
        ).code

    assert "pad" not in graph(8, 2) and "pad" not in graph(8, 1)


def test_pool_default_is_a_switch() -> None:
    pool = lambda x: nn.max_pool2d(x, 2, 2, "SAME")  # noqa: E731
    x = rand(2, 32, 28, 28)
    assert traced(pool, x)[1][0].shape == (2, 32, 14, 14)
    compat.pool_default = "NHWC"
    try:
        assert traced(pool, x)[1][0].shape == (2, 16, 14, 28)
    finally:
        compat.pool_default = "NCHW"


def test_layers_name_their_variables() -> None:
    def net(x: Blob) -> Blob:
        x = layers.conv2d(x, 4, 3, name="conv1", activation=nn.relu)
        x = layers.conv2d(x, 4, [1, 2], data_format="NHWC", weight_name="w", bias_name="b")
        x = layers.batch_normalization(x, axis=1)
        x = layers.layer_norm(x, begin_params_axis=2)
        x = layers.dense(x, 7)
        return layers.dense(x, 8, use_bias=False)

    state, _ = traced(net, rand(2, 3, 6, 7), is_train=True)
    shapes = {name: decl.spec.shape for name, decl in state.graph.decls.items()}
    assert shapes == {
        "conv1-weight": (4, 3, 3, 3),
        "conv1-bias": (4,),
        "w": (4, 1, 2, 5),
        "b": (4,),
        "BatchNorm-gamma": (4,),
        "BatchNorm-beta": (4,),
        "BatchNorm-moving_mean": (4,),
        "BatchNorm-moving_variance": (4,),
        "LayerNorm-gamma": (3, 4),
        "LayerNorm-beta": (3, 4),
        "Dense-weight": (7, 4),
        "Dense-bias": (7,),
        "Dense_1-weight": (8, 7),
    }
    decls = state.graph.decls
    assert [n for n, d in decls.items() if d.model_name == "bias"] == ["conv1-bias", "b", "Dense-bias"]
    assert [n for n, d in decls.items() if not d.trainable] == ["BatchNorm-moving_mean", "BatchNorm-moving_variance"]
    assert [n for n, d in decls.items() if d.channels_last] == ["conv1-weight"]
    assert [op_note(n).name for n in state.graph.body.nodes if n.op == "call_function"][:2] == [
        "conv1",
        "conv1_activation",
    ]


def test_dense_lays_out_both_variables() -> None:
    state, _ = traced(lambda x: layers.dense(x, 4, model_distribute=split(0)), rand(2, 3))
    assert {d.distribute for d in state.graph.decls.values()} == {(split(0),)}


def test_frozen_layers_are_not_trained() -> None:
    state, _ = traced(
        lambda x: layers.batch_normalization(layers.dense(x, 4, trainable=False), trainable=False),
        rand(2, 3),
        is_train=True,
    )
    assert not any(d.trainable for d in state.graph.decls.values())


def test_batch_norm_moves_its_statistics() -> None:
    x = np.arange(4, dtype=np.float32).reshape(4, 1)
    state, blobs = traced(lambda x: layers.batch_normalization(x, momentum=0.9), x, is_train=True)
    values = {
        node: torch.full((1,), float("moving_v" in name or "gamma" in name))
        for name, node in state.graph.variables.items()
    }
    env = interpret(state.graph, {**values, state.graph.inputs[0]: torch.from_numpy(x)}, "cpu")
    moving = {name: round(float(values[node]), 6) for name, node in state.graph.variables.items() if "moving" in name}
    assert moving == {"BatchNorm-moving_mean": 0.15, "BatchNorm-moving_variance": 1.066667}
    np.testing.assert_allclose(env[blobs[0].node][:, 0].numpy(), (x[:, 0] - 1.5) / np.sqrt(1.251), rtol=1e-5)


def test_batch_norm_keeps_float32_variables_beside_half_inputs() -> None:
    state, blobs = traced(lambda x: layers.batch_normalization(x), rand(4, 3).astype(np.float16), is_train=True)
    assert {d.spec.dtype for d in state.graph.decls.values()} == {dtypes.float32}
    assert blobs[0].dtype == torch.float16


@pytest.mark.parametrize(("rate", "is_train"), [(0.5, False), (0, True)])
def test_dropout_that_drops_nothing_is_no_op(rate: float, is_train: bool) -> None:
    def net(x: Blob) -> Blob:
        assert nn.dropout(x, rate=rate) is x
        return x

    assert traced(net, rand(2, 3), is_train=is_train)[0].graph.step is None


def test_dropout_seeds_follow_names_and_the_jobs_seed() -> None:
    def seeds(job_seed: int) -> list[int]:
        state = Trace("job", Settings(is_train=True, random_seed=job_seed), {}, parse_placement("cpu", "0:0"))
        with tracing(state):
            x = Blob(state.add_input("x", TensorSpec((2, 3), dtypes.float32)))
            drops = [nn.dropout(x, 0.5), nn.dropout(x, 0.5), nn.dropout(x, 0.5, name="d")]
        return [d.node.kwargs["seed"] for d in drops]

    assert seeds(0) == seeds(0) and not set(seeds(0)) & set(seeds(1)) and len(set(seeds(0))) == 3
    assert counter_random.stable_seed(0, "Dropout_0") == seeds(0)[0]
    assert all(0 <= s < 2**63 for s in seeds(5))


def test_masks_change_with_step_and_seed_and_are_the_same_otherwise() -> None:
    draw = lambda seed, step: counter_random.random_bits((1000,), seed, torch.tensor([step]))  # noqa: E731
    assert draw(1, 2).equal(draw(1, 2))
    assert draw(1, 2).equal(counter_random.random_bits((10, 50, 2), 1, torch.tensor([2])).flatten())
    assert draw(1, 2)[:10].equal(counter_random.random_bits((10,), 1, torch.tensor([2])))
    assert (draw(1, 2) == draw(2, 1)).sum() == 0 and (draw(1, 2) == draw(1, 3)).sum() == 0


def test_random_bits_are_fair_and_independent() -> None:
    def signs(seed: int, step: int) -> np.ndarray:
        words = counter_random.random_bits((1 << 16,), seed, torch.tensor([step])).numpy().view(np.uint32)
        return 2.0 * (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.float32) - 1

    first = signs(1, 0)
    others = [first[np.r_[k : 1 << 16, :k]] for k in (1, 2, 16, 1024)] + [signs(1, 1), signs(2, 0)]
    # correlations in standard deviations; of some 7000 normal numbers hardly one is beyond 5
    own = first.T @ first / 256 - 256 * np.eye(32)
    assert abs(first.sum(0) / 256).max() < 4.5 and abs(own).max() < 5
    assert max(abs(first.T @ other / 256).max() for other in others) < 5


def test_uniform_and_bernoulli() -> None:
    step = torch.tensor([3])
    drawn = counter_random.uniform((100, 1000), 1, step)
    assert drawn.min() >= 0 and drawn.max() < 1 and abs(drawn.mean() - 0.5) < 0.005 and abs(drawn.var() * 12 - 1) < 0.02
    for p in (0.0, 0.1, 0.9, 1.0):
        assert abs(counter_random.bernoulli((100, 1000), p, 1, step).float().mean() - p) < 0.005
    assert (
        counter_random.bernoulli((1000,), 1.0, 1, step).all()
        and not counter_random.bernoulli((1000,), 0.0, 1, step).any()
    )
    assert counter_random.random_bits((0, 3), 1, step).shape == (0, 3)


def test_dropout_traces_to_one_opaque_op_and_a_product() -> None:
    def step(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(dropout_rows.dropout(x, rate=0.5, seed=1, step=step).sum(), x)[0]

    arguments = (torch.ones(4, 5), torch.tensor([6]))
    graph = make_fx(step, tracing_mode="fake")(*arguments)
    assert graph.code.count("oneflow.random_bits") == 1
    assert graph(*arguments).equal(dropout_rows.dropout(arguments[0], rate=0.5, seed=1, step=arguments[1]))


@pytest.mark.parametrize("label", [-1, 3, -(2**31), 2**40])
def test_a_wrong_label_fails(label: int) -> None:
    labels = torch.tensor([0, label])
    with pytest.raises(IndexError, match="out of bounds"):
        loss_rows.sparse_softmax_cross_entropy_with_logits(labels, torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match="out of bounds"):
        loss_rows.sparse_cross_entropy(labels, torch.ones(2, 3))


def test_capped_loss_traces_with_its_gradient() -> None:
    def gradient(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = logits.detach().requires_grad_()
        loss = loss_rows.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return torch.autograd.grad(loss.sum(), logits)[0]

    arguments = (torch.tensor([[300.0, 0.0]]), torch.tensor([1], dtype=torch.int32))
    assert make_fx(gradient, tracing_mode="fake")(*arguments)(*arguments).tolist() == [[1.0, -1.0]]


def test_add_loss_marks_the_blob() -> None:
    def net(y: Blob, x: Blob) -> Blob:
        loss = nn.sparse_softmax_cross_entropy_with_logits(y, layers.dense(x, 4))
        assert losses.add_loss(loss) is None
        return loss

    state, blobs = traced(net, ints(3, high=4), rand(3, 5), is_train=True)
    assert state.graph.losses == [blobs[0].node] and blobs[0].shape == (3,)


def test_half_inputs_keep_their_dtype() -> None:
    def net(x: Blob) -> Blob:
        return nn.bias_add(nn.softmax(nn.GroupNorm(layers.layer_norm(x), 3)), nn.moments(x, [0, 2, 3])[0])

    x = rand(2, 3, 4, 4).astype(np.float16)
    assert outputs(Sample("", net, (x,), None), [torch.from_numpy(x)])[0].dtype == torch.float16  # type: ignore[arg-type]
