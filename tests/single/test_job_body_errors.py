"""Mistakes in the body of a job and with its variables: the exception's type, its message, and the user's own line,
marked with ``# here``."""

from typing import Dict, Tuple

import numpy as np
import pytest
from wrong_jobs import X, weight

import oneflow as flow
import oneflow.typing as tp

# --------------------------------------------------------------------------------------------------- the body


@pytest.mark.parametrize(
    "convert", [bool, float, int, list, np.array, lambda blob: 1 if blob else 0, lambda blob: blob in [blob + 1]]
)
def test_value_of_a_blob(convert):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        convert(x)

    with pytest.raises(AssertionError, match="it has no value while the job is traced. A job's body runs once"):
        job(X[:1])


def test_truth_of_a_blob_names_the_line(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        if x > 0:  # here
            return x

    with error(AssertionError, "the truth of blob"):
        job(X)


def test_op_with_wrong_shapes(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,)), y=flow.FixedTensorDef((3,))):
        return x + y  # here

    with error(AssertionError, r"math.add .*inputs: Input_0 float32\(2\), Input_1 float32\(3\)"):
        job(X, np.zeros(3, np.float32))


@pytest.mark.parametrize("shape", [(3,), (-1, -1), (0, 2)])
def test_reshape(error, shape):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return flow.reshape(x, shape)  # here

    with error(AssertionError, "reshape"):
        job(X)


def test_op_name_used_twice(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        flow.nn.relu(x, name="same")
        return flow.nn.relu(x, name="same")  # here

    with error(AssertionError, "op_name: same already exist in job: job"):
        job(X)


@pytest.mark.parametrize("returned", [3, 2.0, X, "blob", flow.FixedTensorDef((2,)), (None,), {"a": 1}], ids=repr)
def test_result_that_is_no_blob(error, returned):
    @flow.global_function()  # here
    def job(x=flow.FixedTensorDef((2,))):
        return returned

    with error(NotImplementedError, "a job returns blobs of its own"):
        job(X)


def test_result_that_numpy_cannot_hold(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return flow.cast(x, flow.bfloat16)  # here

    with error(NotImplementedError, "numpy has no bfloat16; cast it to float32"):
        job(X)


def test_watch_of_what_numpy_cannot_hold(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        flow.watch(flow.cast(x, flow.bfloat16))  # here

    with error(AssertionError, "which numpy does not have"):
        job(X)


ANNOTATED = [
    (None, lambda x: x, AssertionError, "annotated '-> None' but its body returns something"),
    (tp.Numpy, lambda x: None, AssertionError, "annotated '-> Numpy' but its body returns None"),
    (tp.Numpy, lambda x: (x, x), AssertionError, "annotated '-> Numpy' but its body returns a tuple of 2"),
    (Tuple[tp.Numpy, tp.Numpy], lambda x: x, AssertionError, "its body returns one blob"),
    (Tuple[tp.Numpy, tp.Numpy], lambda x: (x,), AssertionError, "its body returns a tuple of 1"),
    (Tuple[tp.Numpy, tp.Numpy], lambda x: [x, x], AssertionError, "its body returns a list of 2"),
    (Dict[str, tp.Numpy], lambda x: {1: x}, AssertionError, r"its body returns a dict with keys \[1\]"),
    (Dict[str, tp.Numpy], lambda x: x, AssertionError, "its body returns one blob"),
    (tp.Callback[tp.Numpy], lambda x: None, AssertionError, "its body returns None"),
    (tp.Callback[Tuple[tp.Numpy]], lambda x: x, AssertionError, "its body returns one blob"),
    (int, lambda x: x, NotImplementedError, "int is not a result annotation"),
]


@pytest.mark.parametrize("annotation, body, kind, pattern", ANNOTATED, ids=[str(i) for i in range(len(ANNOTATED))])
def test_result_annotations(error, annotation, body, kind, pattern):
    @flow.global_function()  # here
    def job(x: tp.Numpy.Placeholder((2,))) -> annotation:
        return body(x)

    with error(kind, pattern):
        job(X)


# -------------------------------------------------------------------------------------------------- variables


def test_variable_of_another_shape_in_the_same_job(error):
    @flow.global_function()
    def job():
        flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        return flow.get_variable("w", (3,), initializer=flow.ones_initializer())  # here

    with error(
        AssertionError, rf"variable 'w' was made as float32\(2\) at {__file__}:\d+, it cannot be float32\(3\) here"
    ):
        job()


@pytest.mark.parametrize("shape, dtype", [((3,), flow.float32), ((2,), flow.float64), ((2, 1), flow.float32)])
def test_variable_of_another_shape_or_dtype_in_another_job(error, shape, dtype):
    @flow.global_function()
    def first():
        return weight()

    @flow.global_function()
    def second():
        return flow.get_variable("w", shape, dtype, flow.ones_initializer())  # here

    with error(AssertionError, r"variable 'w' was made as float32\(2\)"):
        first()


def test_variable_without_initializer(error):
    @flow.global_function()
    def job():
        return flow.get_variable("w", (2,))  # here

    with error(AssertionError, "variable 'w' has no initializer.*default_initializer_conf"):
        job()


def test_initializer_of_another_kind(error):
    @flow.global_function()
    def job():
        return flow.get_variable("w", (2,), initializer=0.5)  # here

    with error(AssertionError, r"0.5 is not an initializer \(variable 'w'\)"):
        job()


@pytest.mark.parametrize("shape", [None, 3, (0,), (2.5,), "12"])
def test_variable_shape(error, shape):
    @flow.global_function()
    def job():
        return flow.get_variable("w", shape, initializer=flow.ones_initializer())  # here

    with error(AssertionError, "variable 'w' needs a shape"):
        job()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", None, 3, "snapshot_done"])
def test_variable_name_that_cannot_be_a_folder(error, name):
    @flow.global_function()
    def job():
        return flow.get_variable(name, (2,), initializer=flow.ones_initializer())  # here

    with error(AssertionError, "variable's name"):
        job()


@pytest.mark.parametrize("kind", ["predict", "train"])
@pytest.mark.parametrize(
    "more, pattern",
    [
        ({"regularizer": 0.1}, "0.1 is not a regularizer .variable 'w'.; use one of flow.regularizers"),
        ({"trainable": "no"}, "trainable is True or False, got 'no'"),
        ({"random_seed": 1.5}, "a seed is an int of 64 bits, got 1.5"),
    ],
)
def test_variable_arguments(error, kind, more, pattern):
    @flow.global_function(type=kind)
    def job():
        return flow.get_variable("w", (2,), initializer=flow.ones_initializer(), **more)  # here

    with error(AssertionError, pattern):
        job()


def test_variable_laid_out_by_a_word(error):
    @flow.global_function()
    def job():
        return flow.get_variable("w", (2,), initializer=flow.ones_initializer(), distribute="B")  # here

    with error(TypeError, "distribute is flow.distribute.split/broadcast/auto, got 'B'"):
        job()


def test_variable_without_reuse(error):
    @flow.global_function()
    def job():
        flow.get_variable("w", (2,), initializer=flow.ones_initializer(), reuse=False)
        return flow.get_variable("w", (2,), initializer=flow.ones_initializer(), reuse=False)  # here

    with error(AssertionError, "variable 'w' exists in job 'job' already and reuse=False"):
        job()


def test_variable_that_a_checkpoint_cannot_hold(error):
    @flow.global_function()
    def job():
        return flow.get_variable("w", (2,), flow.bfloat16, flow.ones_initializer())  # here

    with error(NotImplementedError, "variable 'w' cannot be bfloat16"):
        job()


def test_variable_named_as_the_state_of_another(error):
    @flow.global_function(type="train")
    def job():
        other = flow.get_variable("w-momentum", (2,), initializer=flow.ones_initializer())  # here
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(schedule, momentum=0.9).minimize(weight() * other)

    with error(AssertionError, "'w-momentum' is the name of an optimizer's state, a variable cannot have it"):
        job()


@pytest.mark.parametrize("trainable", [None, True, False])
def test_integer_variables_are_not_trained_whatever_is_said(trainable):
    @flow.global_function()
    def job():
        return flow.get_variable("n", (2,), flow.int32, flow.ones_initializer(flow.int32), trainable=trainable)

    assert job().get().tolist() == [1, 1]
