"""Models for any batch size: what follows the batch is found by recording the body with twice as much of it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from families import NOT_IN_ONNX, SAMPLES
from sample import Sample

import oneflow as flow
import oneflow.typing as tp
from oneflow import onnx as flow_onnx
from oneflow.engine.core import dtype as dtypes

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
    for sample in [s for s in SAMPLES if s.row not in NOT_IN_ONNX and s.inputs and not s.is_train]:
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
        "argwhere",
        "categorical_ordinal_encode",
        "constant",
        "ctc_loss",
        "dynamic_filled",
        "experimental.indexed_slices_reduce_sum",
        "experimental.unique_with_counts",
        "math.greater_equal",
        "math.reduced_shape_elem_cnt",
        "nn.batch_normalization",
        "nn.bias_add",
        "nn.conv2d_transpose",
        "nn.ctc_greedy_decoder",
        "slice_update",
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


def test_arguments_computed_from_the_batch_follow_it(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x + flow.ones((x.shape[0], 1), name="column")

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(7, 3)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x)[0], x + 1)


def test_a_number_computed_from_the_batch_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.math.multiply(x, x.shape[0], name="times")

    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx_batch.py:\d+: math.multiply \('times'\): dynamic_batch: .* an argument goes from 4.0 to 8.0",
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_a_batch_of_one_becomes_any_batch(tmp_path):
    """What a batch of one broadcasts is added elementwise for others."""

    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((1, 3))) -> tp.Numpy:
        return x + flow.reshape(x, [x.shape[0], 3])

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(5, 3)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x)[0], x + x)


def test_the_batch_may_be_another_dim_than_the_first(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((3, 4), batch_axis=1)) -> tp.Numpy:
        return flow.reshape(flow.transpose(x, [1, 0]), [x.shape[1], 3, 1])

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(3, 5)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x)[0], x.T[:, :, None])


def test_inputs_may_have_several_times_the_batch(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((6, 3))) -> tp.Numpy:
        return flow.reshape(flow.concat([x, y], 0), [x.shape[0] * 10 // 4, 3])

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x, y = drawn(6, 3), drawn(9, 3)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x, y=y)[0], np.concatenate([x, y]))


def test_a_size_that_does_not_grow_with_the_batch_in_proportion_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3)), y: tp.Numpy.Placeholder((2, 3), batch_axis=None)) -> tp.Numpy:
        return flow.concat([x, y], 0, name="both")

    with pytest.raises(
        NotImplementedError, match=r"concat \('both'\): .* the shape of its result goes from \(6, 3\) to \(10, 3\)"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_an_op_that_needs_the_batch_size_in_the_file_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.math.tril(x, name="lower")

    with pytest.raises(
        NotImplementedError, match=r"test_onnx_batch.py:\d+: math.tril \('lower'\): the size of dim 0 follows the batch"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_the_batch_can_be_sorted(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.sort(x, 0)

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(7, 3)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x)[0], np.sort(x, 0))


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

    with pytest.raises(NotImplementedError, match="shifty takes other steps with 2 times the batch"):
        flow_onnx.export(shifty, None, tmp_path / "net.onnx", dynamic_batch=True)


def test_several_dims_may_follow_the_batch(tmp_path):
    @flow.global_function(type="predict")
    def gram(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.expand_dims(flow.matmul(x, x, transpose_b=True), 0)

    flow_onnx.export(gram, None, tmp_path / "net.onnx", dynamic_batch=True)
    x = drawn(5, 3)
    np.testing.assert_allclose(run(tmp_path / "net.onnx", x=x)[0], (x @ x.T)[None], 1e-5, 1e-6)
