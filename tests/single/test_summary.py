"""``flow.summary``: what is written is read back from the event file."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import ArgumentError, JobError


@pytest.fixture
def events(tmp_path):
    """Opens a writer; the value is a function that closes it and reads its file."""
    flow.summary.create_summary_writer(tmp_path)

    def read() -> EventAccumulator:
        flow.summary.close_summary_writer()
        return EventAccumulator(str(tmp_path), size_guidance={"tensors": 0, "images": 0, "histograms": 0}).Reload()

    yield read
    flow.summary.close_summary_writer()


def points(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_scalars_outside_a_job(events):
    flow.summary.scalar(0.5, 3, "loss")
    flow.summary.scalar(np.array([0.25], np.float32), np.int64(4), "loss")
    assert points(events(), "loss") == [(3, 0.5), (4, 0.25)]


def test_without_a_step_the_calls_of_each_tag_are_counted(events):
    for value in (1.0, 2.0):
        flow.summary.scalar(value, tag="a")
        flow.summary.scalar(-value, tag="b")
    flow.summary.scalar(7.0)
    read = events()
    assert points(read, "a") == [(0, 1.0), (1, 2.0)]
    assert points(read, "b") == [(0, -1.0), (1, -2.0)]
    assert points(read, "scalar") == [(0, 7.0)]


def test_a_blob_is_written_after_each_step(events):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        total = flow.math.reduce_sum(x)
        flow.summary.scalar(total, tag="sum")
        flow.summary.histogram(x, tag="x")
        return total

    for n in (1, 2, 3):
        job(np.full(4, n, np.float32))
    read = events()
    assert points(read, "sum") == [(0, 4.0), (1, 8.0), (2, 12.0)]
    histograms = read.Histograms("x")
    assert [h.step for h in histograms] == [0, 1, 2]
    assert [h.histogram_value.sum for h in histograms] == [4.0, 8.0, 12.0]


def test_step_and_tag_may_be_blobs(events):
    @flow.global_function()
    def job(
        value=flow.FixedTensorDef((1,)),
        step=flow.FixedTensorDef((1,), dtype=flow.int64),
        tag=flow.FixedTensorDef((16,), dtype=flow.int8),
    ):
        flow.summary.scalar(value, step, tag)

    name = np.zeros(16, np.int8)
    name[:8] = np.frombuffer("accuracy".encode(), np.int8)
    job(np.array([0.75], np.float32), np.array([20], np.int64), name)
    assert points(events(), "accuracy") == [(20, 0.75)]


def test_images_in_both_layouts(events):
    red = np.zeros((2, 6, 5, 3), np.uint8)
    red[..., 0] = 255
    flow.summary.image(red, 1, "batch")
    flow.summary.image(red[0].transpose(2, 0, 1), 1, "one", data_format="NCHW")
    flow.summary.image(np.ones((6, 5), np.float32), 1, "grey")
    read = events()
    one = read.Images("one")[0]
    assert (one.step, one.width, one.height) == (1, 5, 6)
    assert read.Images("batch")[0].width >= 2 * 5  # side by side
    assert read.Images("grey")[0].height == 6


def test_text_and_hyperparameters(events):
    flow.summary.text("**fine**", 2, "note")
    flow.summary.text(np.frombuffer(b"bytes", np.int8), 0, "raw")
    flow.summary.hparams({"lr": 0.1, "optimizer": "sgd", "nesterov": True}, {"accuracy": 0.99})
    read = events()
    assert read.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"**fine**"]
    assert read.Tensors("raw/text_summary")[0].tensor_proto.string_val == [b"bytes"]
    assert "_hparams_/session_start_info" in read.PluginTagToContent("hparams")
    assert points(read, "accuracy")[0][1] == pytest.approx(0.99)


def test_a_message_is_written_as_it_is(events):
    message = Summary(value=[Summary.Value(tag="made", simple_value=1.5)])
    flow.summary.pb(message.SerializeToString(), 9)
    assert points(events(), "made") == [(9, 1.5)]


def test_flush_puts_values_on_disk_while_the_writer_is_open(events, tmp_path):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((1,))) -> None:
        flow.summary.scalar(x, tag="x")
        flow.summary.flush_summary_writer()

    job(np.ones(1, np.float32))
    assert points(EventAccumulator(str(tmp_path)).Reload(), "x") == [(0, 1.0)]
    flow.summary.scalar(2.0, 1, "x")
    flow.summary.flush_summary_writer()
    assert points(EventAccumulator(str(tmp_path)).Reload(), "x") == [(0, 1.0), (1, 2.0)]


def test_a_second_writer_takes_the_place_of_the_first(events, tmp_path):
    flow.summary.scalar(1.0, tag="x")
    flow.summary.create_summary_writer(tmp_path / "second")
    flow.summary.scalar(2.0, tag="x")
    flow.summary.close_summary_writer()
    assert points(EventAccumulator(str(tmp_path / "second")).Reload(), "x") == [(0, 2.0)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: flow.summary.scalar(1.0, 0, "x"),
        lambda: flow.summary.flush_summary_writer(),
        lambda: flow.summary.hparams({"lr": 0.1}),
        lambda: flow.summary.pb(b""),
    ],
)
def test_without_a_writer_the_error_says_how_to_get_one(call):
    with pytest.raises(JobError, match=r"test_summary\.py:\d+: .*no writer; call flow\.summary\.create_summary_writer"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flow.summary.scalar(np.zeros(3), 0, "x"), r"one number, got an array of shape \(3,\)"),
        (lambda: flow.summary.scalar(1.0, 0.5, "x"), "a step is one whole number, got 0.5"),
        (lambda: flow.summary.scalar(1.0, 0, 7.0), "a string or an int8 array"),
        (lambda: flow.summary.image(np.zeros(3), 0, "x"), "2, 3 or 4 dims, got 1"),
        (lambda: flow.summary.image(np.zeros((3, 3)), 0, "x", data_format="HWC"), "'NHWC' or 'NCHW', got 'HWC'"),
    ],
)
def test_wrong_values_are_refused(events, call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_inside_a_job_the_value_is_a_blob(events):
    @flow.global_function()
    def constant(x: tp.Numpy.Placeholder((1,))) -> None:
        flow.summary.scalar(1.0, 0, "x")

    with pytest.raises(ArgumentError, match="the body runs only once"):
        constant(np.ones(1, np.float32))


def test_a_scalar_blob_has_one_element(events):
    @flow.global_function()
    def many(x: tp.Numpy.Placeholder((3,))) -> None:
        flow.summary.scalar(x, tag="x")

    with pytest.raises(ArgumentError, match="a blob of one element"):
        many(np.ones(3, np.float32))


def test_hyperparameters_with_ranges_and_metrics(events, tmp_path):
    rate, units, accuracy = (
        flow.summary.Hparam("rate", flow.summary.RealRange(0.01, 0.1)),
        flow.summary.HParam("units"),
        flow.summary.Metric("accuracy"),
    )
    flow.summary.hparams({rate: 0.05, units: flow.summary.ValueSet([32, 64]).values[0], accuracy: 0.9, "seed": 3})
    assert points(events(), "accuracy") == [(0, pytest.approx(0.9))]
    flow.summary.create_summary_writer(str(tmp_path / "unused"))
    with pytest.raises(ArgumentError, match=r"hparams: rate is of RealRange\(min_value=0.01, max_value=0.1\), got 1.0"):
        flow.summary.hparams({rate: 1.0})
    with pytest.raises(ArgumentError, match="units is of IntegerRange.*got 2.5"):
        flow.summary.hparams({flow.summary.Hparam("units", flow.summary.IntegerRange(1, 4)): 2.5})
    with pytest.raises(ArgumentError, match="ValueSet: all values are of int"):
        flow.summary.ValueSet([1, "b"], int)


def test_the_graphs_of_jobs_are_written(tmp_path):
    @flow.global_function()
    def net(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return flow.math.relu(
            flow.matmul(x, flow.get_variable("w", (2, 2), initializer=flow.ones_initializer()), name="product"),
            name="act",
        )

    flow.summary.Graph(tmp_path).write_structure_graph()
    nodes = {node.name: node for node in EventAccumulator(str(tmp_path)).Reload().Graph().node}
    assert nodes["net/act"].op == "math.relu" and list(nodes["net/act"].input) == ["net/product"]
    assert nodes["net/w"].op == "Variable" and nodes["net/product"].attr["shape"].s == b"float32(4, 2)"
    with pytest.raises(ArgumentError, match=r"Graph\(logdir\) takes the folder"):
        flow.summary.Graph()


def test_embeddings_are_written_for_the_projector(tmp_path):
    flow.summary.Projector(tmp_path).embedding_projector(np.eye(3), label=[5, 6, 7], tag="digits", step=2)
    assert (tmp_path / "00002" / "digits" / "tensors.tsv").read_text().splitlines()[0].split("\t") == [
        "1.0",
        "0.0",
        "0.0",
    ]
    assert (tmp_path / "00002" / "digits" / "metadata.tsv").read_text().split() == ["5", "6", "7"]
    with pytest.raises(ArgumentError, match=r"shape \(rows, features\) and a label a row, got \(3,\) and no labels"):
        flow.summary.Projector(tmp_path).embedding_projector(np.ones(3))
