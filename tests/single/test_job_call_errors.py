"""Mistakes when a job is decorated and called: the exception's type, its message, and the user's own line, marked with
``# here``."""

import numpy as np
import pytest
from wrong_jobs import X, identity_job

import oneflow as flow
import oneflow.typing as tp

# -------------------------------------------------------------------------------------------------- decorating


def test_unknown_job_type(error):
    with error(AssertionError, "'train' or 'predict', got 'eval'"):
        flow.global_function(type="eval")  # here


def test_config_of_another_kind(error):
    with error(AssertionError, "made by flow.function_config"):
        flow.global_function(type="train", function_config={})  # here


def test_two_configs(error):
    with error(AssertionError, "two configs"):
        flow.global_function(flow.function_config(), flow.function_config())  # here


def test_something_that_is_no_function(error):
    with error(AssertionError, "a job is a Python function"):
        flow.global_function()("job")  # here


@pytest.mark.parametrize("shape", [[2, 3], 5, (0,), (2, -1), (2.0,), None, "2"])
def test_input_shapes(error, shape):
    with error(AssertionError, "shape is a tuple of ints > 0"):
        flow.FixedTensorDef(shape)  # here


def test_input_batch_axis(error):
    with error(AssertionError, "batch_axis 2 is outside a shape of 2 dims"):
        flow.MirroredTensorDef((2, 3), batch_axis=2)  # here


@pytest.mark.parametrize("dtype", [np.complex64, "float33", object])
def test_input_dtype(dtype):
    with pytest.raises(NotImplementedError, match="dtype"):
        flow.FixedTensorDef((2,), dtype=dtype)


def test_annotations_on_some_parameters_only(error):
    @flow.global_function()  # here
    def job(x: tp.Numpy.Placeholder((2,)), y=flow.FixedTensorDef((2,))):
        return x

    with error(NotImplementedError, "either every parameter has an annotation or none"):
        job(X, X)


def test_star_arguments(error):
    @flow.global_function()  # here
    def job(*inputs):
        return inputs

    with error(NotImplementedError, r"takes \*inputs"):
        job(X)


def test_keyword_only_arguments(error):
    @flow.global_function()  # here
    def job(*, x=flow.FixedTensorDef((2,))):
        return x

    with error(NotImplementedError, "input 'x' of job 'job' stands behind"):
        job(x=X)


def test_parameter_without_definition(error):
    @flow.global_function()  # here
    def job(x, y=3):
        return x

    with error(AssertionError, "parameter 'x' of job 'job' has no input definition"):
        job(X, X)


# ----------------------------------------------------------------------------------------------------- calling


def test_too_few_arguments(error):
    job = identity_job()
    with error(AssertionError, r"takes 1 inputs \(x\), got 0 positional"):
        job()  # here


def test_too_many_arguments(error):
    job = identity_job()
    with error(AssertionError, r"takes 1 inputs \(x\), got 2 positional"):
        job(X, X)  # here


def test_unknown_keyword(error):
    job = identity_job()
    with error(AssertionError, r"takes 1 inputs \(x\).*\['y'\] keyword"):
        job(y=X)  # here


def test_argument_given_twice(error):
    job = identity_job()
    with error(AssertionError, "takes 1 inputs"):
        job(X, x=X)  # here


@pytest.mark.parametrize("shape", [(2, 1), (3,), (), (0,)])
def test_wrong_shape(error, shape):
    job = identity_job()
    with error(AssertionError, r"input 'x' of job 'job' has shape \(2,\), got"):
        job(np.zeros(shape, np.float32))  # here


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float16, ">f4"])
def test_wrong_dtype(error, dtype):
    job = identity_job()
    with error(TypeError, "has dtype float32, got .*nothing is cast silently"):
        job(X.astype(dtype))  # here


@pytest.mark.parametrize("value", [[0.0, 0.0], 1.0, None, "x"])
def test_not_an_array(error, value):
    job = identity_job()
    with error(AssertionError, "is a numpy array float32"):
        job(value)  # here


@pytest.mark.parametrize(
    "value, pattern",
    [
        (X, "is a list with one entry a device"),
        ([X, X], "is a list with one entry a device"),
        ([], "is a list with one entry a device"),
        ([np.zeros(5, np.float32)], r"has shape \(4,\) or less of it, got \(5,\)"),
        ([np.zeros((2, 2), np.float32)], r"or less of it, got \(2, 2\)"),
        ([np.zeros((0, 2), np.float32)], r"or less of it, got \(0, 2\)"),
    ],
)
def test_mirrored_inputs(error, value, pattern):
    @flow.global_function()
    def job(x=flow.MirroredTensorDef((4,))):
        return x

    with error(AssertionError, pattern):
        job(value)  # here


@pytest.mark.parametrize("value", [X, [X], [[]], [[X, 3]], [[np.zeros(9, np.float32)]]])
def test_mirrored_lists(error, value):
    @flow.global_function()
    def job(x=flow.MirroredTensorListDef((4,))):
        return x

    with error(AssertionError, "input 'x"):
        job(value)  # here


@pytest.mark.parametrize(
    "value, pattern",
    [
        ((X,), "is a sequence of 2, got tuple of 1"),
        (X, "is a sequence of 2, got ndarray"),
        ((X, {"b": X}), r"'pair\[1\]'.*keys \['a'\], got dict with keys \['b'\]"),
        ((X, X), r"'pair\[1\]'.*is a dict"),
        ((X, {"a": X[:1]}), r"input \"pair\[1\]\['a'\]\".*has shape"),
    ],
)
def test_wrong_structure(error, value, pattern):
    one = flow.FixedTensorDef((2,))

    @flow.global_function()
    def job(pair=(one, {"a": one})):
        return pair[0]

    with error(AssertionError, pattern):
        job(value)  # here


def test_second_get(error):
    future = identity_job()(X)
    future.get()
    with error(AssertionError, "delivered before"):
        future.get()  # here
    with pytest.raises(AssertionError, match="delivered before"):
        future.async_get(print)


def test_get_after_async_get(error):
    future = identity_job()(X)
    future.async_get(lambda result: None)
    with error(AssertionError, "delivered before"):
        future.get()  # here


def test_callback_that_cannot_be_called(error):
    future = identity_job()(X)
    with error(AssertionError, "async_get takes a function, got 3"):
        future.async_get(3)  # here
    assert future.get().tolist() == [0, 0]
