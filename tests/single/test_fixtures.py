"""The conformance fixtures: small set-ups whose results can be worked out by hand, one test each, by number."""

import os

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.record import record_pb2 as ofrecord
from oneflow.engine.data.formats.records import write_records


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def config(lr: float = 0.1, **conf: dict) -> flow.FunctionConfig:
    """A train config in dictionary style; plain SGD unless another optimizer is given."""
    made = flow.function_config()
    made.train.primary_lr(lr)
    made.train.model_update_conf(conf or {"naive_conf": {}})
    return made


def variables() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def weight(init: float = 1.0, shape: tuple[int, ...] = (1,), **more: object):
    return flow.get_variable("w", shape, initializer=flow.constant_initializer(init), **more)


def steps(optimizer, count: int, init: float = 1.0) -> dict[str, np.ndarray]:
    """All variables after training w with a gradient of 1 for ``count`` steps."""

    @flow.global_function(type="train")
    def job():
        optimizer.minimize(weight(init) * 1.0)

    for _ in range(count):
        job()
    return variables()


def constant(lr: float):
    return flow.optimizer.PiecewiseConstantScheduler([], [lr])


def test_01_a_job_returns_its_input():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 5))):
        return x

    fed = np.ones((2, 5), np.float32)
    result = job(fed).get()
    assert result.max() == 1
    np.testing.assert_array_equal(result.numpy(), fed)


def test_02_predict_job():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((3,))):
        return x * 2 + 1

    np.testing.assert_array_equal(job(array(1, 2, 3)).get(), [3, 5, 7])


def test_03_the_gradient_is_the_mean_and_watch_diff_sees_the_sum():
    seen = []

    @flow.global_function(config())
    def job(x=flow.FixedTensorDef((4,))):
        w = weight()
        flow.watch_diff(w, lambda diff: seen.append(diff.numpy()))
        flow.losses.add_loss(w * x)

    job(array(1, 2, 3, 4))
    np.testing.assert_allclose(variables()["w"], [0.75])
    np.testing.assert_allclose(seen, [[10]])


def test_04_losses_add_up():
    @flow.global_function(config())
    def job(x=flow.FixedTensorDef((4,))):
        w = weight()
        flow.losses.add_loss(w * x)
        flow.losses.add_loss(w * x)

    job(array(1, 2, 3, 4))
    np.testing.assert_allclose(variables()["w"], [0.5])


def test_05_momentum_with_decoupled_weight_decay():
    @flow.global_function(config(0.1, momentum_conf={"beta": 0.9}, weight_decay_conf={"weight_decay_rate": 0.1}))
    def job():
        flow.losses.add_loss(weight() * 1.0)

    job()
    np.testing.assert_allclose([variables()["w"], variables()["w-momentum"]], [[0.89], [-0.1]], rtol=1e-6)
    job()
    np.testing.assert_allclose([variables()["w"], variables()["w-momentum"]], [[0.6911], [-0.19]], rtol=1e-6)


def test_06_adam_without_correction():
    after = steps(flow.optimizer.Adam(constant(0.1)), 1)
    np.testing.assert_allclose(after["w"], [0.683772], rtol=1e-6)
    np.testing.assert_allclose([after["w-m"], after["w-v"]], [[0.1], [0.001]], rtol=1e-6)


def test_07_adam_with_correction():
    np.testing.assert_allclose(
        steps(flow.optimizer.Adam(constant(0.1), do_bias_correction=True), 1)["w"], [0.9], atol=1e-6
    )


def test_08_rmsprop_has_epsilon_inside_the_root():
    after = steps(flow.optimizer.RMSProp(constant(0.1)), 1)
    np.testing.assert_allclose(after["w-mean_square"], [0.01], rtol=1e-6)
    np.testing.assert_allclose(after["w"], [5e-7], atol=2e-7)


def test_09_linear_warm_up():
    scheduler = flow.optimizer.CosineScheduler(1.0, 20, warmup=flow.optimizer.warmup.linear(10, 0.0))
    np.testing.assert_allclose([scheduler.lr(t) for t in range(11)], [*np.arange(10) / 10, 0.5], rtol=1e-6)


def test_10_a_boundary_belongs_to_the_left_piece():
    scheduler = flow.optimizer.PiecewiseConstantScheduler([2], [1.0, 0.1])
    np.testing.assert_allclose([scheduler.lr(t) for t in range(4)], [1, 1, 1, 0.1], rtol=1e-6)


def test_11_a_regularizer_changes_the_gradient_not_the_loss():
    @flow.global_function(config(1.0))
    def job():
        loss = weight(2.0, regularizer=flow.regularizers.l2(0.5)) * 0.0
        flow.losses.add_loss(loss)
        return loss

    assert job().get().item() == 0.0
    np.testing.assert_allclose(variables()["w"], [1.0])


def test_12_same_padding_puts_the_odd_row_in_front():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1, 1, 4, 4))):
        filters = flow.get_variable("f", (1, 1, 3, 3), initializer=flow.ones_initializer())
        return flow.nn.conv2d(x, filters, strides=2, padding="SAME", data_format="NCHW")

    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    result = job(image).get()
    assert result.shape == (1, 1, 2, 2)
    assert result[0, 0, 0, 0] == image[0, 0, :2, :2].sum()
    assert result[0, 0, 1, 1] == image[0, 0, 1:, 1:].sum()


def test_13_cross_entropy_of_an_impossible_label_is_finite():
    diffs = []

    @flow.global_function(config())
    def job(label=flow.FixedTensorDef((1,), dtype=flow.int32), base=flow.FixedTensorDef((1, 2))):
        logits = base + flow.get_variable("logits", (1, 2), initializer=flow.zeros_initializer())
        flow.watch_diff(logits, lambda diff: diffs.append(diff.numpy()))
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
        flow.losses.add_loss(loss)
        return loss

    np.testing.assert_allclose(job(np.zeros(1, np.int32), array(0, 1000).reshape(1, 2)).get(), [46.0517], rtol=1e-6)
    assert np.isfinite(diffs[0]).all()


def test_14_a_dense_layer_starts_at_zero():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return flow.layers.dense(x, 4)

    np.testing.assert_array_equal(job(np.full((2, 3), 7, np.float32)).get(), np.zeros((2, 4)))


def test_15_label_smoothing():
    classes, eta = 1000, 0.1

    @flow.global_function()
    def job(label=flow.FixedTensorDef((1,), dtype=flow.int32), logits=flow.FixedTensorDef((1, classes))):
        hot = flow.one_hot(
            label, classes, on_value=1 - eta + eta / classes, off_value=eta / classes, dtype=flow.float32
        )
        return hot, flow.nn.softmax_cross_entropy_with_logits(hot, logits)

    best = np.full((1, classes), np.log(0.0001), np.float32)
    best[0, 3] = np.log(0.9001)
    hot, loss = job(np.array([3], np.int32), best).get()
    np.testing.assert_allclose([hot[0, 3], hot[0, 4]], [0.9001, 0.0001], rtol=1e-5)
    np.testing.assert_allclose(loss, [1.0148480], rtol=1e-5)


def test_16_batch_normalization_statistics():
    @flow.global_function(config())
    def job(x=flow.FixedTensorDef((4, 1))):
        out = flow.layers.batch_normalization(x, axis=1, momentum=0.9, epsilon=1e-9, name="bn")
        flow.losses.add_loss(out)
        return out

    out = job(array(0, 1, 2, 3).reshape(4, 1)).get()
    np.testing.assert_allclose(out[:, 0], (np.arange(4) - 1.5) / np.sqrt(1.25), rtol=1e-5)
    after = variables()
    np.testing.assert_allclose(after["bn-moving_mean"], [0.15], rtol=1e-6)
    np.testing.assert_allclose(after["bn-moving_variance"], [1.0666667], rtol=1e-6)


def test_17_random_data_is_drawn_once():
    @flow.global_function()
    def job():
        return flow.data.decode_random((3,), flow.float32, batch_size=2)

    first, second, third = (job().get() for _ in range(3))
    assert first.shape == (2, 3) and len(np.unique(first)) == 6
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_18_record_batches_straddle_the_epoch(tmp_path):
    def record(i: int) -> ofrecord.OFRecord:
        return ofrecord.OFRecord(feature={"label": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[i]))})

    write_records(tmp_path / "part-0", [record(i) for i in range(3)])

    @flow.global_function()
    def job():
        records = flow.data.ofrecord_reader(str(tmp_path), batch_size=2)
        return flow.data.OFRecordRawDecoder(records, "label", shape=(), dtype=flow.int32)

    assert [job().get().tolist() for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_19_a_checkpoint_on_disk(tmp_path):
    @flow.global_function()
    def job():
        return flow.get_variable("a", (2, 3), initializer=flow.random_normal_initializer())

    value = job().get()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    assert (tmp_path / "saved/a/out").read_bytes() == value.astype("<f4").tobytes()
    assert os.path.getsize(tmp_path / "saved/a/out") == 24
    assert (tmp_path / "saved/snapshot_done").read_bytes() == b""


def test_20_saving_into_a_folder_with_files(tmp_path):
    @flow.global_function()
    def job():
        return weight()

    (tmp_path / "kept").write_text("mine")
    with pytest.raises(AssertionError, match="folder with files in it"):
        flow.train.CheckPoint().save(str(tmp_path))
    assert os.listdir(tmp_path) == ["kept"]


def test_21_a_call_trains_without_get():
    @flow.global_function(config())
    def train(x=flow.FixedTensorDef((4,))):
        loss = weight() * x
        flow.losses.add_loss(loss)
        return loss

    @flow.global_function()
    def evaluate():
        return flow.identity(weight())

    train(array(1, 2, 3, 4))
    np.testing.assert_allclose(evaluate().get(), [0.75])


def test_22_bodies_run_once_in_order_at_the_first_trigger(capsys):
    @flow.global_function()
    def second(x=flow.FixedTensorDef((1,))):
        print("the job defined first")
        return x

    @flow.global_function()
    def first(x=flow.FixedTensorDef((1,))):
        print("the job defined second")
        return x

    assert capsys.readouterr().out == ""
    first(array(1)).get()
    assert capsys.readouterr().out == "the job defined first\nthe job defined second\n"
    first(array(1)).get()
    second(array(1)).get()
    assert capsys.readouterr().out == ""


def test_23_a_full_reduction_has_rank_one():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        total = flow.math.reduce_sum(x)
        assert total.shape == (1,)
        return total

    result = job(np.ones((2, 3), np.float32)).get()
    assert result.shape == (1,) and result[0] == 6


def test_24_comparisons_are_int8():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((3,)), y=flow.FixedTensorDef((3,))):
        return x == y

    result = job(array(1, 2, 3), array(1, 0, 3)).get()
    assert result.dtype == np.int8
    assert result.tolist() == [1, 0, 1]


def test_25_top_k_gives_indices():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1, 3))):
        return flow.math.top_k(x, k=2)

    result = job(array(1, 3, 2).reshape(1, 3)).get()
    assert result.dtype == np.int32
    assert result.tolist() == [[1, 2]]


def clipped(gradient: np.ndarray, clip_norm: float, historical: bool = False) -> np.ndarray:
    """What is left of a gradient, seen as the change of a weight at rate 1."""
    clip = flow.optimizer.grad_clipping.by_global_norm(clip_norm, historical=historical)

    @flow.global_function(type="train")
    def job(g: tp.Numpy.Placeholder((2,))):
        loss = flow.math.reduce_sum(weight(0.0, (2,)) * g)
        flow.optimizer.SGD(constant(1.0), momentum=0, grad_clipping=clip).minimize(loss)

    job(gradient)
    return -variables()["w"]


@pytest.mark.parametrize(
    "clip_norm, historical, left",
    [(2, False, (1.2, 1.6)), (2, True, (0.6, 0.8)), (1, False, (0.6, 0.8)), (1, True, (0.6, 0.8))],
)
def test_26_clipping_a_long_gradient(clip_norm, historical, left):
    np.testing.assert_allclose(clipped(array(3, 4), clip_norm, historical), left, rtol=1e-6)


@pytest.mark.parametrize("historical, left", [(False, (0.3, 0.4)), (True, (0.15, 0.2))])
def test_27_clipping_a_short_gradient(historical, left):
    np.testing.assert_allclose(clipped(array(0.3, 0.4), 2, historical), left, rtol=1e-6)


def test_28_lamb_starts_with_squared_betas():
    after = steps(flow.optimizer.LAMB(constant(0.1)), 1)
    np.testing.assert_allclose(after["w"], [0.9], rtol=1e-6)
    np.testing.assert_allclose([after["w-beta1_t"], after["w-beta2_t"]], [[0.81], [0.998001]], rtol=1e-6)
    np.testing.assert_allclose([after["w-m"], after["w-v"]], [[0.1], [0.001]], rtol=1e-6)
