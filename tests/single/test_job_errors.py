"""Mistakes outside a job, with the session, and those that show only while a job runs: type, message, and the user's
own line, marked with ``# here``."""

import inspect

import numpy as np
import pytest
from wrong_jobs import X, identity_job, sgd, weight

import oneflow as flow


def leaked_blob():
    """A blob of a job that was traced and ended."""
    kept = []

    @flow.global_function()
    def leaky(x=flow.FixedTensorDef((2,))):
        kept.append(x + 1)

    leaky(X)
    return kept[0]


# ------------------------------------------------------------------------------------------------- outside a job


def test_operator_on_a_blob_outside_a_job(error):
    blob = leaked_blob()
    with error(NotImplementedError, "add was called outside a job function"):
        blob + 1  # here


def test_op_on_a_blob_outside_a_job(error):
    blob = leaked_blob()
    with error(NotImplementedError, "relu was called outside a job function"):
        flow.nn.relu(blob)  # here


@pytest.mark.parametrize(
    "call",
    [
        lambda: weight(),  # here
        lambda: flow.losses.add_loss(None),  # here
        lambda: flow.watch(None),  # here
        lambda: flow.current_global_function_desc(),  # here
        lambda: flow.data.decode_random((1,), flow.float32),  # here
        lambda: flow.scope.namespace("n").__enter__(),  # here
        lambda: flow.scope.placement("cpu", "0:0").__enter__(),  # here
        lambda: sgd().minimize(None),  # here
    ],
)
def test_what_belongs_inside_a_job(call):
    with pytest.raises(NotImplementedError, match="outside a job function.*@flow.global_function"):
        call()


def test_blob_of_another_job(error):
    blob = leaked_blob()

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x + blob  # here

    with error(AssertionError, "belongs to another job"):
        job(X)


def test_loss_of_another_job(error):
    blob = leaked_blob()

    @flow.global_function(type="train")
    def job():
        sgd().minimize(blob)  # here

    with error(AssertionError, "belongs to another job"):
        job()


def test_watch_of_another_job(error):
    blob = leaked_blob()

    @flow.global_function()
    def job():
        flow.watch(blob)  # here

    with error(AssertionError, "belongs to another job"):
        job()


def test_result_of_another_job(error):
    blob = leaked_blob()

    @flow.global_function()  # here
    def job():
        return blob

    with error(NotImplementedError, "returns blobs of its own"):
        job()


def test_job_inside_a_job(error):
    inner = identity_job()

    @flow.global_function()
    def outer(x=flow.FixedTensorDef((2,))):
        return inner(x)  # here

    with error(AssertionError, "job 'job' is called inside job 'outer'"):
        outer(X)


# ----------------------------------------------------------------------------------------------- the session


def test_checkpoint_without_a_job(error):
    with error(AssertionError, "CheckPoint.init: no job is defined"):
        flow.train.CheckPoint().init()  # here


def test_variables_without_a_job(error):
    with error(AssertionError, "get_all_variables: no job is defined"):
        flow.get_all_variables()  # here


def test_job_of_a_closed_session(error):
    job = identity_job()
    flow.clear_default_session()
    with error(AssertionError, "belongs to a session that flow.clear_default_session.. closed"):
        job(X)  # here


def test_eager_execution_comes_before_the_jobs(error):
    identity_job()
    with error(AssertionError, "comes before the first job; 1 are defined"):
        flow.enable_eager_execution(True)  # here


@pytest.mark.parametrize("devices", ["0:0-3", "1:0"])
def test_placements_beyond_the_configured_devices(error, devices):
    flow.config.cpu_device_num(2)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        with flow.scope.placement("cpu", devices):
            return x * 2  # here

    with error(AssertionError, r"placement cpu.* names .*; 1 machine with 2 devices each are configured"):
        job(X)


@pytest.mark.parametrize("devices", ["0", "0:3-1", "", [], 3, "a:b"])
def test_devices_that_cannot_be_read(error, devices):
    with error(AssertionError, "device"):
        flow.scope.placement("cpu", devices)  # here


@pytest.mark.parametrize("hierarchy", [2, "2", (), (-1, -2), (2.0, 1), (0, 2), ("2", "1")])
def test_a_hierarchy_that_is_no_list_of_extents(error, hierarchy):
    with error(
        AssertionError, r"a placement's hierarchy is a tuple with the extent of each axis, such as \(2, 4\); got "
    ):
        flow.scope.placement("cpu", "0:0-1", hierarchy)  # here


def test_a_hierarchy_of_another_number_of_devices(error):
    with error(AssertionError, r"hierarchy \(3, 1\) has room for 3 devices, the placement has 2"):
        flow.scope.placement("cpu", "0:0-1", (3, 1))  # here


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_namespace_names(error, name):
    @flow.global_function()
    def job():
        with flow.scope.namespace(name):  # here
            pass

    with error(AssertionError, "a namespace is a name without '/'"):
        job()


# ----------------------------------------------------------------------------------------------- while it runs


def test_label_out_of_range_names_job_op_and_line():
    @flow.global_function()
    def job(labels=flow.FixedTensorDef((2,), dtype=flow.int32), x=flow.FixedTensorDef((2, 3))):
        return flow.nn.sparse_softmax_cross_entropy_with_logits(labels, x * 2, name="the_loss")  # here

    x = np.zeros((2, 3), np.float32)
    with pytest.raises(RuntimeError) as caught:
        job(np.array([0, 3], np.int32), x)
    source, start = inspect.getsourcelines(test_label_out_of_range_names_job_op_and_line)
    line = start + next(i for i, text in enumerate(source) if "# here" in text)
    assert "job 'job' failed at step 0 in op 'the_loss'" in str(caught.value)
    assert f"{__file__}:{line}" in str(caught.value)
    np.testing.assert_allclose(job(np.array([0, 2], np.int32), x).get(), np.log([3, 3]), rtol=1e-6)


def test_a_step_that_fails_changes_nothing():
    @flow.global_function(type="train")
    def job(labels=flow.FixedTensorDef((1,), dtype=flow.int32)):
        sgd().minimize(flow.nn.sparse_softmax_cross_entropy_with_logits(labels, weight("w", (1, 3))))

    with pytest.raises(RuntimeError, match="failed at step 0"):
        job(np.array([-1], np.int32))
    after = {name: v.numpy() for name, v in flow.get_all_variables().items()}
    assert after["w"].tolist() == [[1, 1, 1]] and after["System-Train-TrainStep-job"] == 0
    job(np.array([0], np.int32))
    assert flow.get_all_variables()["w"].numpy()[0, 0] > 1


def test_a_batch_of_one_micro_batch(error):
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((3,))):
        sgd().minimize(weight("w", (1,)) * x)

    with error(AssertionError, r"input 'x' of job 'job' has shape \(6,\) \(2 micro-batches of \(3,\)\), got \(3,\)"):
        job(np.zeros(3, np.float32))  # here


def test_a_batch_that_cannot_be_cut(error):
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.MirroredTensorDef((2,))):
        sgd().minimize(weight("w", (1,)) * x)

    with error(AssertionError, "a batch of 3 cannot be cut into 2 micro-batches"):
        job([np.zeros(3, np.float32)])  # here


def test_a_smaller_input_that_an_op_does_not_take(error):
    @flow.global_function()
    def job(x=flow.MirroredTensorDef((4,))):
        return flow.reshape(x, (2, 2))  # here

    assert job([np.zeros(4, np.float32)]).get().shape == (2, 2)
    with error(AssertionError, "reshape"):
        job([np.zeros(3, np.float32)])


def test_a_variable_of_another_job_named_as_an_optimizers_state(error):
    @flow.global_function()
    def other():
        return flow.get_variable("w-momentum", (1,), initializer=flow.ones_initializer())

    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2000,))):
        loss = flow.get_variable("w", (2000,), initializer=flow.ones_initializer()) * x
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    for _ in range(2):  # the same error again, not a half-made job
        with pytest.raises(AssertionError, match="'w-momentum' is the name of an optimizer's state"):
            job(np.ones(2000, np.float32))


def test_an_initializer_that_cannot_draw_a_variable_names_its_line_every_time():
    @flow.global_function()
    def bad():
        return flow.get_variable("b", (3,), initializer=flow.glorot_uniform_initializer())

    @flow.global_function()
    def fine():
        return flow.get_variable("c", (3,), initializer=flow.ones_initializer())

    for _ in range(2):
        with pytest.raises(AssertionError, match=r"test_job_errors.py:\d+: variable 'b'"):
            fine()


def test_the_session_is_not_asked_inside_a_body():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        flow.get_all_variables()
        return x

    with pytest.raises(AssertionError, match="inside the body of job 'job'"):
        job(np.ones(2, np.float32))


def test_a_gradient_that_no_loss_asks_for_is_0():
    seen = []

    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2,))):
        loss = flow.get_variable("w", (2,), initializer=flow.ones_initializer()) * x
        flow.watch_diff(x * 3, lambda gradient: seen.append(gradient.numpy().tolist()))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)

    job(np.ones(2, np.float32))
    assert seen == [[0, 0]]


def test_row_wise_names_must_exist():
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"naive_conf": {}})
    config.indexed_slices_optimizer_conf({"enable": True, "include_op_names": {"op_name": ["tabel"]}})

    @flow.global_function(config)
    def job(x=flow.FixedTensorDef((2,))):
        flow.losses.add_loss(flow.get_variable("table", (2,), initializer=flow.ones_initializer()) * x)

    with pytest.raises(AssertionError, match="has no variable 'tabel' for its optimizer. Did you mean 'table'"):
        job(np.ones(2, np.float32))
