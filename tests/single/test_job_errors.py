"""Every mistake a user can make around job functions: the exception's type, its message, and the user's own line in it.

In each test the line that the message must name is marked with ``# here``.
"""

import inspect
from contextlib import contextmanager
from typing import Dict, Tuple

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.errors import OneFlowError

X = np.zeros(2, np.float32)


@pytest.fixture
def error(request):
    """``with error(kind, pattern):`` the block raises that kind, and the message begins with the line marked in the test."""
    source, start = inspect.getsourcelines(request.function)
    marked = [start + i for i, line in enumerate(source) if "# here" in line]

    @contextmanager
    def check(kind: type[Exception], pattern: str):
        with pytest.raises(kind, match=pattern) as caught:
            yield
        assert isinstance(caught.value, OneFlowError)
        assert any(str(caught.value).startswith(f"{__file__}:{line}: ") for line in marked), f"{marked} in {caught.value}"

    return check


def weight(name: str = "w", shape: tuple[int, ...] = (2,), **more):
    return flow.get_variable(name, shape, initializer=flow.ones_initializer(), **more)


def sgd(lr: float = 0.1, **more):
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [lr]), momentum=0, **more)


def identity_job():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x

    return job


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
        ([np.zeros(0, np.float32)], r"or less of it, got \(0,\)"),
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


# --------------------------------------------------------------------------------------------------- the body


@pytest.mark.parametrize("convert", [bool, float, int, list, np.array, lambda blob: 1 if blob else 0, lambda blob: blob in [blob + 1]])
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

    with error(AssertionError, rf"variable 'w' was made as float32\(2\) at {__file__}:\d+, it cannot be float32\(3\) here"):
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


def test_integer_variable_to_train(error):
    @flow.global_function()
    def job():
        return flow.get_variable("n", (2,), flow.int32, flow.ones_initializer(flow.int32))  # here

    with error(AssertionError, "variable 'n' is int32 and cannot be trained; say trainable=False"):
        job()


def test_integer_variable_that_is_not_trained_is_fine():
    @flow.global_function()
    def job():
        return flow.get_variable("n", (2,), flow.int32, flow.ones_initializer(flow.int32), trainable=False)

    assert job().get().tolist() == [1, 1]


# ----------------------------------------------------------------------------------------------------- losses


def test_loss_in_a_predict_job(error):
    @flow.global_function()
    def job():
        flow.losses.add_loss(weight())  # here

    with error(AssertionError, "job 'job' has no TrainConf when adding loss logical blob name 'w'.*predict job"):
        job()


def test_optimizer_in_a_predict_job(error):
    @flow.global_function()
    def job():
        sgd().minimize(weight())  # here

    with error(AssertionError, "job 'job' has no TrainConf when adding loss"):
        job()


def test_train_job_without_a_loss(error):
    @flow.global_function(type="train")  # here
    def job():
        weight() * 2

    with error(AssertionError, "Loss blob not found. Train job 'job' adds no loss"):
        job()


def test_loss_without_a_trainable_variable(error):
    @flow.global_function(type="train")  # here
    def job(x=flow.FixedTensorDef((2,))):
        weight() * 3
        sgd().minimize(x * weight("fixed", trainable=False))

    with error(AssertionError, "losses of train job 'job' depend on no trainable variable"):
        job(X)


def test_loss_that_has_no_gradient(error):
    @flow.global_function(type="train")
    def job():
        sgd().minimize(flow.cast(flow.math.argmax(weight("w", (1, 2))), flow.float32))  # here

    with error(AssertionError, "no gradient"):
        job()


def test_loss_added_twice(error):
    @flow.global_function(type="train")
    def job():
        loss = weight() * 2
        flow.losses.add_loss(loss)
        flow.losses.add_loss(loss)  # here

    with error(AssertionError, "was added to job 'job' before"):
        job()


@pytest.mark.parametrize("shape, dtype", [((3,), flow.float32), ((2,), flow.float64)])
def test_losses_of_different_shape_or_dtype(error, shape, dtype):
    @flow.global_function(type="train")
    def job():
        flow.losses.add_loss(weight() * 2)
        flow.losses.add_loss(weight("v", shape, dtype=dtype))  # here

    with error(AssertionError, r"losses of one job have one shape and dtype: .* float32\(2\)"):
        job()


@pytest.mark.parametrize("turned", [False, True])
def test_loss_computed_from_another_loss(error, turned):
    @flow.global_function(type="train")
    def job():
        first = weight() * 2
        losses = [first, first + 1]
        for loss in reversed(losses) if turned else losses:
            flow.losses.add_loss(loss)  # here

    with error(AssertionError, "one is computed from the other"):
        job()


def test_integer_loss(error):
    @flow.global_function(type="train")
    def job():
        flow.losses.add_loss(weight() > 0)  # here

    with error(AssertionError, r"a loss is a float blob, .* is int8\(2\)"):
        job()


@pytest.mark.parametrize("loss", [3.0, None, [1.0], X], ids=repr)
def test_loss_that_is_no_blob(error, loss):
    @flow.global_function(type="train")
    def job():
        sgd().minimize(loss)  # here

    with error(AssertionError, "minimize takes a blob"):
        job()


def test_no_loss_to_minimize(error):
    @flow.global_function(type="train")  # here
    def job():
        sgd().minimize([])

    with error(AssertionError, "Loss blob not found"):
        job()


def test_train_job_without_optimizer(error):
    @flow.global_function(type="train")  # here
    def job():
        flow.losses.add_loss(weight())

    with error(AssertionError, "train job 'job' has no optimizer: train.primary_lr is not set"):
        job()


def test_train_job_without_update_conf(error):
    config = flow.function_config()
    config.train.primary_lr(0.1)

    @flow.global_function(config)  # here
    def job():
        flow.losses.add_loss(weight())

    with error(AssertionError, "train job 'job' has no optimizer: train.model_update_conf is not set"):
        job()


def test_two_optimizers(error):
    @flow.global_function(type="train")
    def job():
        sgd().minimize(weight() * 2)
        sgd().minimize(weight() * 3)  # here

    with error(AssertionError, "job 'job' has an optimizer already; flow.optimizer.CombinedOptimizer"):
        job()


# ------------------------------------------------------------------------------------------------------- watch


def test_watch_diff_in_a_predict_job(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        flow.watch_diff(x, print)  # here

    with error(AssertionError, "job 'job' is a predict job and has no gradients"):
        job(X)


def test_watch_diff_of_an_integer(error):
    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2,), dtype=flow.int32)):
        flow.watch_diff(x, print)  # here

    with error(AssertionError, "is not a float blob and has no gradient"):
        job(X.astype(np.int32))


@pytest.mark.parametrize("what", [3, None, X], ids=repr)
def test_watch_of_something_else(error, what):
    @flow.global_function()
    def job():
        flow.watch(what, print)  # here

    with error(AssertionError, "flow.watch takes a blob"):
        job()


@pytest.mark.parametrize("what", [3, None, X], ids=repr)
def test_watch_diff_of_something_else(error, what):
    @flow.global_function(type="train")
    def job():
        flow.watch_diff(what, print)  # here

    with error(AssertionError, "flow.watch_diff takes a blob"):
        job()


def test_watch_handler_of_another_kind(error):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        flow.watch(x, 3)  # here

    with error(AssertionError, "a watch handler is a function, a prompt or None; got 3"):
        job(X)


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
    with error(AssertionError, r"a placement's hierarchy is a tuple with the extent of each axis, such as \(2, 4\); got "):
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


def test_a_gradient_that_no_loss_asks_for():
    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2,))):
        loss = flow.get_variable("w", (2,), initializer=flow.ones_initializer()) * x
        flow.watch_diff(x * 3)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)

    with pytest.raises(AssertionError, match="no loss of job 'job' depends on 'Multiply_1'"):
        job(np.ones(2, np.float32))


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
