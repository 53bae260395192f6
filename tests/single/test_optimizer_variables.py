"""Several optimizers in a job, some variables or rows only, and rates that the job computes."""

import numpy as np
import pytest
from optimizer_cases import (
    FIRST,
    GRADIENTS,
    SHAPES,
    adam,
    check,
    clip,
    constant,
    cosine,
    expected,
    momentum,
    naive,
    objective,
    rate,
    run,
    variables,
)

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError

opt = flow.optimizer


def test_combined_optimizers():
    def make():
        clipping = opt.grad_clipping.by_global_norm(0.5)
        first = opt.SGDW(cosine(), weight_decay=0.3, grad_clipping=clipping, variables=["fc-weight"])
        second = opt.Adam(constant(0.01), variables=lambda: ["fc-bias"])
        return opt.CombinedOptimizer([first, second])

    alone = [{name: g for name, g in gradient.items() if name == "fc-weight"} for gradient in GRADIENTS]
    clipped = [gradient | one for gradient, one in zip(GRADIENTS, clip(alone, 0.5, False))]
    weight = {
        n: v for n, v in expected(momentum, {"fc-weight": 0.3}, gradients=clipped).items() if n.startswith("fc-weight")
    }
    bias = {n: v for n, v in expected(adam, rates={"fc-bias": lambda t: 0.01}).items() if n.startswith("fc-bias")}
    check(run(make), weight | bias)


def test_combined_optimizers_with_a_loss_scale():
    def make(**more):
        return lambda: opt.CombinedOptimizer(
            [opt.SGD(cosine(), variables=["fc-weight"]), opt.SGD(cosine(), variables=["fc-bias"])], **more
        )

    for more in ({"loss_scale_factor": 64}, {"loss_scale_policy": opt.loss_scale.dynamic_loss_scale(64.0)}):
        got = {name: value for name, value in run(make(**more)).items() if "LossScale" not in name}
        check(got, expected(momentum))


def test_a_variable_named_by_two_optimizers():
    def make():
        return opt.CombinedOptimizer([opt.SGD(cosine(), variables=names) for names in (["fc-bias"], list(SHAPES))])

    with pytest.raises(AssertionError, match="variable 'fc-bias' is named by 2 optimizers"):
        run(make)


def test_combined_optimizers_name_their_variables():
    with pytest.raises(AssertionError, match="each name their variables="):
        opt.CombinedOptimizer([opt.SGD(cosine())])
    with pytest.raises(AssertionError, match="each name their variables="):
        opt.CombinedOptimizer([])


def test_the_loss_scale_of_combined_optimizers_is_given_to_them_together():
    part = opt.SGD(cosine(), variables=["fc-bias"], loss_scale_factor=8)
    with pytest.raises(AssertionError, match="loss scale"):
        opt.CombinedOptimizer([part])


def test_only_the_named_variables_are_updated():
    got = run(lambda: opt.SGD(cosine(), variables=["fc-weight"]))
    want = expected(momentum)
    want["fc-bias"] = FIRST["fc-bias"]
    del want["fc-bias-momentum"]
    check(got, want)


@pytest.mark.parametrize("names", ["fc-weight", ("fc-weight",), lambda: "fc-weight", lambda: iter(["fc-weight"])])
def test_forms_of_variable_names(names):
    got = run(lambda: opt.SGD(cosine(), momentum=0, variables=names))
    check(got, expected(naive) | {"fc-bias": FIRST["fc-bias"]})


def test_an_unknown_variable_is_named():
    with pytest.raises(AssertionError, match="'fc-wieght'.*Did you mean 'fc-weight'"):
        run(lambda: opt.SGD(cosine(), variables=["fc-wieght", "fc-bias"]))


# --------------------------------------------------------------------------------------------------- custom schedules


def custom(make, rates) -> dict[str, np.ndarray]:
    @flow.global_function(type="train")
    def job(gw=flow.FixedTensorDef((3, 2)), gb=flow.FixedTensorDef((2,)), lr=flow.FixedTensorDef((1,))):
        halved = lr * 0.5
        make(opt.CustomScheduler(halved.logical_blob_name)).minimize(objective(variables(), gw, gb))

    for t, gradient in enumerate(GRADIENTS):
        job(
            gradient["fc-weight"].astype(np.float32),
            gradient["fc-bias"].astype(np.float32),
            np.array([2 * rates(t)], np.float32),
        )
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def test_a_rate_that_the_job_computes():
    check(custom(lambda scheduler: opt.SGD(scheduler), rate), expected(momentum))


def test_a_rate_that_the_job_computes_and_bias_correction():
    with pytest.raises(NotImplementedError, match="CustomScheduler.*bias correction"):
        custom(lambda scheduler: opt.Adam(scheduler, do_bias_correction=True), rate)


def test_a_rate_that_no_op_computes():
    @flow.global_function(type="train")
    def job():
        opt.SGD(opt.CustomScheduler("nothing/out")).minimize(
            flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        )

    with pytest.raises(AssertionError, match="job 'job' has no blob 'nothing/out'"):
        job()


# -------------------------------------------------------------------------------------------------------- rows in use


def test_row_wise_updates_leave_rows_without_a_gradient_alone():
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"adam_conf": {}})
    config.indexed_slices_optimizer_conf({"enable": True, "include_op_names": {"op_name": ["table"]}})

    @flow.global_function(config)
    def train(rows=flow.FixedTensorDef((2,), dtype=flow.int32)):
        table = flow.get_variable("table", (4, 3), initializer=flow.ones_initializer())
        flow.losses.add_loss(flow.math.reduce_sum(flow.gather(table, rows)))

    w, m, v = np.ones((4, 3)), np.zeros((4, 3)), np.zeros((4, 3))
    for rows in ([0, 2], [2, 2], [3, 0]):
        train(np.array(rows, np.int32))
        g = np.zeros((4, 3))
        np.add.at(g, rows, 1.0)
        used = sorted(set(rows))
        m[used] = 0.9 * m[used] + 0.1 * g[used]
        v[used] = 0.999 * v[used] + 0.001 * g[used] ** 2
        w[used] -= 0.1 * m[used] / (np.sqrt(v[used]) + 1e-8)
    found = flow.get_all_variables()
    np.testing.assert_allclose(found["table"].numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(found["table-m"].numpy(), m, rtol=1e-5)


def test_a_row_wise_configuration_of_another_form_is_refused():
    config = flow.function_config()
    with pytest.raises(ArgumentError, match="indexed_slices_optimizer_conf takes"):
        config.indexed_slices_optimizer_conf({"enable": True, "names": ["table"]})
    with pytest.raises(ArgumentError, match="indexed_slices_optimizer_conf takes"):
        config.indexed_slices_optimizer_conf({"include_op_names": ["table"]})


def test_optimizers_may_share_a_blob_as_their_rate() -> None:
    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2,)), lr=flow.FixedTensorDef((1,))):
        a = flow.get_variable("a", (2,), initializer=flow.ones_initializer())
        b = flow.get_variable("b", (2,), initializer=flow.ones_initializer())
        halved = flow.math.reduce_sum(lr * 0.5)
        members = [opt.SGD(opt.CustomScheduler(halved.logical_blob_name), variables=[name]) for name in ("a", "b")]
        opt.CombinedOptimizer(members).minimize(flow.math.reduce_sum((a + b) * x))
        return halved

    job(np.ones(2, np.float32), np.array([0.5], np.float32))
    values = flow.get_all_variables()
    assert values["a"].numpy().tolist() == values["b"].numpy().tolist() == [0.75, 0.75]
