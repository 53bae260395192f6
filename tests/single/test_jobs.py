"""The life of a job and its variables: when it is traced, what jobs share, and what is forgotten."""

import numpy as np
import pytest
from small_jobs import array, train_config, value, weight

import oneflow as flow

# ---------------------------------------------------------------------------------------------- the life of a job


def test_python_in_the_body_runs_once():
    calls = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        calls.append(len(calls))
        return x + len(calls)

    assert [job(array(0)).get().item() for _ in range(3)] == [1, 1, 1]
    assert calls == [0]


def test_a_job_that_is_never_called_still_has_its_variables():
    @flow.global_function()
    def called(x=flow.FixedTensorDef((1,))):
        return x

    @flow.global_function()
    def never():
        return weight(3.0, "only_here")

    called(array(1)).get()
    assert value("only_here").tolist() == [3]


@pytest.mark.parametrize(
    "trigger",
    [
        lambda path: flow.train.CheckPoint().init(),
        lambda path: flow.train.CheckPoint().save(path),
        lambda path: flow.checkpoint.save(path),
        lambda path: flow.get_all_variables(),
        lambda path: flow.load_variables({}),
    ],
    ids=["init", "save", "checkpoint.save", "get_all_variables", "load_variables"],
)
def test_what_starts_the_session(trigger, tmp_path, capsys):
    @flow.global_function()
    def job():
        print("traced")
        return weight()

    trigger(str(tmp_path / "saved"))
    assert capsys.readouterr().out == "traced\n"
    job().get()
    assert capsys.readouterr().out == ""


def test_a_job_may_be_defined_after_others_ran(capsys):
    @flow.global_function(train_config())
    def first():
        print("first")
        flow.losses.add_loss(weight())

    first()

    @flow.global_function()
    def later():
        print("later")
        return weight() + flow.get_variable("more", (1,), initializer=flow.constant_initializer(5))

    np.testing.assert_allclose(later().get(), [5.9])
    first()
    np.testing.assert_allclose(later().get(), [5.8])
    assert capsys.readouterr().out == "first\nlater\n"


def test_a_later_job_of_the_same_name_takes_the_place_of_the_first():
    def define(add):
        @flow.global_function()
        def job(x=flow.FixedTensorDef((1,))):
            return x + add

        return job

    old = define(1)
    new = define(2)
    assert new(array(0)).get() == 2
    with pytest.raises(AssertionError, match="'job'.*another definition"):
        old(array(0))
    newer = define(3)
    assert newer(array(0)).get() == 3


def test_a_job_that_fails_can_be_defined_again():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return flow.reshape(x, (3,))

    for _ in range(2):
        with pytest.raises(AssertionError, match="reshape"):
            job(array(1, 2))

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):  # noqa: F811
        return flow.reshape(x, (2, 1))

    assert job(array(1, 2)).get().shape == (2, 1)


def test_variables_are_shared_by_name():
    @flow.global_function(train_config())
    def one():
        flow.losses.add_loss(weight() * 1)

    @flow.global_function(train_config())
    def two():
        flow.losses.add_loss(weight() * 2)

    one()
    two()
    np.testing.assert_allclose(value(), [1 - 0.1 - 0.2])
    assert (value("System-Train-TrainStep-one"), value("System-Train-TrainStep-two")) == (1, 1)


def test_momentum_is_shared_by_train_jobs():
    def body():
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.5).minimize(weight() * 1)

    @flow.global_function(type="train")
    def one():
        body()

    @flow.global_function(type="train")
    def two():
        body()

    one()
    two()
    np.testing.assert_allclose([value("w-momentum"), value()], [[-0.15], [1 - 0.1 - 0.15]], rtol=1e-6)


def test_a_variable_asked_for_twice_is_one():
    @flow.global_function()
    def job():
        with flow.scope.namespace("n"):
            a = flow.get_variable("v", (2,), initializer=flow.random_normal_initializer())
            b = flow.get_variable("v", (2,), initializer=flow.random_normal_initializer())
            return a, b, flow.get_variable("v")

    a, b, c = job().get()
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
    assert list(flow.get_all_variables()) == ["n-v"]


def test_gradients_of_a_variable_used_twice_add_up():
    @flow.global_function(train_config(1.0))
    def job():
        w = weight(3.0)
        flow.losses.add_loss(w * 2 + weight(3.0) * w)

    job()
    np.testing.assert_allclose(value(), [3 - (2 + 6)])


def test_variables_off_the_way_to_the_loss_and_untrainable_ones_stay():
    config = train_config()
    config.train.model_update_conf({"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 0.5}})

    @flow.global_function(config)
    def job():
        fixed = flow.get_variable("fixed", (1,), initializer=flow.ones_initializer(), trainable=False)
        weight(name="unused") * 2
        flow.losses.add_loss(weight() * fixed)

    job()
    assert (value("fixed"), value("unused")) == (1, 1)
    np.testing.assert_allclose(value(), [1 - 0.1 * (1 + 0.5)])


def test_a_predict_job_changes_nothing():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((4, 3))):
        out = flow.layers.batch_normalization(x, name="bn")
        return flow.nn.dropout(flow.layers.dense(out, 2, name="dense"), rate=0.5)

    before = {name: v.numpy() for name, v in flow.get_all_variables().items()}
    for _ in range(2):
        job(np.random.default_rng(0).random((4, 3), np.float32)).get()
    after = {name: v.numpy() for name, v in flow.get_all_variables().items()}
    assert list(before) == list(after) and not any(name.startswith("System") for name in after)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_namespaces_prefix_variables_and_ops():
    names = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        with flow.scope.namespace("outer"):
            with flow.name_scope("inner"):
                y = flow.layers.dense(x, 2, name="fc")
            with flow.deprecated.variable_scope("other"):
                flow.get_variable("v", (1,), initializer=flow.zeros_initializer())
            names.append((y + 1).op_name)
        return y

    job(np.zeros((2, 3), np.float32)).get()
    assert set(flow.get_all_variables()) == {"outer-inner-fc-weight", "outer-inner-fc-bias", "outer-other-v"}
    assert names[0].startswith("outer-")


def test_automatic_names_are_the_same_in_train_and_evaluation():
    def model(x):
        x = flow.layers.dense(x, 4, kernel_initializer=flow.random_normal_initializer())
        x = flow.layers.batch_normalization(
            flow.layers.dense(x, 3, kernel_initializer=flow.random_normal_initializer())
        )
        return flow.layers.dense(x, 1)

    @flow.global_function(train_config())
    def train(x=flow.FixedTensorDef((5, 2))):
        extra = flow.nn.relu(x * 2) + 1
        flow.losses.add_loss(flow.reshape(model(extra), (5,)))

    @flow.global_function()
    def evaluate(x=flow.FixedTensorDef((5, 2))):
        return model(x)

    evaluate(np.ones((5, 2), np.float32)).get()
    made = {n for n in flow.get_all_variables() if not n.startswith("System")}
    assert {n for n in made if n.endswith("weight")} == {"Dense-weight", "Dense_1-weight", "Dense_2-weight"}
    assert len(made) == 3 * 2 + 4


def test_clearing_the_session_forgets_jobs_and_variables():
    @flow.global_function(train_config())
    def job():
        flow.losses.add_loss(weight())

    job()
    flow.clear_default_session()
    with pytest.raises(AssertionError, match="clear_default_session"):
        job()

    @flow.global_function(train_config())
    def job():  # noqa: F811
        flow.losses.add_loss(weight(7.0))

    assert value().tolist() == [7]
    job()
    np.testing.assert_allclose(value(), [6.9])


def test_first_values_are_the_same_in_every_session_and_differ_by_name():
    def draw():
        flow.clear_default_session()

        @flow.global_function()
        def job():
            normal = flow.random_normal_initializer()
            return [flow.get_variable(name, (50,), initializer=normal) for name in "ab"]

        return job().get()

    (a, b), (c, d) = draw(), draw()
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(b, d)
    assert not np.array_equal(a, b)


def test_init_draws_anew_once_the_jobs_ran():
    @flow.global_function()
    def job():
        normal = flow.random_normal_initializer()
        return flow.get_variable("free", (20,), initializer=normal), flow.get_variable(
            "seeded", (20,), initializer=normal, random_seed=3
        )

    free, seeded = job().get()
    flow.train.CheckPoint().init()
    again, seeded_again = job().get()
    assert not np.array_equal(free, again)
    np.testing.assert_array_equal(seeded, seeded_again)


def test_sync_returns():
    assert flow.sync_default_session() is None


def test_a_variable_may_be_read_before_it_is_assigned_in_a_train_job():
    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        average = flow.get_variable("average", (2,), initializer=flow.ones_initializer(), trainable=False)
        loss = average * w * x
        flow.assign(average, average * 0.5)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [2.0]), momentum=0).minimize(loss)
        return flow.identity(average)

    assert job(array(1, 3)).get().tolist() == [1, 1]
    found = flow.get_all_variables()
    assert found["w"].numpy().tolist() == [0, -2] and found["average"].numpy().tolist() == [0.5, 0.5]


def test_a_job_defined_in_the_body_of_another_is_part_of_it():
    @flow.global_function()
    def outer(x=flow.FixedTensorDef((2,))):
        @flow.global_function()
        def inner(y):
            return y * 2

        return inner(x) + 1

    assert outer(array(1, 2)).get().tolist() == [3, 5]


# ------------------------------------------------------------------------------------------- training and evaluation


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_predict_call_sees_the_variables_as_all_earlier_train_calls_left_them(micro_batches):
    config = train_config(0.1)
    config.train.num_gradient_accumulation_steps(micro_batches)

    @flow.global_function(type="train", function_config=config)
    def train(x=flow.FixedTensorDef((2,))):
        flow.losses.add_loss(weight() * x)

    @flow.global_function()
    def predict(x=flow.FixedTensorDef((1,))):
        return flow.math.exp(weight()) * x  # what is made of variables alone is kept from call to call

    expected, one = 1.0, array(1.0)
    for call in range(3):
        for _ in range(call):
            train(np.tile(array(1.0, 3.0), micro_batches))
            expected -= 0.1 * 2.0
        for _ in range(2):
            np.testing.assert_allclose(predict(one).get(), np.exp([expected]), rtol=1e-5)
