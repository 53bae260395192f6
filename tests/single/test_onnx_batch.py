"""Models for any batch size: what follows the batch is found by recording the body with twice as much of it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from families import SAMPLES
from sample import Sample

import oneflow as flow
import oneflow.typing as tp
from oneflow import onnx as flow_onnx
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.onnx.rows.table import EMITTERS

RANDOM = flow.random_normal_initializer(0.0, 0.3)


def run(path, **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def job_of(sample: Sample, inputs: list[np.ndarray], name: str):
    """The sample's call as a job of this name, on inputs of these shapes."""
    defs = [flow.FixedTensorDef(a.shape, dtypes.from_numpy(a.dtype)) for a in inputs]

    def body(xs=defs):
        out = sample.call(*xs)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    body.__name__ = name
    return flow.global_function(type="predict")(body)


@pytest.mark.slow
def test_every_row_takes_three_times_the_batch_rightly_or_refuses_any_other(tmp_path):
    taken, refused = set(), set()
    for sample in [s for s in SAMPLES if s.row in EMITTERS and s.inputs and not s.is_train]:
        flow.clear_default_session()
        try:
            flow_onnx.export(
                job_of(sample, list(sample.inputs), "once"), None, tmp_path / "net.onnx", dynamic_batch=True
            )
        except NotImplementedError as error:
            assert "batch" in str(error)
            refused.add(sample.row)
            continue
        inputs = [np.concatenate([a, a[::-1], a]) for a in sample.inputs]
        expected = job_of(sample, inputs, "thrice")(inputs).get()
        found = run(tmp_path / "net.onnx", **{f"xs[{i}]": a for i, a in enumerate(inputs)})
        for got, want in zip(found, expected, strict=True):
            assert got.shape == want.shape, sample.row
            np.testing.assert_allclose(got, want.numpy(), 1e-4, 1e-5, err_msg=sample.row)
        taken.add(sample.row)
    # Their samples name the batch, or their parameters are inputs that only seem to have one.
    assert refused - taken <= {
        "broadcast_like",
        "constant",
        "math.greater_equal",
        "math.reduced_shape_elem_cnt",
        "nn.batch_normalization",
        "nn.bias_add",
        "nn.conv2d_transpose",
        "slice_update",
        "unsorted_batch_segment_sum",
    }


def attention(x, heads: int):
    batch, length, width = x.shape
    parts = [flow.layers.dense(x, width, kernel_initializer=RANDOM, name=name) for name in ("q", "k", "v")]
    q, k, v = (flow.transpose(flow.reshape(p, [batch, length, heads, width // heads]), [0, 2, 1, 3]) for p in parts)
    scores = flow.matmul(q, k, transpose_b=True, alpha=(width // heads) ** -0.5)
    mixed = flow.transpose(flow.matmul(flow.nn.softmax(flow.math.tril(scores, fill_value=-1e9)), v), [0, 2, 1, 3])
    out = flow.layers.layer_norm(x + flow.reshape(mixed, [batch, length, width]), begin_norm_axis=2)
    return flow.math.gelu(flow.reshape(out, [-1, width]))


def test_shapes_that_a_body_computes_from_the_batch_follow_it(tmp_path):
    """The reshapes hold the batch size as a number, and the result has batch * length rows."""

    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((2, 5, 8))) -> tp.Numpy:
        return attention(x, 2)

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(4, 5, 8)
    np.testing.assert_allclose(run(tmp_path / "net.onnx", x=x)[0], np.concatenate([net(x[:2]), net(x[2:])]), 1e-4, 1e-5)
    model = onnx.load(tmp_path / "net.onnx")
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", 5, 8]
    assert [d.dim_param or d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == ["5*batch", 8]


def test_a_batch_that_an_argument_holds_as_a_number_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x + flow.zeros((x.shape[0], 1), name="column")

    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx_batch.py:\d+: dynamic_batch: an argument of constant \('column'\) is computed from the batch",
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_a_size_that_does_not_grow_with_the_batch_in_proportion_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((2, 3), batch_axis=None)) -> tp.Numpy:
        return flow.concat([x, y], 0, name="both")

    with pytest.raises(NotImplementedError, match=r"the shape of 'both' goes from \(6, 3\) to \(10, 3\)"):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_an_op_that_needs_the_batch_size_in_the_file_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.sort(x, 0)

    with pytest.raises(
        NotImplementedError, match=r"test_onnx_batch.py:\d+: sort \('Sort_0'\): the size of dim 0 follows the batch"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_a_body_that_cannot_take_another_batch_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def fixed(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x + flow.get_variable("w", x.shape, initializer=flow.ones_initializer())

    with pytest.raises(
        NotImplementedError,
        match="dynamic_batch: job 'fixed' cannot be traced with 2 times the batch: .*batch_axis=None",
    ):
        flow_onnx.export(fixed, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_a_body_that_records_other_ops_for_another_batch_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def shifty(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x + 1 if x.shape[0] == 4 else x * 1

    with pytest.raises(NotImplementedError, match="the body of job 'shifty' records other ops with 2 times the batch"):
        flow_onnx.export(shifty, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_two_dims_that_follow_the_batch_cannot_be_reshaped(tmp_path):
    @flow.global_function(type="predict")
    def gram(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.expand_dims(flow.matmul(x, x, transpose_b=True), 0)

    with pytest.raises(NotImplementedError, match="more than one dim of its result follows the batch"):
        flow_onnx.export(gram, None, tmp_path / "net.onnx", dynamic_batch=True)
