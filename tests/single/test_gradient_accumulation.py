"""Batches in parts whose gradients are added up."""

import numpy as np
import pytest
from optimizer_cases import constant

import oneflow as flow

opt = flow.optimizer


def train_model(micro: int, batch: int, steps: int = 3, make=lambda: opt.SGD(constant(0.1))):
    """The variables after training a small net, each batch cut into ``micro`` parts, and what the calls returned."""
    flow.clear_default_session()
    config = flow.function_config()
    if micro > 1:
        config.train.num_gradient_accumulation_steps(micro)

    @flow.global_function(type="train", function_config=config)
    def job(
        x=flow.FixedTensorDef((batch // micro, 4)), labels=flow.FixedTensorDef((batch // micro,), dtype=flow.int32)
    ):
        hidden = flow.layers.dense(
            x, 5, activation=flow.nn.relu, kernel_initializer=flow.random_normal_initializer(), name="a"
        )
        logits = flow.layers.dense(hidden, 3, kernel_initializer=flow.random_normal_initializer(), name="b")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        make().minimize(loss)
        return loss, labels

    rng = np.random.default_rng(0)
    returned = [
        job(rng.normal(size=(batch, 4)).astype(np.float32), rng.integers(0, 3, batch, np.int32)).get()
        for _ in range(steps)
    ]
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}, returned


@pytest.mark.parametrize(
    "make",
    [
        lambda: opt.SGD(constant(0.1)),
        lambda: opt.Adam(constant(0.1), grad_clipping=opt.grad_clipping.by_global_norm(0.5)),
        lambda: opt.SGD(constant(0.1), loss_scale_policy=opt.loss_scale.dynamic_loss_scale(2.0**10)),
        lambda: opt.SGD(constant(0.1), loss_scale_factor=16),
    ],
    ids=["momentum", "adam clipped", "dynamic scale", "static scale"],
)
def test_accumulated_gradients_equal_those_of_the_whole_batch(make):
    whole, results = train_model(1, 12, make=make)
    parts, packed = train_model(4, 12, make=make)
    assert list(whole) == list(parts) and parts["System-Train-TrainStep-job"] == 3
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], 1e-4, 1e-6, err_msg=name)
    for (loss, labels), (packed_loss, packed_labels) in zip(results, packed):
        np.testing.assert_allclose(packed_loss, loss, 1e-4, 1e-6)
        np.testing.assert_array_equal(packed_labels, labels)


def test_accumulation_reads_a_source_once_for_each_part(tmp_path):
    from oneflow.core.record import record_pb2 as ofrecord
    from oneflow.engine.data.formats.records import write_records

    feature = lambda i: ofrecord.Feature(float_list=ofrecord.FloatList(value=[i]))  # noqa: E731
    write_records(tmp_path / "part-0", [ofrecord.OFRecord(feature={"x": feature(i)}) for i in range(100)])
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(3)

    @flow.global_function(type="train", function_config=config)
    def job():
        x = flow.data.OFRecordRawDecoder(flow.data.ofrecord_reader(str(tmp_path), batch_size=2), "x", (), flow.float32)
        loss = flow.get_variable("w", (1,), initializer=flow.ones_initializer()) * x
        opt.SGD(constant(0.1), momentum=0).minimize(loss)
        return x

    assert job().get().tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [1 - 0.1 * 2.5], rtol=1e-6)
    assert job().get().tolist() == [6, 7, 8, 9, 10, 11]


def test_a_predict_job_is_not_cut_into_parts():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(4)

    @flow.global_function(type="predict", function_config=config)
    def job(x=flow.FixedTensorDef((2,))):
        return x * 2

    assert job(np.ones(2, np.float32)).get().tolist() == [2, 2]


def test_each_part_has_a_dropout_mask_of_its_own():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((64,))):
        out = flow.nn.dropout(x * flow.get_variable("w", (1,), initializer=flow.ones_initializer()), rate=0.5)
        opt.SGD(constant(0.0), momentum=0).minimize(out)
        return out

    masks = [half for _ in range(3) for half in np.split(job(np.ones(128, np.float32)).get() > 0, 2)]
    assert len({mask.tobytes() for mask in masks}) == len(masks)
