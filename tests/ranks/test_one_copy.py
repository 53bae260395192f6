"""Variables that lie once for the ranks of a host, each of which updates its own rows: nothing but time and memory
tells that they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nets import ONE, Run, Spread, assert_equal, begin, data, define, dense, run, variables

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.job.function import default_session
from oneflow.engine.program import large_products
from oneflow.engine.runtime.driver.cluster import Cluster
from oneflow.engine.runtime.launch.world import World

TWO, FOUR, AXES = Spread(2), Spread(4), Spread(4, ("B", "S(0)"), hierarchy=(2, 2))
RATE = flow.optimizer.PiecewiseConstantScheduler([], [0.05])
STEPS = 5
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: flow.optimizer.SGD(RATE, momentum=0.0),
    "sgdw": lambda: flow.optimizer.SGDW(RATE, momentum=0.0, weight_decay=0.1),
    "momentum": lambda: flow.optimizer.SGD(RATE, momentum=0.9),
    "adam": lambda: flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.003])),
}


def clipped() -> Any:
    """Its gradients are made whole on every rank, and so is its update."""
    return flow.optimizer.SGD(RATE, momentum=0.9, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(0.5))


def wide(how: Spread, x: Any) -> Any:
    """Its first weight has 321 rows of 144, which no number of ranks divides."""
    with how.stage(0):
        h = flow.math.tanh(dense(how, flow.reshape(x, (x.shape[0], -1)), 321, "first"))
    with how.stage(1):
        return dense(how, h, 10, "second")


@pytest.fixture(autouse=True)
def products_by_rows() -> Iterator[None]:
    """Weights of these sizes are updated by rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_products, "ROWS_BYTES", 1 << 14)
        yield


@lru_cache(maxsize=None)
def on_one_device(optimizer: str) -> Run:
    return run(wide, ONE, STEPS, OPTIMIZERS[optimizer])


def held_by(name: str) -> list[set[str]]:
    """The shared memory of the size of a variable that each worker has, by inode."""
    size = -(-flow.get_all_variables()[name].numpy().nbytes // 4096) * 4096
    return [_segments(pid, size) for pid in default_session().backend.driver.cluster.pids]


def _segments(pid: int, size: int) -> set[str]:
    mapped = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "memfd:oneflow" in line]
    spans = {fields[4]: [int(end, 16) for end in fields[0].split("-")] for fields in mapped}
    return {inode for inode, (first, last) in spans.items() if last - first == size}


@pytest.mark.parametrize("how", [TWO, FOUR, AXES], ids=["dp2", "dp4", "dp x tp"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ranks_that_each_update_their_rows_learn_what_one_device_does(optimizer: str, how: Spread) -> None:
    assert_equal(run(wide, how, STEPS, OPTIMIZERS[optimizer]), on_one_device(optimizer))


@pytest.mark.parametrize("optimizer, copies", [("sgd", 1), ("momentum", 2), ("adam", 3)])
def test_a_variable_and_its_states_lie_once_for_all_ranks(optimizer: str, copies: int) -> None:
    run(wide, TWO, 1, OPTIMIZERS[optimizer])
    first, second = held_by("first-weight")
    assert first == second and len(first) == copies


def in_turn(how: Spread, *makes: Callable[[], Any]) -> Run:
    """Jobs that train the same variables, each with an optimizer of its own, one step after the other."""
    begin(how.devices)
    jobs = [named(f"job{number}", how, make) for number, make in enumerate(makes)]
    return Run(np.stack([job(*data(8, step)) for step in range(3) for job in jobs]), variables())


def named(name: str, how: Spread, make: Callable[[], Any]) -> Any:
    def body(x=flow.FixedTensorDef((8, 1, 12, 12)), y=flow.FixedTensorDef((8,), flow.int32)) -> tp.Numpy:  # type: ignore[no-untyped-def]
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, wide(how, x))
        make().minimize(loss)
        return loss

    body.__name__ = name
    return flow.global_function("train")(body)


@pytest.mark.parametrize("makes", [(OPTIMIZERS["sgd"], clipped), (clipped, OPTIMIZERS["sgd"])], ids=["before", "after"])
def test_a_variable_that_another_job_updates_in_another_way_lies_on_each_rank_again(makes: tuple[Any, ...]) -> None:
    expected = in_turn(ONE, *makes)
    assert_equal(in_turn(TWO, *makes), expected)
    assert held_by("first-weight") == [set(), set()]


def test_gradients_that_one_rank_counts_in_a_norm_or_sends_back_are_made_whole_by_all() -> None:
    """No rank may wait for others that do something else."""

    def watched(how: Spread) -> tuple[Run, np.ndarray]:
        begin(how.devices)
        seen: list[np.ndarray] = []

        @flow.global_function("train")
        def job(x=flow.FixedTensorDef((8, 1, 12, 12)), y=flow.FixedTensorDef((8,), flow.int32)) -> tp.Numpy:  # type: ignore[no-untyped-def]
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, wide(how, x))
            flow.watch_diff(
                flow.get_variable("first-weight", (321, 144)), lambda gradient: seen.append(gradient.numpy())
            )
            OPTIMIZERS["sgd"]().minimize(loss)
            return loss

        return Run(np.stack([job(*data(8, step)) for step in range(3)]), variables()), np.stack(seen)

    (run_on_one, seen_on_one), (run_on_two, seen_on_two) = watched(ONE), watched(TWO)
    assert_equal(run_on_two, run_on_one)
    np.testing.assert_allclose(seen_on_two, seen_on_one, 1e-5, 1e-6)
    assert held_by("first-weight") == [set(), set()]
    assert_equal(in_turn(TWO, clipped), in_turn(ONE, clipped))


def test_jobs_that_update_a_variable_in_the_same_way_hold_it_together() -> None:
    expected = in_turn(ONE, OPTIMIZERS["sgd"], OPTIMIZERS["sgdw"])
    assert_equal(in_turn(TWO, OPTIMIZERS["sgd"], OPTIMIZERS["sgdw"]), expected)
    first, second = held_by("first-weight")
    assert first == second and len(first) == 1


def test_every_rank_predicts_from_the_same_bits_after_every_step() -> None:
    """All rows of the batch are equal, and each rank has two of them."""
    begin(4)
    train = define(wide, FOUR, OPTIMIZERS["adam"])

    @flow.global_function("predict")
    def predict(x=flow.FixedTensorDef((8, 1, 12, 12))) -> tp.Numpy:  # type: ignore[no-untyped-def]
        return wide(FOUR, x)

    same, before = np.repeat(data(1, 0)[0], 8, 0), None
    for step in range(4):
        train(*data(8, step))
        of_ranks = predict(same).reshape(4, 2, 10)
        assert (of_ranks == of_ranks[0]).all() and (before is None or (of_ranks != before).all())
        before = of_ranks


def test_a_run_that_goes_on_from_a_checkpoint_has_the_bits_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    begin(2)
    job = define(wide, TWO, OPTIMIZERS["momentum"])
    for step in range(2):
        job(*data(8, step))
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    losses = np.stack([job(*data(8, step)) for step in range(2, 5)])
    whole = Run(losses, variables())
    for is_new in (False, True):  # written over what there is, and into a session of its own
        if is_new:
            begin(2)
            job = define(wide, TWO, OPTIMIZERS["momentum"])
        flow.train.CheckPoint().load(str(tmp_path / "saved"))
        assert_equal(Run(np.stack([job(*data(8, step)) for step in range(2, 5)]), variables()), whole, tolerance=0)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one host", "several hosts"])
def test_rows_are_updated_by_their_ranks_or_all_by_each(elsewhere: bool) -> None:
    torch.manual_seed(0)
    weight, a, b = torch.randn(7, 5), torch.randn(7, 3), torch.randn(3, 5)
    cluster = Cluster(World("cpu", devices_per_machine=3), "cluster_handlers:Echo")
    try:
        found = cluster.broadcast("updates_of_rows", weight, a, b, elsewhere, what="updating")
    finally:
        cluster.close()
    expected = weight - 0.1 * (a @ b)
    for rank, (together, own, apart) in enumerate(found):
        torch.testing.assert_close(together, expected)
        assert torch.equal(together, found[0][0])
        count = 7 if elsewhere else len(range(7 * rank // 3, 7 * (rank + 1) // 3))
        assert own == count  # the rows that this rank has changed
        assert torch.equal(apart, together + rank)  # what each has for itself again
