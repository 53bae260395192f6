"""ONNX models against their jobs, and weights out of ONNX models."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow import onnx as flow_onnx
from oneflow.engine.core.errors import CheckpointError

RANDOM = flow.random_normal_initializer(0.0, 0.3)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def dense_job(batch: int = 4):
    @flow.global_function(type="predict")
    def dense_net(x: tp.Numpy.Placeholder((batch, 3))) -> tp.Numpy:
        return flow.layers.dense(x, 2, kernel_initializer=RANDOM, bias_initializer=RANDOM, name="fc")

    return dense_net


def test_check_equality_tells_the_largest_difference(tmp_path):
    job = dense_job()
    flow_onnx.export(job, None, tmp_path / "net.onnx")
    assert [d.output for d in flow_onnx.check_equality(job, tmp_path / "net.onnx").differences] == ["fc/out_0"]
    flow.load_variables({"fc-bias": flow.get_all_variables()["fc-bias"].numpy() + np.array([0, 0.5], np.float32)})
    with pytest.raises(
        RuntimeError, match=r"differ in 1 of 1 outputs: the largest difference is 0.5, in 'fc/out_0' at \(\d, 1\)"
    ):
        flow_onnx.check_equality(job, tmp_path / "net.onnx")
    assert flow_onnx.check_equality(job, tmp_path / "net.onnx", atol=0.6).largest == pytest.approx(0.5, abs=1e-4)


def test_check_equality_takes_inputs_by_name_or_in_order(tmp_path):
    job = dense_job()
    flow_onnx.export(job, None, tmp_path / "net.onnx")
    x = drawn(4, 3)
    by_name = flow_onnx.check_equality(job, tmp_path / "net.onnx", {"x": x})
    assert by_name == flow_onnx.check_equality(job, tmp_path / "net.onnx", [x])
    with pytest.raises(ValueError, match=r"job 'dense_net' has the inputs \['x'\], got \['z'\]"):
        flow_onnx.check_equality(job, tmp_path / "net.onnx", {"z": x})
    with pytest.raises(ValueError, match=r"inputs is a list of 1 arrays, for \['x'\], or a dictionary by name"):
        flow_onnx.check_equality(job, tmp_path / "net.onnx", [x, x])


@pytest.mark.parametrize("returns", [tp.Numpy, tp.ListNumpy, tp.ListListNumpy, tp.Callback[tp.Numpy]])
def test_check_equality_takes_jobs_of_every_return_annotation(returns, tmp_path):
    def body(x=flow.MirroredTensorDef((4, 3))):
        return x * 2

    body.__annotations__["return"] = returns
    job = flow.global_function(type="predict")(body)
    flow_onnx.export(job, None, tmp_path / "net.onnx")
    assert flow_onnx.check_equality(job, tmp_path / "net.onnx").largest == 0


def test_check_equality_sees_infinities_and_what_is_no_number(tmp_path):
    @flow.global_function(type="predict")
    def logarithm(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return flow.math.log(x)

    flow_onnx.export(logarithm, None, tmp_path / "net.onnx")
    assert flow_onnx.check_equality(logarithm, tmp_path / "net.onnx", [np.array([0, -1, 1], np.float32)]).largest == 0


def test_check_equality_refuses_the_model_of_another_job(tmp_path):
    flow_onnx.export(dense_job(), None, tmp_path / "net.onnx")
    flow.clear_default_session()

    @flow.global_function(type="predict")
    def other(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return x

    with pytest.raises(
        RuntimeError, match=r"output 'fc/out_0' of the model is float32\(4, 2\), the job's is float32\(4, 3\)"
    ):
        flow_onnx.check_equality(other, tmp_path / "net.onnx")

    @flow.global_function(type="predict")
    def two(x=flow.FixedTensorDef((4, 3))):
        return x, x

    with pytest.raises(ValueError, match="has 1 outputs, job 'two' returns 2 blobs"):
        flow_onnx.check_equality(two, tmp_path / "net.onnx")
    (tmp_path / "no.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeError, match="ONNX Runtime cannot run '.*no.onnx'"):
        flow_onnx.check_equality(two, tmp_path / "no.onnx")


def test_exported_weights_load_back_bit_equal(tmp_path):
    job = dense_job()
    before = {name: value.numpy() for name, value in flow.get_all_variables().items()}
    flow_onnx.export(job, None, tmp_path / "net.onnx")
    flow.train.CheckPoint().init()
    assert flow_onnx.load_weights(tmp_path / "net.onnx").loaded == ("fc-weight", "fc-bias")
    for name, value in before.items():
        np.testing.assert_array_equal(flow.get_all_variables()[name].numpy(), value)


def test_filters_of_our_own_models_load_back_whatever_their_shape(tmp_path):
    """(8, 3, 3, 3) may be channels first or last; in our own file it is the variable's layout."""

    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((1, 5, 5, 3))) -> tp.Numpy:
        return flow.layers.conv2d(x, 8, 3, data_format="NHWC", use_bias=False, kernel_initializer=RANDOM, name="conv")

    before = flow.get_all_variables()["conv-weight"].numpy()
    flow_onnx.export(net, None, tmp_path / "net.onnx")
    flow.train.CheckPoint().init()
    assert flow_onnx.load_weights(tmp_path / "net.onnx", job=net).missing == ()
    np.testing.assert_array_equal(flow.get_all_variables()["conv-weight"].numpy(), before)


def foreign_model(path: Path) -> dict[str, np.ndarray]:
    """A model of another program: a convolution with its channels first, a shape, and a number."""
    weight = drawn(4, 3, 2, 2)
    tensors = {
        "conv.weight": weight,
        "conv.bias": drawn(4),
        "val_1": np.array([1, -1]),
        "val_2": np.float32(3).reshape(()),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["y"]),
        onnx.helper.make_node("Mul", ["y", "val_2"], ["z"]),
        onnx.helper.make_node("Reshape", ["z", "val_1"], ["out"]),
    ]
    inputs = [onnx.helper.make_tensor_value_info("x", 1, [1, 3, 4, 4])]
    outputs = [onnx.helper.make_tensor_value_info("out", 1, [1, 36])]
    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in tensors.items()]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "other", inputs, outputs, initializers)), path)
    return tensors


def test_weights_of_other_peoples_models_load_by_a_table(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((1, 4, 4, 3))) -> tp.Numpy:
        return flow.layers.conv2d(x, 4, 2, data_format="NHWC", name="conv")

    tensors = foreign_model(tmp_path / "other.onnx")
    found = flow_onnx.load_weights(tmp_path / "other.onnx", table=lambda name: name.replace("-", "."))
    assert (found.loaded, found.missing, found.unexpected) == (("conv-weight", "conv-bias"), (), ())
    np.testing.assert_array_equal(
        flow.get_all_variables()["conv-weight"].numpy(), tensors["conv.weight"].transpose(0, 2, 3, 1)
    )


def test_weights_that_do_not_fit_are_refused(tmp_path):
    dense_job()
    foreign_model(tmp_path / "other.onnx")
    message = r"2 variables have no value \(fc-weight, fc-bias\); 2 keys have no variable \(conv.weight, conv.bias\); give a table"
    with pytest.raises(ValueError, match=message):
        flow_onnx.load_weights(tmp_path / "other.onnx")
    found = flow_onnx.load_weights(tmp_path / "other.onnx", strict=False)
    assert (found.loaded, found.missing, found.unexpected) == (
        (),
        ("fc-weight", "fc-bias"),
        ("conv.weight", "conv.bias"),
    )
    with pytest.raises(ValueError, match="there is no file '.*none.onnx'"):
        flow_onnx.load_weights(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff no model")
    with pytest.raises(ValueError, match="'.*bad.onnx' cannot be read as an ONNX model"):
        flow_onnx.load_weights(tmp_path / "bad.onnx")


@pytest.mark.parametrize(
    "dims, kept",
    [((2, 3), 5), ((2, 3), 8), ((2, 3), 0), ((-1, 3), 24), ((-2, -3), 24), ((2**62, 4), 24), ((0, 3), 24)],
)
def test_an_initializer_whose_data_is_not_what_its_dims_say_is_refused(tmp_path, dims, kept):
    flow_onnx.export(dense_job(), None, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    tensor = next(one for one in model.graph.initializer if one.name == "fc-weight")
    tensor.raw_data = tensor.raw_data[:kept]
    del tensor.dims[:]
    tensor.dims.extend(dims)
    (tmp_path / "bad.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(
        CheckpointError, match=r"bad.onnx': the initializer 'fc-weight' of dims \(.*\) does not hold such a tensor: "
    ):
        flow_onnx.load_weights(tmp_path / "bad.onnx")
