"""Mistakes with losses, optimizers and watches: the exception's type, its message, and the user's own line, marked with
``# here``."""

import pytest
from wrong_jobs import X, sgd, weight

import oneflow as flow

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
