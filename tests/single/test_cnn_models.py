"""The networks of examples/cnns: their size, their variables, both layouts, and that they learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from example_programs import MODELS, Options, used

import oneflow as flow
from oneflow.engine.ir.notes import op_note

PICTURES = 10


def shape_of(size: int, data_format: str, batch: int = 1) -> tuple[int, ...]:
    return (batch, 3, size, size) if data_format == "NCHW" else (batch, size, size, 3)


def predict_job(name: str, size: int, options: Any) -> Any:
    @flow.global_function(type="predict")
    def job(images=flow.FixedTensorDef(shape_of(size, options.data_format))):
        return MODELS[name].logits(images, options)

    return job


def declared(name: str, size: int = 224, **options: Any) -> dict[str, Any]:
    """The variables of a network by name; the network is traced and nothing is allocated."""
    flow.clear_default_session()
    job = predict_job(name, size, Options(**options)).job
    job.trace()
    return job.graph.decls


def elements(decls: dict[str, Any]) -> int:
    return sum(math.prod(decl.spec.shape) for decl in decls.values() if decl.trainable)


# The published numbers; AlexNet's is worked out by hand: 11*11*3*64 + 5*5*64*192 + 9*(192*384 + 384*384 + 384*256)
# weights of convolutions, 6400*4096 + 4096*4096 + 4096*1000 of dense layers, and a bias for each of 1280 filters and
# 9192 units.
@pytest.mark.parametrize(
    ("name", "size", "count"),
    [
        ("resnet50", 224, 25_557_032),
        ("resnext50", 224, 25_028_904),
        ("vgg", 224, 138_365_992),
        ("alexnet", 224, 50_303_912),
        ("inceptionv3", 299, 23_834_568),
        ("mobilenetv2", 224, 3_504_872),
    ],
)
def test_a_network_has_as_many_parameters_as_published(name, size, count):
    assert elements(declared(name, size)) == count
    assert elements(declared(name, size, data_format="NHWC", fuse_bn_relu=True, fuse_bn_add_relu=True)) == count


def test_the_variables_of_resnet50_have_their_published_names():
    names = set(declared("resnet50"))
    assert len(names) == 53 + 53 * 4 + 2
    blocks = [(stage, block) for stage, count in ((2, 3), (3, 4), (4, 6), (5, 3)) for block in range(count)]
    layers = ["conv1"] + [
        f"res{s}_{b}_branch{k}" for s, b in blocks for k in ("1", "2a", "2b", "2c") if k != "1" or b == 0
    ]
    want = {f"Resnet-{layer}-weight" for layer in layers} | {"Resnet-fc1001-weight", "Resnet-fc1001-bias"}
    want |= {
        f"Resnet-{layer}_bn-{what}" for layer in layers for what in ("gamma", "beta", "moving_mean", "moving_variance")
    }
    assert names == want


def test_fused_layers_carry_names_of_their_own():
    names = set(declared("resnet50", fuse_bn_relu=True, fuse_bn_add_relu=True))
    assert len(names) == 267
    for name in (
        "conv1_bn_relu-gamma",
        "res2_0_branch1_bn-gamma",
        "res2_0_branch2a_bn_relu-beta",
        "res5_2_branch2c_bn_add_relu-moving_mean",
    ):
        assert f"Resnet-{name}" in names
    assert "conv3_weight" in declared("vgg") and "conv3_bias" in declared("vgg")


def test_resnet50_begins_with_blocks_that_do_nothing_and_regularizes_everything():
    decls = declared("resnet50")
    for name, decl in decls.items():
        is_last = "branch2c_bn-" in name
        if name.endswith("-gamma"):
            assert decl.initializer == (flow.zeros_initializer() if is_last else flow.ones_initializer()), name
        if name.endswith("-moving_variance"):
            assert decl.initializer == (flow.zeros_initializer() if is_last else flow.ones_initializer()), name
        if name.endswith("-weight"):
            data_format = "" if "fc1001" in name else "NCHW"
            assert decl.initializer == flow.variance_scaling_initializer(2.0, "fan_in", "random_normal", data_format), (
                name
            )
        assert decl.regularizer == (flow.regularizers.l2(1 / 32768) if decl.trainable else None), name


@pytest.mark.parametrize(
    ("name", "rate"), [("alexnet", 5e-5), ("mobilenetv2", 4e-5), ("vgg", None), ("inceptionv3", None)]
)
def test_a_network_has_the_regularizer_of_its_paper(name, rate):
    trained = [decl for decl in declared(name, 96).values() if decl.trainable]
    assert {decl.regularizer for decl in trained} == {flow.regularizers.l2(rate) if rate else None}


def test_resnet50_is_halved_by_its_3x3_convolutions():
    job = predict_job("resnet50", 64, Options()).job
    job.trace()
    strides = {op_note(node).name: node.kwargs["strides"] for node in job.graph.body.nodes if "strides" in node.kwargs}
    halved = {name.removeprefix("Resnet-") for name, steps in strides.items() if steps == (2, 2)}
    assert halved == {"conv1", "pool1"} | {
        f"res{stage}_0_{branch}" for stage in (3, 4, 5) for branch in ("branch1", "branch2b")
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "alexnet"])
def test_both_layouts_and_fused_layers_compute_the_same(name):
    size = MODELS[name].smallest  # one pixel is left where AlexNet becomes flat, so its dense weights are the same
    images = np.random.default_rng(0).normal(size=shape_of(size, "NCHW")).astype(np.float32)
    plain = predict_job(name, size, Options(num_classes=7))
    rng = np.random.default_rng(1)
    first = {key: used(rng, key, value.numpy()) for key, value in flow.get_all_variables().items()}
    flow.load_variables(first)
    want = plain(images).get()

    flow.clear_default_session()
    turned = predict_job(
        name, size, Options(num_classes=7, data_format="NHWC", fuse_bn_relu=True, fuse_bn_add_relu=True)
    )
    names = {unfused(key): key for key in flow.get_all_variables()}
    assert names.keys() == first.keys()
    values = {
        names[key]: value.transpose(0, 2, 3, 1).copy() if value.ndim == 4 else value for key, value in first.items()
    }
    flow.load_variables(values)
    np.testing.assert_allclose(turned(images.transpose(0, 2, 3, 1).copy()).get(), want, rtol=1e-3, atol=1e-3)


def unfused(name: str) -> str:
    return name.replace("_bn_add_relu-", "_bn-").replace("_bn_relu-", "_bn-")


# Width and height, learning rate, momentum, and as few steps as do: each network is as large as published.
LEARNING = {
    "resnet50": (32, 0.01, 0.9, 2),
    "resnext50": (32, 0.01, 0.9, 2),
    "vgg": (32, 0.005, 0.9, 8),
    "alexnet": (67, 0.01, 0.9, 9),
    "inceptionv3": (75, 0.01, 0.9, 8),
    "mobilenetv2": (64, 0.02, 0.5, 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_a_network_learns_ten_pictures(name):
    (size, rate, momentum, steps), batch = LEARNING[name], PICTURES

    @flow.global_function(type="train")
    def job(images=flow.FixedTensorDef((batch, 3, size, size)), labels=flow.FixedTensorDef((batch,), dtype=flow.int32)):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(
            labels, MODELS[name].logits(images, Options(num_classes=2))
        )
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [rate]), momentum=momentum).minimize(loss)
        return loss

    rng = np.random.default_rng(0)
    labels = (np.arange(batch) % 2).astype(np.int32)
    images = (rng.normal(size=(batch, 3, size, size)) + labels[:, None, None, None]).astype(np.float32)
    losses = [float(job(images, labels).get().mean()) for _ in range(steps + 1)]
    assert np.isfinite(losses).all()
    assert min(losses[-2:]) < 0.6 * losses[0], losses  # dropout makes single losses jump
