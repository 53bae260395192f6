"""What a job takes: inputs of every form, dtype and memory layout, and batches smaller than declared."""

from typing import Tuple

import numpy as np
import pytest
from small_jobs import array, train_config, value, weight

import oneflow as flow
import oneflow.typing as tp

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
    def job(
        a=flow.FixedTensorDef((1,)), unused=flow.FixedTensorDef((7,)), b=flow.FixedTensorDef((1,), dtype=flow.int32)
    ):
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

    x, y, z, difference = job(
        array(1, 2), [np.array([7], np.int32)], [[array(3), array(4)]], (array(5), array(1))
    ).get()
    assert [x.tolist(), y.tolist(), z.tolist(), difference.tolist()] == [[1, 2], [7], [3, 4], [4]]


def test_nested_input_structures():
    one = flow.FixedTensorDef((1,))

    @flow.global_function()
    def job(tree={"a": one, "rest": [one, (one, one)]}, pair=(one, one)):  # noqa: B006
        assert isinstance(tree["rest"], list) and isinstance(tree["rest"][1], tuple)
        return (
            tree["a"] + 10 * tree["rest"][0] + 100 * tree["rest"][1][0] + 1000 * tree["rest"][1][1] + pair[0] * pair[1]
        )

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
