"""Every form of decorator makes a job, and what the decorator decides."""

import sys

import numpy as np
import pytest
from small_jobs import array, train_config, value, weight

import oneflow as flow
import oneflow.typing as tp


def double(x=flow.FixedTensorDef((2,))):
    """Twice its input."""
    return x * 2


FORMS = {
    "function": lambda f: flow.function(f),
    "function()": lambda f: flow.function()(f),
    "function(config)": lambda f: flow.function(flow.function_config())(f),
    "global_function": lambda f: flow.global_function(f),
    "global_function()": lambda f: flow.global_function()(f),
    "global_function(config)": lambda f: flow.global_function(flow.FunctionConfig())(f),
    "global_function('predict')": lambda f: flow.global_function("predict")(f),
    "global_function(type=)": lambda f: flow.global_function(type="predict")(f),
    "global_function(type=, function_config=)": lambda f: flow.global_function(
        type="predict", function_config=flow.function_config()
    )(f),
    "global_function(function_config=)": lambda f: flow.global_function(function_config=flow.function_config())(f),
    "global_function('predict', config)": lambda f: flow.global_function("predict", flow.function_config())(f),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_decorator_form_makes_a_job(form):
    job = FORMS[form](double)
    np.testing.assert_array_equal(job(array(1, 2)).get(), [2, 4])
    assert (job.__name__, job.__doc__) == ("double", "Twice its input.")


def train_body():
    flow.losses.add_loss(weight())


TRAIN_FORMS = {
    "function(config)": lambda f: flow.function(train_config())(f),
    "global_function(config)": lambda f: flow.global_function(train_config())(f),
    "global_function('train', config)": lambda f: flow.global_function("train", train_config())(f),
    "global_function(type=, function_config=)": lambda f: flow.global_function(
        type="train", function_config=train_config()
    )(f),
    "global_function(function_config=)": lambda f: flow.global_function(function_config=train_config())(f),
}


@pytest.mark.parametrize("form", TRAIN_FORMS)
def test_every_train_form_trains(form):
    TRAIN_FORMS[form](train_body)()
    np.testing.assert_allclose(value(), [0.9])


def test_a_bare_function_is_a_train_job_when_its_body_sets_train():
    @flow.function
    def job(x=flow.input_blob_def((4,))):
        flow.config.train.primary_lr(0.1)
        flow.config.train.model_update_conf({"naive_conf": {}})
        flow.losses.add_loss(weight() * x)

    job(array(1, 2, 3, 4))
    np.testing.assert_allclose(value(), [0.75])


def test_an_explicit_type_wins_over_the_config():
    kinds = []

    @flow.global_function(type="predict", function_config=train_config())
    def job(x=flow.FixedTensorDef((1,))):
        kinds.append(flow.current_global_function_desc().IsTrainable())
        return x

    @flow.global_function(type="train")
    def other():
        kinds.append(flow.current_global_function_desc().IsTrainable())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(weight())

    job(array(1)).get()
    assert kinds == [False, True]


def test_the_single_client_name_is_the_same_api():
    import oneflow.compatible.single_client.typing as old_typing

    import oneflow.compatible.single_client as old
    from oneflow.compatible import single_client
    from oneflow.compatible.single_client import nn, optimizer

    assert old is single_client is sys.modules["oneflow.compatible.single_client"]
    assert all(getattr(old, name) is getattr(flow, name) for name in flow.__all__)
    assert (nn, optimizer, old_typing) == (flow.nn, flow.optimizer, tp)

    @old.global_function(type="train", function_config=old.FunctionConfig())
    def job(x: old_typing.Numpy.Placeholder((4,))) -> old_typing.Numpy:
        loss = weight() * x
        old.optimizer.SGD(old.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(loss)
        return loss

    np.testing.assert_array_equal(job(array(1, 2, 3, 4)), [1, 2, 3, 4])
    np.testing.assert_allclose(value(), [0.75])


@pytest.mark.parametrize(
    "name", [n for n in flow.__all__ if getattr(getattr(flow, n), "__name__", "") == f"oneflow.{n}"]
)
def test_every_namespace_can_be_imported_under_the_old_name(name):
    __import__("oneflow.compatible.single_client")
    __import__(f"oneflow.compatible.single_client.{name}")
    assert sys.modules[f"oneflow.compatible.single_client.{name}"] is getattr(flow, name)


def test_the_decorator_decides_the_gradient_at_the_largest_cross_entropy():
    def moved(decorator):
        flow.clear_default_session()
        config = flow.function_config()
        config.train.primary_lr(1.0)
        config.train.model_update_conf({"naive_conf": {}})

        @decorator(config)
        def job(x=flow.FixedTensorDef((1, 2)), y=flow.FixedTensorDef((1,), dtype=flow.int32)):
            w = flow.get_variable("w", (1, 2), initializer=flow.ones_initializer())
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, x * w)
            flow.losses.add_loss(loss)
            return loss

        loss = job(np.array([[0, 200]], np.float32), np.array([0], np.int32)).get()
        return round(float(loss), 4), flow.get_all_variables()["w"].numpy().tolist()

    assert moved(flow.function) == (46.0517, [[1, 1]])
    assert moved(flow.global_function) == (46.0517, [[1, 1 - 200]])
