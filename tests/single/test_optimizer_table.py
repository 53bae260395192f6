"""Every row of the table of optimizers, on one device, in both forms, against the formulas written out in numpy."""

import numpy as np
import pytest
from optimizer_cases import (
    CASES,
    DECAY,
    FIRST,
    GRADIENTS,
    ROWS,
    SHAPES,
    Case,
    Given,
    cases,
    check,
    clip,
    constant,
    cosine,
    expected,
    run,
)

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ops.updates.rows import UpdateRow

ALL = cases()
DECAYING = {name: case for name, case in ALL.items() if case.decays}
BOTH, ONLY_WEIGHT = dict.fromkeys(SHAPES, 0.3), {"fc-weight": 0.3}
L2 = {"fc-weight": 0.2, "fc-bias": 0.1}
REGULARIZERS = {"weight": flow.regularizers.l2(0.2), "bias": flow.regularizers.l2(0.1)}


def regularized(case: Case, **more) -> dict[str, np.ndarray]:
    """The formula on g + l2 * w; the variable is told by its shape."""
    factors = {shape: L2[name] for name, shape in SHAPES.items()}
    return expected(
        lambda w, g, *rest, **numbers: case.formula(w, g + factors[w.shape] * w, *rest, **numbers),
        **more,
        **case.numbers,
    )


# ------------------------------------------------------------------------------------------------ the table itself


def test_every_optimizer_has_a_row_and_every_row_cases():
    public = {
        value
        for value in vars(flow.optimizer).values()
        if isinstance(value, type) and issubclass(value, flow.optimizer.Optimizer)
    }
    assert {row.make for row in ROWS.values()} == public - {flow.optimizer.Optimizer, flow.optimizer.CombinedOptimizer}
    assert list(ROWS) == list(CASES)


@pytest.mark.parametrize("name", ROWS)
def test_the_cases_of_a_row_go_through_all_it_says(name):
    row = ROWS[name]
    made = [case.make(constant(0.1)) for case in CASES[name].values()]
    assert all(type(optimizer) is row.make for optimizer in made)
    assert {optimizer.row.name for optimizer in made} == {chosen.name for chosen in row.updates}
    assert {form.key for form in row.forms} <= {key for case in CASES[name].values() for key in case.conf or {}}


def test_an_update_that_says_nothing_may_not_be_taken_apart():
    row = UpdateRow(lambda params, grads, lr: None)
    assert not (
        row.may_be_cut
        or row.may_be_split
        or row.may_be_row_wise
        or row.may_be_by_rows
        or row.takes_norms
        or row.adds_l2_at(0.0)
    )
    assert row.states == ()


@pytest.mark.parametrize(
    "columns, pattern",
    [
        ({"sees": "norms"}, "takes norms= if and only if its row says sees='norms'"),
        ({"sees": "element", "adds_l2": "always"}, "takes l2= if and only if its row says adds_l2="),
        ({"row_wise": True}, "is done row-wise for one variable at a time; its row says what it sees= of one"),
    ],
)
def test_rows_that_do_not_fit_their_function(columns, pattern):
    with pytest.raises(ArgumentError, match=pattern):
        UpdateRow(lambda params, grads, lr: None, **columns)
    with pytest.raises(ArgumentError, match="takes norms= if and only if"):
        UpdateRow(lambda params, grads, lr, *, norms: None)


# ---------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("name", ALL)
def test_optimizer(name):
    case = ALL[name]
    check(run(lambda: case.make(cosine())), expected(case.formula, **case.numbers))


@pytest.mark.parametrize("name", [name for name, case in ALL.items() if case.conf is not None])
def test_optimizer_in_dictionary_form(name):
    case = ALL[name]
    check(run(conf=case.conf | DECAY), expected(case.formula, **case.numbers))


@pytest.mark.parametrize("name", ALL)
def test_l2_in_the_update_or_before_it(name):
    case = ALL[name]
    check(run(lambda: case.make(cosine()), **REGULARIZERS), regularized(case))
    if case.decays:
        check(run(lambda: case.make(cosine(), weight_decay=0.3), **REGULARIZERS), regularized(case, decays=BOTH))


@pytest.mark.parametrize("name", ALL)
def test_clipped_gradients(name):
    case = ALL[name]
    clipping = flow.optimizer.grad_clipping.by_global_norm(0.5)
    want = expected(case.formula, gradients=clip(GRADIENTS, 0.5, False), **case.numbers)
    check(run(lambda: case.make(cosine(), grad_clipping=clipping)), want)


@pytest.mark.parametrize("name", ALL)
def test_accumulated_gradients(name):
    """Each step's gradient comes in two halves, whose mean it is."""
    case = ALL[name]
    flow.clear_default_session()
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(g=flow.FixedTensorDef((1, 3, 2))):
        w = flow.get_variable("fc-weight", (3, 2), initializer=Given(FIRST["fc-weight"]))
        case.make(cosine()).minimize(flow.math.reduce_sum(w * flow.squeeze(g, [0])))

    for gradient in GRADIENTS:
        g = gradient["fc-weight"]
        job(np.stack([g + 1.5, g - 1.5]).astype(np.float32))
    want = expected(case.formula, first={"fc-weight": FIRST["fc-weight"]}, **case.numbers)
    check({name: value.numpy() for name, value in flow.get_all_variables().items()}, want)


@pytest.mark.parametrize("name", DECAYING)
def test_weight_decay(name):
    case = DECAYING[name]
    want = expected(case.formula, BOTH, **case.numbers)
    check(run(lambda: case.make(cosine(), weight_decay=0.3)), want)
    if case.conf is not None:
        check(run(conf=case.conf | DECAY | {"weight_decay_conf": {"weight_decay_rate": 0.3}}), want)


@pytest.mark.parametrize("name", DECAYING)
def test_weight_decay_of_some_variables(name):
    case = DECAYING[name]
    want = expected(case.formula, ONLY_WEIGHT, **case.numbers)
    make = lambda **more: lambda: case.make(cosine(), weight_decay=0.3, **more)  # noqa: E731
    check(run(make(weight_decay_includes="weight")), want)
    check(run(make(weight_decay_includes=["nothing", "^fc-w"])), want)
    check(run(make(weight_decay_excludes=["bias$", "beta"])), want)
    if case.conf is not None:
        rates = {"weight_decay_rate": 0.3}
        check(run(conf=case.conf | DECAY | {"weight_decay_conf": rates | {"includes": {"pattern": ["weight"]}}}), want)
        check(run(conf=case.conf | DECAY | {"weight_decay_conf": rates | {"excludes": {"pattern": ["bias"]}}}), want)


@pytest.mark.parametrize("key", [form.key for row in ROWS.values() for form in row.forms if not form.decays])
def test_dictionary_forms_without_weight_decay(key):
    with pytest.raises(AssertionError, match=f"{key} has no weight decay"):
        run(conf={key: {}, "weight_decay_conf": {"weight_decay_rate": 0.1}})


@pytest.mark.parametrize("name", ALL)
def test_a_weight_or_gradient_of_zero(name):
    """Ratios of norms have a meaning there too."""
    case = ALL[name]
    gradients = [{name: np.zeros(shape) for name, shape in SHAPES.items()}, *GRADIENTS[:2]]
    check(
        run(lambda: case.make(cosine()), gradients=gradients),
        expected(case.formula, gradients=gradients, **case.numbers),
    )


@pytest.mark.parametrize("name", ALL)
def test_a_gradient_may_lie_in_memory_otherwise_than_its_variable(name):
    """Behind a transpose it does; the fused kernels of torch would take it as it lies."""

    def trained(transposed: bool) -> np.ndarray:
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((12,))):
            w = flow.get_variable("w", (4, 3) if transposed else (3, 4), initializer=flow.ones_initializer())
            flat = flow.reshape(flow.transpose(w, (1, 0)) if transposed else w, (12,))
            ALL[name].make(constant(0.1)).minimize(flow.math.square(flat * x))

        for _ in range(2):
            job(np.arange(12, dtype=np.float32))
        return flow.get_all_variables()["w"].numpy()

    np.testing.assert_allclose(trained(True).T, trained(False), 1e-6)
