"""Predict jobs as ONNX models: whole networks, names, batches, files, and what is refused."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
import oneflow.typing as tp
from oneflow import onnx as flow_onnx

ROOT = Path(__file__).resolve().parents[2]
RANDOM = flow.random_normal_initializer(0.0, 0.3)


def run(path, **feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def dense_job(batch: int = 4):
    @flow.global_function(type="predict")
    def dense_net(x: tp.Numpy.Placeholder((batch, 3))) -> tp.Numpy:
        return flow.layers.dense(x, 2, kernel_initializer=RANDOM, bias_initializer=RANDOM, name="fc")

    return dense_net


def lenet_job(monkeypatch):
    """``eval_job`` of the published program; its images are (100, 1, 28, 28)."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "quick_start"))
    return runpy.run_path(str(ROOT / "examples" / "quick_start" / "lenet_eval.py"), run_name="lenet_eval")["eval_job"]


def lenet_by_torch(weights, images: np.ndarray) -> np.ndarray:
    w = {name: torch.from_numpy(value.numpy()) for name, value in weights.items()}
    x = torch.from_numpy(images)
    for name in ("conv1", "conv2"):
        x = F.max_pool2d(F.conv2d(x, w[f"{name}-weight"], w[f"{name}-bias"], padding=2).relu(), 2)
    x = F.linear(x.flatten(1), w["dense1-weight"], w["dense1-bias"]).relu()
    return F.linear(x, w["dense2-weight"], w["dense2-bias"]).numpy()


def test_lenet_gives_the_same_logits_in_onnx_runtime(tmp_path, monkeypatch):
    job = lenet_job(monkeypatch)
    flow.train.CheckPoint().save(str(tmp_path / "weights"))
    flow_onnx.export(job, tmp_path / "weights", tmp_path / "lenet.onnx")
    images, labels = drawn(100, 1, 28, 28), np.arange(100, dtype=np.int32) % 10
    given, logits = run(tmp_path / "lenet.onnx", images=images, labels=labels)
    np.testing.assert_array_equal(given, labels)
    np.testing.assert_allclose(logits, lenet_by_torch(flow.checkpoint.get(tmp_path / "weights"), images), 1e-4, 1e-4)
    assert flow_onnx.check_equality(job, tmp_path / "lenet.onnx").largest < 1e-4


def block(x, groups: int, data_format: str):
    axis = 1 if data_format == "NCHW" else 3
    options = {"padding": "SAME", "data_format": data_format, "use_bias": False, "kernel_initializer": RANDOM}

    def normal(y, name):
        return flow.layers.batch_normalization(
            y,
            axis,
            name=name,
            gamma_initializer=RANDOM,
            beta_initializer=RANDOM,
            moving_mean_initializer=RANDOM,
            moving_variance_initializer=flow.random_uniform_initializer(0.5, 2.0),
        )

    shortcut = normal(flow.layers.conv2d(x, 8, 1, 2, name="shortcut", **options), "shortcut_bn")
    y = flow.nn.relu(normal(flow.layers.conv2d(x, 8, 3, 2, groups=groups, name="conv1", **options), "bn1"))
    y = flow.nn.max_pool2d(y, 3, 1, "SAME", data_format)
    y = normal(flow.layers.conv2d(y, 8, 3, 1, name="conv2", **options), "bn2")
    y = flow.nn.dropout(flow.nn.relu(y + shortcut), 0.5)
    y = flow.math.reduce_mean(y, [2, 3] if data_format == "NCHW" else [1, 2])
    return flow.nn.softmax(flow.layers.dense(y, 5, kernel_initializer=RANDOM, bias_initializer=RANDOM, name="out"))


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dynamic_batch", [False, True])
def test_a_residual_block_is_the_same_in_both_layouts_with_groups_and_any_batch(
    data_format, groups, dynamic_batch, tmp_path
):
    shape = (2, 4, 9, 8) if data_format == "NCHW" else (2, 9, 8, 4)

    @flow.global_function(type="predict")
    def net(images: tp.Numpy.Placeholder(shape)) -> tp.Numpy:
        return block(images, groups, data_format)

    flow_onnx.export(net, None, tmp_path / "net.onnx", dynamic_batch=dynamic_batch)
    images = drawn(2, *shape[1:])
    expected = net(images)
    assert expected.std() > 1e-3
    np.testing.assert_allclose(run(tmp_path / "net.onnx", images=images)[0], expected, 1e-4, 1e-5)
    if dynamic_batch:
        many = drawn(6, *shape[1:])
        singly = np.concatenate([net(many[i : i + 2]) for i in (0, 2, 4)])
        np.testing.assert_allclose(run(tmp_path / "net.onnx", images=many)[0], singly, 1e-4, 1e-5)


def test_names_and_metadata_are_kept(tmp_path):
    @flow.global_function(type="predict")
    def net(
        images=flow.FixedTensorDef((2, 1, 6, 6)),
        pair=(flow.FixedTensorDef((2, 3)), flow.FixedTensorDef((2, 3), name="second")),
    ):
        """Scores of pictures."""
        with flow.scope.namespace("body"):
            y = flow.layers.conv2d(images, 3, 3, kernel_initializer=RANDOM, name="conv")
        return flow.math.add(flow.math.reduce_mean(y, [2, 3], name="pool"), pair[0] + pair[1], name="total")

    flow_onnx.export(net, None, tmp_path / "net.onnx", opset=18)
    model = onnx.load(tmp_path / "net.onnx")
    assert [value.name for value in model.graph.input] == ["images", "pair[0]", "second"]
    assert [value.name for value in model.graph.output] == ["total/out_0"]
    assert {"body-conv-weight", "body-conv-bias"} <= {tensor.name for tensor in model.graph.initializer}
    assert {"body-conv", "pool", "total"} <= {node.name for node in model.graph.node}
    assert (model.producer_name, model.graph.name, model.doc_string) == ("oneflow-torch", "net", "Scores of pictures.")
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 18)]
    assert {p.key: p.value for p in model.metadata_props} == {"oneflow.engine.job": "net", "oneflow.opset": "18"}


def test_inferred_shapes_are_those_of_the_job(tmp_path, monkeypatch):
    flow_onnx.export(lenet_job(monkeypatch), None, tmp_path / "lenet.onnx")
    model = onnx.load(tmp_path / "lenet.onnx")
    told = {value.name: value.type for value in model.graph.value_info}
    del model.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    found = {value.name: value.type for value in inferred.graph.value_info}
    shared = told.keys() & found.keys()
    assert {"conv1/out_0", "pool2/out_0", "dense1/out_0"} <= shared
    assert all(told[name] == found[name] for name in shared)


def test_dropout_is_not_in_a_predict_job(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.nn.dropout(x, 0.9, name="drop") + 1

    flow_onnx.export(net, None, tmp_path / "net.onnx")
    x = drawn(4, 3)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", x=x)[0], x + 1)


def test_the_weights_are_those_of_the_checkpoint_not_of_the_session(tmp_path):
    job = dense_job()
    x = drawn(4, 3)
    flow.checkpoint.save(tmp_path / "weights")
    saved = job(x)
    flow.load_variables({"fc-bias": np.full(2, 100, np.float32)})
    flow_onnx.export(job, str(tmp_path / "weights"), str(tmp_path / "old.onnx"))
    flow_onnx.export(job, None, tmp_path / "new.onnx")
    np.testing.assert_allclose(run(tmp_path / "old.onnx", x=x)[0], saved, 1e-4, 1e-5)
    np.testing.assert_allclose(run(tmp_path / "new.onnx", x=x)[0], job(x), 1e-4, 1e-5)


def test_ops_that_no_result_needs_are_left_out_and_inputs_stay(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((4, 3)), unused: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.math.lgamma(unused)
        return x * 2

    flow_onnx.export(net, None, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    assert [node.op_type for node in model.graph.node] == ["Mul"]
    assert [value.name for value in model.graph.input] == ["x", "unused"]


def test_results_may_be_inputs_variables_and_the_same_blob_twice(tmp_path):
    @flow.global_function(type="predict")
    def net(x=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        y = x + w
        return {"x": x, "w": w, "y": [y, y]}

    flow_onnx.export(net, None, tmp_path / "net.onnx")
    x = drawn(2)
    found = run(tmp_path / "net.onnx", x=x)
    for got, want in zip(found, [x, np.ones(2), x + 1, x + 1], strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_reader_becomes_inputs(tmp_path):
    @flow.global_function(type="predict")
    def net() -> tp.Numpy:
        images = flow.data.decode_random(
            (3, 4), flow.float32, 2, initializer=flow.random_uniform_initializer(0, 1), name="images"
        )
        return images * 2

    flow_onnx.export(net, None, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    assert [value.name for value in model.graph.input] == ["images"]
    x = drawn(2, 3, 4)
    np.testing.assert_array_equal(run(tmp_path / "net.onnx", images=x)[0], x * 2)
    with pytest.raises(NotImplementedError, match="job 'net' reads its data itself.*check a job that takes arrays"):
        flow_onnx.check_equality(net, tmp_path / "net.onnx")
    with pytest.raises(NotImplementedError, match="dynamic_batch: job 'net' reads data with batches of a fixed size"):
        flow_onnx.export(net, None, tmp_path / "any.onnx", dynamic_batch=True)


def wide_job():
    @flow.global_function(type="predict")
    def wide(x: tp.Numpy.Placeholder((2, 64))) -> tp.Numpy:
        return flow.layers.dense(x, 32, kernel_initializer=RANDOM, name="fc")

    return wide


def test_external_data_lies_in_one_file_beside_the_model(tmp_path):
    job = wide_job()
    flow_onnx.export(job, None, tmp_path / "deep" / "net.onnx", external_data=True)
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["net.onnx", "net.onnx.data"]
    assert (
        (tmp_path / "deep" / "net.onnx").stat().st_size
        < 64 * 32 * 4
        <= (tmp_path / "deep" / "net.onnx.data").stat().st_size
    )
    assert flow_onnx.check_equality(job, tmp_path / "deep" / "net.onnx").largest < 1e-4
    assert flow_onnx.load_weights(tmp_path / "deep" / "net.onnx").loaded == ("fc-weight", "fc-bias")


def test_weights_too_large_for_one_file_go_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("oneflow.engine.onnx.modules.LARGEST_FILE", 1000)
    flow_onnx.export(wide_job(), None, tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx.data").exists()


def test_a_model_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path):
    flow_onnx.export(dense_job(), None, tmp_path / "net.onnx")
    before = (tmp_path / "net.onnx").read_bytes()
    flow.clear_default_session()

    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((2,)), i: tp.Numpy.Placeholder((2, 1), flow.int32)) -> tp.Numpy:
        return flow.scatter_nd(i, x, (4,))

    with pytest.raises(
        NotImplementedError, match=r"test_onnx.py:\d+: scatter_nd \('ScatterNd_0'\): .* since opset 16, this is 13"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", opset=13)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert (tmp_path / "net.onnx").read_bytes() == before
    flow_onnx.export(net, None, tmp_path / "net.onnx", opset=16)
    assert (tmp_path / "net.onnx").read_bytes() != before


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write an ONNX model to '.*net.onnx'.*choose another path"):
        flow_onnx.export(dense_job(), None, tmp_path / "file" / "net.onnx")


def test_the_later_name_writes_model_onnx_into_a_folder(tmp_path):
    job = dense_job()
    flow.checkpoint.save(tmp_path / "weights")
    flow_onnx.export_onnx_model(job, tmp_path / "weights", tmp_path / "out", opset=11)
    assert onnx.load(tmp_path / "out" / "model.onnx").opset_import[0].version == 11


def test_shape_override_exports_for_other_inputs(tmp_path):
    job = dense_job()
    flow_onnx.export(job, None, tmp_path / "net.onnx", shape_override={"x": (7, 3)})
    x = drawn(7, 3)
    np.testing.assert_allclose(run(tmp_path / "net.onnx", x=x)[0][:4], job(x[:4]), 1e-4, 1e-5)
    with pytest.raises(ValueError, match=r"shape_override names the input 'y'; job 'dense_net' has the inputs \['x'\]"):
        flow_onnx.export(job, None, tmp_path / "net.onnx", shape_override={"y": (7, 3)})
    with pytest.raises(ValueError, match=r"shape_override gives the input 'x' 2 ints > 0, got \(7,\)"):
        flow_onnx.export(job, None, tmp_path / "net.onnx", shape_override={"x": (7,)})


def test_an_op_that_onnx_cannot_express_is_named_with_the_users_line(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.math.lgamma(x, name="gamma")

    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx.py:\d+: math.lgamma \('gamma'\): ONNX cannot express it: ONNX has no gamma",
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.warns(
        UserWarning, match=r"a runtime must bring operators of the domain 'oneflow': math.lgamma \('gamma'\)"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx", continue_on_error=True)
    node = onnx.load(tmp_path / "net.onnx").graph.node[0]
    assert (node.domain, node.op_type, node.name, list(node.output)) == ("oneflow", "lgamma", "gamma", ["gamma/out_0"])


def test_a_job_that_writes_a_variable_is_refused_even_if_no_result_needs_it(tmp_path):
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        flow.assign(flow.get_variable("count", (2,), initializer=flow.zeros_initializer()), x)
        return x + 1

    with pytest.raises(NotImplementedError, match="assign.*an ONNX model has no variables that a step could write"):
        flow_onnx.export(net, None, tmp_path / "net.onnx")


def test_a_result_with_as_many_rows_as_the_data_says_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def places(x: tp.Numpy.Placeholder((4,))) -> tp.ListNumpy:
        return flow.argwhere(x, name="places")

    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx.py:\d+: .* \('.*'\): ONNX cannot express it: it has as many rows as the data says",
    ):
        flow_onnx.export(places, None, tmp_path / "net.onnx")


def test_what_is_computed_from_such_rows_is_exported(tmp_path):
    @flow.global_function(type="predict")
    def total(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        return flow.math.reduce_sum(flow.argwhere(x))

    flow_onnx.export(total, None, tmp_path / "net.onnx")
    x = np.array([1, 0, 2, 3], np.float32)
    assert run(tmp_path / "net.onnx", x=x)[0] == 0 + 2 + 3


def test_a_train_job_is_refused(tmp_path):
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        loss = flow.layers.dense(x, 1, name="fc")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    with pytest.raises(
        AssertionError, match="job 'train' of .* is a train job, flow.onnx.export takes a predict job: write one"
    ):
        flow_onnx.export(train, None, tmp_path / "net.onnx")


def test_what_is_no_job_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="flow.onnx.export takes a function decorated with @flow.global_function, got <built-in"
    ):
        flow_onnx.export(print, None, tmp_path / "net.onnx")
    first = dense_job()
    dense_job()
    with pytest.raises(AssertionError, match="job 'dense_net' of .* was replaced by another definition"):
        flow_onnx.export(first, None, tmp_path / "net.onnx")


def test_a_job_that_returns_nothing_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def silent(x: tp.Numpy.Placeholder((2,))) -> None:
        flow.math.relu(x)

    with pytest.raises(AssertionError, match="job 'silent' returns nothing.*return the network's outputs"):
        flow_onnx.export(silent, None, tmp_path / "net.onnx")


def test_one_name_for_an_input_and_a_variable_is_refused(tmp_path):
    @flow.global_function(type="predict")
    def net(w: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return w + flow.get_variable("w", (2,), initializer=flow.ones_initializer())

    with pytest.raises(
        ValueError, match="job 'net' has two inputs or variables called 'w', an ONNX model cannot; rename one"
    ):
        flow_onnx.export(net, None, tmp_path / "net.onnx")


def test_a_checkpoint_without_the_jobs_variables_is_refused(tmp_path):
    flow.checkpoint.save(tmp_path / "weights", {"fc-weight": np.zeros((2, 3), np.float32)})
    with pytest.raises(
        ValueError, match=r"has no variable 'fc-bias', job 'dense_net' needs it as float32\(2\) \(1 missing of 2\)"
    ):
        flow_onnx.export(dense_job(), tmp_path / "weights", tmp_path / "net.onnx")
    with pytest.raises(AssertionError, match="is not a folder"):
        flow_onnx.export(dense_job(), tmp_path / "nowhere", tmp_path / "net.onnx")


@pytest.mark.parametrize("opset", [10, 22, -1])
def test_opsets_outside_the_range_are_refused(opset, tmp_path):
    with pytest.raises(ValueError, match=f"opset is an int from 11 to 21, or None for 17; got {opset}"):
        flow_onnx.export(dense_job(), None, tmp_path / "net.onnx", opset=opset)


def test_an_opset_that_the_installed_package_does_not_know_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 19)
    with pytest.raises(ValueError, match="knows opsets up to 19, got 21; install a newer one"):
        flow_onnx.export(dense_job(), None, tmp_path / "net.onnx", opset=21)


def test_extra_opsets_are_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="extra_opset is not supported"):
        flow_onnx.export(dense_job(), None, tmp_path / "net.onnx", extra_opset=["mine", 1])


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_told_with_the_command_that_installs_it(package, tmp_path, monkeypatch):
    job = dense_job()
    flow_onnx.export(job, None, tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, package, None)
    call = flow_onnx.export if package == "onnx" else flow_onnx.check_equality
    arguments = (job, None, tmp_path / "new.onnx") if package == "onnx" else (job, tmp_path / "net.onnx")
    with pytest.raises(
        ImportError,
        match=rf"needs the package '{package}', which is not installed: pip install 'oneflow-torch\[onnx\]'",
    ):
        call(*arguments)


def test_importing_the_namespace_imports_no_optional_package():
    program = "import sys, oneflow.onnx, oneflow.checkpoint; sys.exit(any(m in sys.modules for m in ('onnx', 'onnxruntime', 'safetensors')))"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
