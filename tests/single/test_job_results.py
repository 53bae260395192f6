"""What a job gives: results in the structure of the body, annotations, callbacks, and the arrays themselves."""

from collections import OrderedDict
from typing import Dict, Tuple

import numpy as np
import pytest
from small_jobs import array

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.job.result import ResultArray


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
    for got in (
        result == other,
        other == result,
        result < 3,
        result + result,
        other - result,
        2 * result,
        -result,
        np.exp(result),
    ):
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


def test_results_of_one_element_are_numbers_too():
    @flow.global_function()
    def total(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return flow.math.reduce_sum(x)

    result = total(array(1, 2, 3))
    assert float(result) == 6 and int(result) == 6 and f"{result:.2f}" == "6.00" and "%.1f" % result == "6.0"
