"""Job functions: every form of decorator, inputs, results, and the life of a job and its variables."""

import sys
from collections import OrderedDict
from typing import Dict, Tuple

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.job.result import ResultArray


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def train_config(lr: float = 0.1) -> flow.FunctionConfig:
    made = flow.function_config()
    made.train.primary_lr(lr)
    made.train.model_update_conf({"naive_conf": {}})
    return made


def weight(init: float = 1.0, name: str = "w"):
    return flow.get_variable(name, (1,), initializer=flow.constant_initializer(init))


def value(name: str = "w") -> np.ndarray:
    return flow.get_all_variables()[name].numpy()


# ---------------------------------------------------------------------------------------------------- decorators


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
    "global_function(type=, function_config=)": lambda f: flow.global_function(type="predict", function_config=flow.function_config())(f),
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
    "global_function(type=, function_config=)": lambda f: flow.global_function(type="train", function_config=train_config())(f),
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
    import oneflow.compatible.single_client as old
    import oneflow.compatible.single_client.typing as old_typing
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


@pytest.mark.parametrize("name", [n for n in flow.__all__ if getattr(getattr(flow, n), "__name__", "") == f"oneflow.{n}"])
def test_every_namespace_can_be_imported_under_the_old_name(name):
    __import__("oneflow.compatible.single_client")
    __import__(f"oneflow.compatible.single_client.{name}")
    assert sys.modules[f"oneflow.compatible.single_client.{name}"] is getattr(flow, name)


# -------------------------------------------------------------------------------------------------------- inputs


DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_of_every_dtype_come_back_as_they_were(dtype):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((3,), dtype=getattr(flow, dtype))):
        assert (x.shape, x.static_shape, x.dtype) == ((3,), (3,), getattr(flow, dtype))
        return x

    fed = np.array([1, 2, 3], dtype)
    result = job(fed).get()
    assert result.dtype == fed.dtype
    np.testing.assert_array_equal(result, fed)


def test_char_is_one_signed_byte():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,), dtype=flow.char)):
        return x

    assert job(np.array([-1, 2], np.byte)).get().tolist() == [-1, 2]


def test_arrays_of_any_memory_layout():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return x + 0

    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    fixed = base.copy()
    fixed.flags.writeable = False
    for fed in (base, np.asfortranarray(base), base[::-1], base[:, ::-1], np.repeat(base, 2, axis=1)[:, ::2], fixed):
        np.testing.assert_array_equal(job(fed).get(), fed)


def test_keyword_arguments():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,)), y=flow.FixedTensorDef((1,))):
        return x - y

    assert job(y=array(1), x=array(5)).get() == 4
    assert job(array(5), y=array(1)).get() == 4


def test_several_inputs_keep_their_order_and_use():
    @flow.global_function()
    def job(a=flow.FixedTensorDef((1,)), unused=flow.FixedTensorDef((7,)), b=flow.FixedTensorDef((1,), dtype=flow.int32)):
        return b, a

    b, a = job(array(1.5), np.zeros(7, np.float32), np.array([9], np.int32)).get()
    assert (b.tolist(), a.tolist()) == ([9], [1.5])


def test_mirrored_inputs_may_be_smaller_and_are_compiled_again():
    bodies = []

    @flow.global_function()
    def job(x=flow.MirroredTensorDef((4, 2))):
        bodies.append(x.is_dynamic)
        return flow.math.reduce_sum(x, axis=1)

    for rows in (4, 2, 4, 1):
        fed = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(job([fed]).get(), fed.sum(1))
    assert job((np.ones((3, 2), np.float32),)).get().numpy_list()[0].tolist() == [2, 2, 2]
    assert bodies == [True]


def test_a_smaller_batch_divides_the_gradient_by_its_own_size():
    @flow.global_function(train_config())
    def job(x=flow.MirroredTensorDef((4,))):
        flow.losses.add_loss(weight() * x)

    job([array(1, 3)])
    np.testing.assert_allclose(value(), [1 - 0.1 * 2])
    job([array(1, 2, 3, 6)])
    np.testing.assert_allclose(value(), [1 - 0.1 * 2 - 0.1 * 3])


def test_a_mirrored_list_is_put_together():
    @flow.global_function()
    def job(x=flow.MirroredTensorListDef((6, 2))):
        return x + 1

    parts = [np.full((n, 2), n, np.float32) for n in (1, 2)]
    np.testing.assert_array_equal(job([parts]).get(), np.concatenate(parts) + 1)


def test_input_blob_def_fixed_and_dynamic():
    @flow.global_function()
    def job(x=flow.input_blob_def((4,), is_dynamic=True), y=flow.input_blob_def((2,), dtype=flow.int32)):
        return x * 2, y

    x, y = job(array(1, 2), np.array([3, 4], np.int32)).get()
    assert (x.tolist(), y.tolist()) == ([2, 4], [3, 4])


def test_placeholders():
    @flow.global_function()
    def job(
        x: tp.Numpy.Placeholder((2,)),
        y: tp.ListNumpy.Placeholder((3,), dtype=flow.int32),
        z: tp.ListListNumpy.Placeholder((4,)),
        pair: Tuple[tp.Numpy.Placeholder((1,)), tp.Numpy.Placeholder((1,))],
    ):
        return x, y, z, pair[0] - pair[1]

    x, y, z, difference = job(array(1, 2), [np.array([7], np.int32)], [[array(3), array(4)]], (array(5), array(1))).get()
    assert [x.tolist(), y.tolist(), z.tolist(), difference.tolist()] == [[1, 2], [7], [3, 4], [4]]


def test_nested_input_structures():
    one = flow.FixedTensorDef((1,))

    @flow.global_function()
    def job(tree={"a": one, "rest": [one, (one, one)]}, pair=(one, one)):  # noqa: B006
        assert isinstance(tree["rest"], list) and isinstance(tree["rest"][1], tuple)
        return tree["a"] + 10 * tree["rest"][0] + 100 * tree["rest"][1][0] + 1000 * tree["rest"][1][1] + pair[0] * pair[1]

    fed = {"rest": (array(2), [array(3), array(4)]), "a": array(1)}
    assert job(fed, [array(2), array(0.5)]).get() == 4322


def test_batch_axis_may_be_negative_or_none():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3), batch_axis=-1), y=flow.FixedTensorDef((1,), batch_axis=None)):
        assert (x.batch_axis, y.batch_axis) == (1, None)
        return x + y

    np.testing.assert_array_equal(job(np.zeros((2, 3), np.float32), array(1)).get(), np.ones((2, 3)))


def test_what_is_done_to_an_array_after_the_call_has_no_effect():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return x, flow.reshape(x, (3, 2)), flow.transpose(x, (1, 0)), x + 0

    fed = np.arange(6, dtype=np.float32).reshape(2, 3)
    kept = fed.copy()
    future = job(fed)
    fed[:] = -1
    same, shaped, turned, added = future.get()
    for got, expected in [(same, kept), (shaped, kept.reshape(3, 2)), (turned, kept.T), (added, kept)]:
        np.testing.assert_array_equal(got, expected)
    same[:] = -2
    np.testing.assert_array_equal(shaped, kept.reshape(3, 2))
    assert (fed == -1).all()


def test_results_do_not_change_when_the_variable_does():
    @flow.global_function(train_config())
    def job():
        w = weight()
        flow.losses.add_loss(w * 1)
        return w, flow.reshape(w, (1, 1))

    plain, shaped = job().get()
    job()
    assert (plain.item(), shaped.item()) == (1, 1)
    plain[:] = 50
    np.testing.assert_allclose(value(), [0.8])


# ------------------------------------------------------------------------------------------------------- results


def test_a_job_without_results():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        x + 1

    assert job(array(1)) is None


def test_containers_come_back_as_they_were_returned():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return {"z": x, "a": [x + 1, (x + 2, {"deep": x + 3})]}, [], (x + 4,)

    first, empty, last = job(array(0)).get()
    assert list(first) == ["z", "a"]
    assert isinstance(first["a"], list) and isinstance(first["a"][1], tuple)
    leaves = [first["z"], first["a"][0], first["a"][1][0], first["a"][1][1]["deep"], last[0]]
    assert [leaf.item() for leaf in leaves] == [0, 1, 2, 3, 4]
    assert empty == [] and isinstance(last, tuple)


@pytest.mark.parametrize("container", [tuple, list], ids=["tuple", "list"])
def test_a_flat_sequence_of_results(container):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return container([x, x + 1, x])

    result = job(array(3)).get()
    assert type(result) is container
    assert [r.item() for r in result] == [3, 4, 3]


def test_an_ordered_dict_of_results():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return OrderedDict(b=x, a=x * 2)

    result = job(array(3)).get()
    assert [(k, v.item()) for k, v in result.items()] == [("b", 3), ("a", 6)]


def test_async_get_has_called_back_when_it_returns():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return x * 2

    seen = []
    for i in range(5):
        assert job(array(i)).async_get(lambda result: seen.append(result.item())) is None
    assert seen == [0, 2, 4, 6, 8]


def test_accuracy_right_after_a_loop_of_async_get_is_complete():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((10, 4)), labels=flow.FixedTensorDef((10,), dtype=flow.int32)):
        return labels, x

    right = total = 0

    def count(results):
        nonlocal right, total
        labels, logits = results
        right += np.sum(np.argmax(logits.ndarray(), 1) == labels.ndarray())
        total += labels.shape[0]

    rng = np.random.default_rng(0)
    expected = 0
    for _ in range(7):
        x, labels = rng.random((10, 4), np.float32), rng.integers(0, 4, 10, np.int32)
        expected += (x.argmax(1) == labels).sum()
        job(x, labels).async_get(count)
    assert (right, total) == (expected, 70)


def test_annotated_returns():
    @flow.global_function()
    def one(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x + 1

    @flow.global_function()
    def listed(x: tp.Numpy.Placeholder((2,))) -> tp.ListNumpy:
        return x + 2

    @flow.global_function()
    def lists(x: tp.Numpy.Placeholder((2,))) -> tp.ListListNumpy:
        return x + 3

    @flow.global_function()
    def nothing(x: tp.Numpy.Placeholder((2,))) -> None:
        x + 4

    @flow.global_function()
    def pair(x: tp.Numpy.Placeholder((2,))) -> Tuple[tp.Numpy, Tuple[tp.ListNumpy, tp.Numpy]]:
        return x, (x + 1, x + 2)

    @flow.global_function()
    def named(x: tp.Numpy.Placeholder((2,))) -> Dict[str, tp.Numpy]:
        return {"a": x, "b": x + 1}

    @flow.global_function()
    def bundle(x: tp.Numpy.Placeholder((2,))) -> tp.Bundle:
        return {"a": [x, (x + 1,)]}

    x = array(0, 1)
    assert isinstance(one(x), np.ndarray) and one(x).tolist() == [1, 2]
    assert [type(a) for a in listed(x)] == [np.ndarray] and listed(x)[0].tolist() == [2, 3]
    assert lists(x)[0][0].tolist() == [3, 4]
    assert nothing(x) is None
    first, (second, third) = pair(x)
    assert [first.tolist(), second[0].tolist(), third.tolist()] == [[0, 1], [1, 2], [2, 3]]
    assert {k: v.tolist() for k, v in named(x).items()} == {"a": [0, 1], "b": [1, 2]}
    assert isinstance(named(x)["a"], np.ndarray)
    (inner,) = bundle(x)["a"][1]
    assert isinstance(inner, np.ndarray) and inner.tolist() == [1, 2]


def test_annotated_callbacks():
    @flow.global_function()
    def one(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[tp.Numpy]:
        return x + 1

    @flow.global_function()
    def pair(x: tp.Numpy.Placeholder((1,))) -> tp.Callback[Tuple[tp.Numpy, Dict[str, tp.Numpy]]]:
        return x, {"twice": x * 2}

    seen = []
    register = one(array(1))
    assert seen == []
    register(seen.append)
    assert isinstance(seen[0], np.ndarray) and seen[0].tolist() == [2]
    pair(array(3))(seen.append)
    assert seen[1][0].tolist() == [3] and seen[1][1]["twice"].tolist() == [6]


@pytest.fixture
def result() -> ResultArray:
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return x

    return job(np.array([[3, 1, 2], [4, 6, 5]], np.float32)).get()


def test_a_result_has_the_accessors_of_every_era(result):
    plain = np.array([[3, 1, 2], [4, 6, 5]], np.float32)
    assert isinstance(result, np.ndarray)
    for got in (result.numpy(), result.ndarray(), result.numpy(0), *result.numpy_list(), *result.ndarray_list()):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, plain)
    assert (result.parallel_num(), len(result.numpy_list()), len(result.ndarray_list())) == (1, 1, 1)
    with pytest.raises(AssertionError, match="1 piece"):
        result.numpy(1)


def test_a_result_behaves_as_an_array(result):
    assert (result.mean(), result.sum(), result.max(), result.argmax()) == (3.5, 21, 6, 4)
    assert all(np.isscalar(v) for v in (result.mean(), result.sum(), result.max(), result.argmax()))
    assert (result.shape, result.dtype, result.ndim, len(result)) == ((2, 3), np.float32, 2, 2)
    assert result.reshape((-1, 1)).shape == (6, 1)
    assert result.astype(np.int32).dtype == np.int32
    assert result.T.tolist() == [[3, 4], [1, 6], [2, 5]]
    assert result[0].tolist() == [3, 1, 2] and result[1, 1] == 6
    assert [row.tolist() for row in result] == [[3, 1, 2], [4, 6, 5]]
    assert "{:.10f}".format(result.mean()) == "3.5000000000"
    assert np.argmax(result, 1).tolist() == [0, 1]
    assert type(np.array(result)) is np.ndarray


def test_arithmetic_and_comparison_of_results_give_plain_arrays(result):
    other = np.array([[3, 0, 2], [4, 0, 5]], np.float32)
    for got in (result == other, other == result, result < 3, result + result, other - result, 2 * result, -result, np.exp(result)):
        assert type(got) is np.ndarray
    assert np.sum(result == other) == np.sum(other == result) == 4
    assert (result + result).tolist() == [[6, 2, 4], [8, 12, 10]]


def test_a_result_of_one_element_is_a_number():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return x

    result = job(array(0.25)).get()
    assert float(result) == 0.25 and int(result) == 0 and bool(result)
    assert result < 0.5 and not result > 0.5
    assert result.item() == 0.25


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
        x = flow.layers.batch_normalization(flow.layers.dense(x, 3, kernel_initializer=flow.random_normal_initializer()))
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
        return flow.get_variable("free", (20,), initializer=normal), flow.get_variable("seeded", (20,), initializer=normal, random_seed=3)

    free, seeded = job().get()
    flow.train.CheckPoint().init()
    again, seeded_again = job().get()
    assert not np.array_equal(free, again)
    np.testing.assert_array_equal(seeded, seeded_again)


def test_sync_returns():
    assert flow.sync_default_session() is None


# ------------------------------------------------------------------------------------------- watch and eager mode


def test_watch_hands_out_every_value(capsys):
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        def typed(got: tp.Numpy):
            seen.append(("numpy", type(got), got.tolist()))

        def listed(got: tp.ListNumpy):
            seen.append(("list", type(got), got[0].tolist()))

        flow.watch(x * 2, lambda got: seen.append(("result", type(got), got.tolist())))
        flow.watch(x, typed)
        flow.watch(x, listed)
        flow.watch([x, x + 1], lambda a, b: seen.append(("two", a.tolist(), b.tolist())))
        flow.watch(x, "prompt:")
        flow.watch(x)

    for start in (0, 1):
        job(array(start, 5))
    assert seen == [
        line
        for s in (0, 1)
        for line in [
            ("result", ResultArray, [2 * s, 10]),
            ("numpy", np.ndarray, [s, 5]),
            ("list", list, [s, 5]),
            ("two", [s, 5], [s + 1, 6]),
        ]
    ]
    assert capsys.readouterr().out == "prompt: [0. 5.]\n[0. 5.]\nprompt: [1. 5.]\n[1. 5.]\n"


def test_watch_diff_is_the_gradient_of_the_scaled_sum():
    seen = {}
    config = train_config()
    config.train.loss_scale_factor(4)

    @flow.global_function(config)
    def job(x=flow.FixedTensorDef((3,))):
        w = weight(2.0)
        y = w * x
        flow.watch_diff(y, lambda got: seen.__setitem__("y", got.tolist()))
        flow.watch_diff(x, lambda got: seen.__setitem__("x", got.tolist()))
        flow.losses.add_loss(y * y)

    job(array(1, 2, 3))
    assert seen == {"y": [16, 32, 48], "x": [32, 64, 96]}
    np.testing.assert_allclose(value(), [2 - 0.1 * np.mean([4, 16, 36])], rtol=1e-5)


def test_watch_handlers_have_run_before_the_call_returns():
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        flow.watch(x, lambda got: seen.append(got.item()))
        return x

    future = job(array(3))
    assert seen == [3]
    future.get()


def test_eager_execution_runs_the_body_at_every_call():
    assert not flow.eager_execution_enabled()
    flow.enable_eager_execution(True)
    assert flow.eager_execution_enabled()
    calls = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        calls.append(1)
        return x + len(calls)

    assert [job(array(0)).get().item() for _ in range(3)] == [1, 2, 3]


def test_eager_execution_trains_as_lazy_execution_does():
    def train():
        @flow.global_function(train_config())
        def job(x=flow.FixedTensorDef((2,))):
            loss = weight() * weight() * x
            flow.losses.add_loss(loss)
            return loss

        for i in range(3):
            job(array(i, 2)).get()
        return value()

    lazy = train()
    flow.clear_default_session()
    flow.enable_eager_execution()
    np.testing.assert_array_equal(train(), lazy)


def test_eager_execution_takes_a_changed_rate():
    flow.enable_eager_execution()
    rates = [0.1, 0.5, 0.5]

    @flow.global_function(type="train")
    def job():
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [rates.pop(0)])
        flow.optimizer.SGD(schedule, momentum=0).minimize(weight() * 1)

    for expected in (0.9, 0.4, -0.1):
        job()
        np.testing.assert_allclose(value(), [expected], rtol=1e-5)


def test_eager_execution_watches_with_the_handler_of_this_call():
    flow.enable_eager_execution()
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        mine = []
        seen.append(mine)
        flow.watch(x, lambda got: mine.append(got.item()))

    job(array(1))
    job(array(2))
    assert seen == [[1], [2]]


def test_eager_execution_watches_what_was_not_watched_before():
    flow.enable_eager_execution()
    calls, seen = [], []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        calls.append(1)
        if len(calls) == 2:
            flow.watch(x, lambda got: seen.append(got.item()))

    for i in range(3):
        job(array(i))
    assert seen == [1]


def test_results_of_one_element_are_numbers_too():
    @flow.global_function()
    def total(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return flow.math.reduce_sum(x)

    result = total(array(1, 2, 3))
    assert float(result) == 6 and int(result) == 6 and f"{result:.2f}" == "6.00" and "%.1f" % result == "6.0"


def test_random_ops_of_a_predict_job_draw_anew_whatever_the_shape_of_the_call():
    @flow.global_function()
    def job(x=flow.MirroredTensorDef((64,))):
        return flow.random.bernoulli(x)

    masks = [job([np.full(n, 0.5, np.float32)]).get()[:32].tolist() for n in (64, 48, 64, 48)]
    assert len({tuple(m) for m in masks}) == 4


def test_a_dynamic_loss_is_divided_by_its_batch_whatever_is_fed():
    def moved(rows):
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
            w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
            loss = x * w
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0).minimize(loss)
            return loss

        job([np.ones((rows, 3), np.float32)])
        return float(flow.get_all_variables()["w"].numpy()[0])

    assert moved(4) == pytest.approx(1 - 3) == moved(3)


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
