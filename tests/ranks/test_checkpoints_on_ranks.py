"""A checkpoint saved on any layout loads on any other, bit-equal; a run that goes on there equals one that was never
stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nets import LAYOUTS, ONE, Spread, assert_equal, begin, conv, data, define, dense, on_one_device, variables
from nets import Run as Whole

import oneflow as flow
from oneflow.data import write_records
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.record.messages import FeatureValue, encode_record

SAVED_ON = {"one": ONE, **LAYOUTS}
LOADED_ON = {**SAVED_ON, "weights split in four": Spread(4, ("S(0)",))}


def adam() -> Any:
    return flow.optimizer.AdamW(
        flow.optimizer.PiecewiseConstantScheduler([], [0.003]), do_bias_correction=True, weight_decay=0.01
    )


def net(how: Spread, x: Any) -> Any:
    """Statistics that move, masks that depend on the step, weights of uneven sizes."""
    with how.stage(0):
        h = flow.layers.batch_normalization(flow.nn.relu(conv(how, x, 5, 3, "conv")), axis=1, momentum=0.9, name="norm")
    with how.stage(1):
        h = flow.nn.dropout(flow.nn.relu(flow.reshape(h, (h.shape[0], -1))), 0.4)
        return dense(how, h, 10, "dense")


def start(how: Spread) -> Any:
    begin(how.devices)
    return define(net, how, adam)


def steps(job: Any, first: int, count: int) -> np.ndarray:
    return np.stack([job(*data(8, step % 3)) for step in range(first, first + count)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, tuple[Path, dict[str, np.ndarray]]]:
    """For each layout a checkpoint after three steps on it, and what the variables were."""
    folder, found = tmp_path_factory.mktemp("checkpoints"), {}
    for number, (name, how) in enumerate(SAVED_ON.items()):
        steps(start(how), 0, 3)
        flow.train.CheckPoint().save(str(folder / str(number)))
        found[name] = folder / str(number), variables()
    flow.clear_default_session()
    return found


@pytest.mark.parametrize("layout", LOADED_ON)
def test_a_checkpoint_of_any_layout_loads_on_this_one_with_the_same_bits(layout: str, saved: Any) -> None:
    start(LOADED_ON[layout])
    for path, expected in saved.values():
        flow.train.CheckPoint().load(str(path))
        found = variables()
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


RESUMED = [
    ("one", "dp2"),
    ("dp2", "dp4"),
    ("dp4", "one"),
    ("tp2", "zero"),
    ("zero", "dp x tp"),
    ("dp x tp", "pp2"),
    ("pp2", "tp2"),
]


@pytest.mark.parametrize("before, after", RESUMED)
def test_a_run_that_goes_on_elsewhere_equals_one_that_was_never_stopped(before: str, after: str, saved: Any) -> None:
    whole = on_one_device(net, 6, optimizer=adam)
    job = start(SAVED_ON[after])
    flow.train.CheckPoint().load(str(saved[before][0]))
    losses = steps(job, 3, 3)
    assert_equal(Whole(losses, variables()), Whole(whole.losses[3:], whole.variables))


@pytest.mark.parametrize("layout", ["dp2", "zero", "pp2"])
def test_a_run_that_goes_on_with_the_same_layout_has_the_same_bits(layout: str, saved: Any) -> None:
    job = start(SAVED_ON[layout])
    whole = steps(job, 0, 5)[3:], variables()
    job = start(SAVED_ON[layout])
    flow.train.CheckPoint().load(str(saved[layout][0]))
    assert_equal(Whole(steps(job, 3, 2), variables()), Whole(*whole), tolerance=0)


def test_variables_are_drawn_the_same_on_every_layout() -> None:
    start(ONE)
    expected = variables()
    for how in LAYOUTS.values():
        start(how)
        found = variables()
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_variables_can_be_drawn_anew_and_set_one_by_one() -> None:
    for how in (LAYOUTS["tp2"], LAYOUTS["dp x tp"], LAYOUTS["zero"], LAYOUTS["pp2"]):
        job = start(how)
        first = variables()
        steps(job, 0, 2)
        flow.train.CheckPoint().init()
        again = variables()
        start(ONE)
        flow.train.CheckPoint().init()
        flow.train.CheckPoint().init()
        assert all(np.array_equal(again[name], value) for name, value in variables().items())
        assert not np.array_equal(again["dense-weight"], first["dense-weight"])
        start(how)
        flow.load_variables(
            {"dense-weight": np.full_like(first["dense-weight"], 3.0), "conv-bias-m": np.arange(5, dtype=np.float32)}
        )
        after = variables()
        assert np.all(after["dense-weight"] == 3) and after["conv-bias-m"].tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(ArgumentError, match="variable 'dense-weight' is .* cannot be set from"):
            flow.load_variables({"dense-weight": np.zeros((2, 2), np.float32)})


# ------------------------------------------------------------------ readers


@pytest.fixture
def records(tmp_path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    records = [encode_record({"x": FeatureValue("float_list", [i])}) for i in range(13)]
    write_records(folder / "part-0", records[:6])
    write_records(folder / "part-1", records[6:])
    return folder


def reading(folder: Path, devices: int) -> Any:
    begin(devices)

    @flow.global_function("predict")
    def read():
        shuffled = {"random_shuffle": True, "shuffle_buffer_size": 4, "shuffle_after_epoch": True}
        reader = flow.data.ofrecord_reader(folder, 4, 2, name="reader", **shuffled)
        return flow.identity(flow.data.OFRecordRawDecoder(reader, "x", (1,), flow.float32))

    return lambda count: [read().get().numpy().ravel().tolist() for _ in range(count)]


@pytest.mark.parametrize("before, after", [(1, 2), (2, 4), (4, 1)])
def test_readers_go_on_where_they_were_on_another_number_of_ranks(records, tmp_path, before, after) -> None:
    whole = reading(records, 1)(12)
    assert reading(records, before)(5) == whole[:5]
    flow.checkpoint.save(tmp_path / "saved")
    read = reading(records, after)
    flow.load_variables(flow.checkpoint.get(tmp_path / "saved"))
    assert read(7) == whole[5:]
