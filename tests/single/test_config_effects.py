"""What the members of ``flow.function_config()`` and ``flow.config`` that have an effect do."""

import copy

import numpy as np
import pytest
from config_members import X, line_of

import oneflow as flow


def test_default_data_type():
    config = flow.function_config()
    config.default_data_type(flow.double)

    @flow.global_function(config)
    def job():
        return flow.get_variable("w", (1,), initializer=flow.ones_initializer())

    assert job().get().dtype == np.float64


def test_default_initializer():
    config = flow.function_config()
    config.default_initializer_conf({"constant_conf": {"value": 4.0}})

    @flow.global_function(config)
    def job():
        return flow.get_variable("w", (1,)), flow.get_variable("v", (1,), initializer=flow.ones_initializer())

    w, v = job().get()
    assert (w, v) == (4, 1)


def test_touching_train_makes_a_train_job():
    seen = []

    def body():
        seen.append(flow.current_global_function_desc().IsTrainable())

    config = flow.function_config()
    config.train.loss_scale_factor(1)

    @flow.global_function(config)
    def trains():
        body()
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(
            flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        )

    config = flow.function_config()
    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def predicts():
        body()

    flow.train.CheckPoint().init()
    assert seen == [True, False]


def test_a_config_is_copied_when_a_job_is_decorated():
    conf = {"momentum_conf": {"beta": 0.9}}
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf(conf)

    @flow.global_function(config)
    def job():
        flow.losses.add_loss(flow.get_variable("w", (1,), initializer=flow.ones_initializer()))

    config.train.primary_lr(100.0)
    config.train.model_update_conf({"adam_conf": {}})
    conf["momentum_conf"]["beta"] = 0.0
    for _ in range(2):
        job()
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [1 - 0.1 - 0.19], rtol=1e-6)


def test_one_config_serves_several_jobs():
    config = flow.function_config()
    config.default_data_type(flow.float64)

    @flow.global_function(config)
    def first():
        return flow.get_variable("a", (1,), initializer=flow.ones_initializer())

    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def second():
        return flow.get_variable("b", (1,), initializer=flow.ones_initializer())

    assert (first().get().dtype, second().get().dtype) == (np.float64, np.float32)


def test_a_config_can_be_copied():
    config = flow.function_config()
    config.default_data_type(flow.float64)
    twin = copy.deepcopy(config)
    twin.train.primary_lr(0.1)

    @flow.global_function(config)
    def job():
        assert not flow.current_global_function_desc().IsTrainable()
        return flow.get_variable("w", (1,), initializer=flow.ones_initializer())

    assert job().get().dtype == np.float64


def test_settings_in_the_body_come_before_its_first_op():
    @flow.function
    def job(x=flow.input_blob_def((2,))):
        y = x * 2
        flow.config.train.primary_lr(0.1)  # here
        return y

    with pytest.raises(
        AssertionError, match="flow.config.train.primary_lr comes after the first op of job 'job'"
    ) as caught:
        job(X)
    assert str(caught.value).startswith(line_of(test_settings_in_the_body_come_before_its_first_op))


def test_settings_in_the_body_are_that_job_s_alone():
    @flow.function
    def job(x=flow.input_blob_def((1,))):
        flow.config.default_data_type(flow.float64)
        flow.config.default_initializer_conf({"constant_conf": {"value": 2.0}})
        return flow.get_variable("w", (1,))

    @flow.function
    def other(x=flow.input_blob_def((1,))):
        return flow.get_variable("v", (1,), initializer=flow.ones_initializer())

    assert (job(X[:1]).get().dtype, other(X[:1]).get().dtype) == (np.float64, np.float32)


def test_settings_outside_any_job_are_the_default_of_all():
    @flow.function
    def before():
        return flow.get_variable("a", (1,))

    flow.config.default_data_type(flow.float64)
    flow.config.default_initializer_conf({"constant_conf": {"value": 3.0}})
    config = flow.function_config()
    config.default_data_type(flow.float32)

    @flow.global_function(config)
    def own():
        return flow.get_variable("b", (1,))

    a, b = before().get(), own().get()
    assert (a.dtype, a.item()) == (np.float64, 3)
    assert (b.dtype, b.item()) == (np.float32, 3)


def test_device_numbers_may_be_set_after_the_jobs_are_defined():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x

    flow.config.cpu_device_num(1)
    job(X).get()


def test_a_gpu_placement_without_a_gpu_runs_on_the_cpu_and_says_so_once(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    flow.config.gpu_device_num(1)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        with flow.scope.placement("gpu", "0:0"):
            return x * 2 + 1

    for _ in range(2):
        assert job(X).get().tolist() == [1, 1]
    flow.config.gpu_device_num(0)
    assert capsys.readouterr().err.count("no GPU on this machine") == 1


def test_views():
    seen = []
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(config)
    def job(x=flow.MirroredTensorDef((2,))):
        seen.append(flow.scope.mirrored_view_enabled())
        with flow.scope.consistent_view():
            seen.append(flow.scope.mirrored_view_enabled())
        seen.append(flow.distribute.mirrored_strategy_enabled())
        return x

    job([X]).get()
    assert seen == [True, False, True]


def test_random_seed_of_a_job_changes_its_dropout():
    def mask(seed):
        flow.clear_default_session()
        config = flow.function_config()
        config.train.primary_lr(0.0)
        config.train.model_update_conf({"naive_conf": {}})
        config.random_seed(seed)

        @flow.global_function(config)
        def job(x=flow.FixedTensorDef((100,))):
            out = flow.nn.dropout(x * flow.get_variable("w", (1,), initializer=flow.ones_initializer()), rate=0.5)
            flow.losses.add_loss(out)
            return out

        return job(np.ones(100, np.float32)).get()

    first, again, other = mask(1), mask(1), mask(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
