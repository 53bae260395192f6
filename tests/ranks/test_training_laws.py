"""One program, any layout: 1 = dp 2 = dp 4 = tp 2 = dp x tp = zero = pp 2 = any other, and the same bits every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nets import LAYOUTS, NETS, Spread, assert_equal, batch_normed, dropped_out, lenet, mlp, on_one_device, run

STEPS = 20


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("net", NETS)
def test_a_network_learns_the_same_on_every_layout(net: str, layout: str) -> None:
    assert_equal(run(NETS[net], LAYOUTS[layout], STEPS), on_one_device(NETS[net], STEPS))


@pytest.mark.parametrize("layout", ["dp2", "dp x tp", "zero", "pp2"])
def test_the_same_layout_gives_the_same_bits_from_run_to_run(layout: str) -> None:
    first, second = (run(batch_normed, LAYOUTS[layout], 5) for _ in range(2))
    assert_equal(first, second, tolerance=0)


def test_networks_do_learn_in_these_tests() -> None:
    losses = on_one_device(mlp, STEPS).losses.mean(1)
    assert losses[-1] < 0.8 * losses[0]
    before, after = on_one_device(mlp, 1).variables, on_one_device(mlp, STEPS).variables
    assert all(np.abs(before[name] - after[name]).max() > 1e-3 for name in before)


MORE = {
    "weights laid out by the compiler": Spread(2, ("auto",)),
    "weights split unevenly": Spread(4, ("S(0)",)),
    "states shared out, weights split": Spread(4, ("B", "S(0)"), hierarchy=(2, 2), shares_states=True),
    "states shared out by four": Spread(4, shares_states=True),
    "two stages of two": Spread(4, stages=("0:0-1", "0:2-3")),
    "stages on devices in descending order": Spread(2, stages=("0:1", "0:0")),
    "a stage of one, a stage of two": Spread(3, stages=("0:0", "0:1-2")),
    "one of two devices": Spread(2, stages=("0:1", "0:1")),
}


@pytest.mark.parametrize("case", MORE)
def test_other_layouts_learn_the_same(case: str) -> None:
    assert_equal(run(batch_normed, MORE[case], 6), on_one_device(batch_normed, 6))


@pytest.mark.parametrize("devices, batch", [(2, 7), (4, 7), (4, 3), (2, 1)])
def test_a_batch_need_not_come_out_even(devices: int, batch: int) -> None:
    """A batch with fewer rows than ranks runs whole on each."""
    how = Spread(devices, batch=batch)
    assert_equal(run(lenet, how, 4), on_one_device(lenet, 4, batch=batch))


ACCUMULATING = {
    "pp2": LAYOUTS["pp2"],
    "pp x dp": MORE["two stages of two"],
    "dp2": LAYOUTS["dp2"],
    "tp2": LAYOUTS["tp2"],
    "zero": LAYOUTS["zero"],
    "auto": MORE["weights laid out by the compiler"],
}


@pytest.mark.parametrize("layout", ACCUMULATING)
def test_gradients_accumulate_the_same_on_every_layout(layout: str) -> None:
    """With stages this is a pipeline: one forward, one backward. Every micro-batch draws masks of its own."""
    how = replace(ACCUMULATING[layout], micro_batches=4)
    assert_equal(run(dropped_out, how, 6), on_one_device(dropped_out, 6, micro_batches=4))


def test_statistics_move_once_a_micro_batch_on_every_layout() -> None:
    for layout in ("pp2", "dp2"):
        how = replace(LAYOUTS[layout], micro_batches=2)
        assert_equal(run(batch_normed, how, 4), on_one_device(batch_normed, 4, micro_batches=2))
