"""The numbers of plans, against numbers worked out by hand. Nothing is started: the devices are not there."""

from importlib import import_module
from math import prod

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine import collective
from oneflow.engine.collective import Piece
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.job.function import default_session
from oneflow.engine.plan.held import exchange_on, fresh
from oneflow.engine.plan.listing import devices_text
from oneflow.engine.plan.values import Traffic
from oneflow.engine.sharding.rules.table import RULES

WIDE, NARROW = 32, 8
FLOAT = 4


def minimize(loss, **options):
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.9, **options).minimize(loss)


def weight(name, shape, **options):
    return flow.get_variable(name, shape, initializer=flow.random_normal_initializer(), **options)


def train_job(batch, config=None, **options):
    """Two matrix products; their variables together have WIDE * WIDE + WIDE * NARROW elements."""

    @flow.global_function(type="train", function_config=config)
    def learn(x: tp.Numpy.Placeholder((batch, WIDE))) -> tp.Numpy:
        hidden = flow.math.relu(flow.matmul(x, weight("first", (WIDE, WIDE))))
        loss = flow.matmul(hidden, weight("second", (WIDE, NARROW)))
        minimize(loss, **options)
        return loss

    return learn


def learn_flops(rows):
    """Forward, both gradients of the second product, that of the first's weight."""
    return 2 * rows * WIDE * (WIDE + 2 * NARROW + NARROW + WIDE)


VARIABLES = FLOAT * WIDE * (WIDE + NARROW)


# ------------------------------------------------------------------ data parallel


def test_one_device_communicates_nothing():
    plan = flow.plan(train_job(64))
    (rank,) = plan.ranks
    assert (rank.ranks, rank.count, rank.flops, rank.communicated) == ("0", 1, learn_flops(64), {})
    assert rank.variables == 2 * VARIABLES  # each has a velocity
    assert (plan.kind, plan.devices, plan.axes, plan.notes) == ("train", 1, (1,), ())


@pytest.mark.parametrize("devices", [2048, "16x128"])
def test_data_parallel_shares_the_work_and_sends_the_gradients_once(devices):
    """A batch so large that summing the weights' gradients is cheaper than any other way."""
    plan = flow.plan(train_job(2**20), devices=devices)
    (rank,) = plan.ranks
    assert (rank.ranks, rank.count) == ("0-2047", 2048)
    assert rank.flops == learn_flops(2**20 // 2048)
    assert dict(rank.communicated) == {"all_reduce": Traffic(1, VARIABLES)}
    assert plan.notes == ()
    (update,) = [op for op in plan.ops if op.part == "update"]
    assert [(step.value, step.bucket, step.bytes) for step in update.boxing] == [
        ("first", 0, FLOAT * WIDE * WIDE),
        ("second", 0, FLOAT * WIDE * NARROW),
    ]
    assert {op.sbp for op in plan.ops if op.aten == "aten.relu.default"} == {("S(0)",) * len(plan.axes)}


def test_ranks_with_more_rows_cost_more():
    plan = flow.plan(train_job(2**16 + 3), devices=8)
    rows = 2**16 // 8
    assert [(rank.ranks, rank.count, rank.flops) for rank in plan.ranks] == [
        ("0-2", 3, learn_flops(rows + 1)),
        ("3-7", 5, learn_flops(rows)),
    ]


def test_a_batch_smaller_than_the_devices_is_not_split_and_the_plan_says_so():
    plan = flow.plan(train_job(6), devices=8)
    (rank,) = plan.ranks
    assert (rank.flops, rank.sent) == (learn_flops(6), 0)
    assert plan.notes == (
        "the batch of 6 (Input_0) is smaller than its 8 devices: it is not split, and every device computes all of it; "
        "declare a batch of at least 8",
    )


def test_the_costs_of_ops_add_up_to_those_of_the_rank():
    plan = flow.plan(train_job(256, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)), devices="2x4")
    (rank,) = plan.ranks
    assert sum(op.flops for op in plan.ops) == rank.flops
    assert sum(step.bytes for op in plan.ops for step in op.boxing) == rank.sent
    assert [op.index for op in plan.ops] == list(range(len(plan.ops)))
    assert [op.aten for op in plan.ops if op.part == "update"] == ["norm_over", "momentum"]


def test_micro_batches_multiply_work_but_not_the_gradients_that_are_sent():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(4)
    plan = flow.plan(train_job(2**16, config), devices=2)
    (rank,) = plan.ranks
    assert (plan.micro_batches, rank.flops) == (4, 4 * learn_flops(2**15))
    assert dict(rank.communicated) == {"all_reduce": Traffic(1, VARIABLES)}


def test_shared_out_optimizer_state_is_counted_in_parts():
    config = flow.function_config()
    config.optimizer_placement_optimization_mode("distributed_split")
    config.optimizer_placement_optimization_threshold(1)
    plan = flow.plan(train_job(2**16, config), devices=4)
    (rank,) = plan.ranks
    assert rank.variables == VARIABLES + VARIABLES // 4
    assert rank.communicated["reduce_scatter"].bytes == VARIABLES * 3 // 4
    assert rank.communicated["all_gather"] == Traffic(1, VARIABLES * 3 // 4)
    assert [op.aten for op in plan.ops if op.part == "update"] == ["momentum", "gather_into"]


# ------------------------------------------------------------------ other ways to share


def test_a_weight_split_by_columns_is_kept_in_parts():
    @flow.global_function(type="predict")
    def tall(x: tp.Numpy.Placeholder((8, WIDE))) -> tp.Numpy:
        return flow.matmul(x, weight("columns", (WIDE, 4096), distribute=flow.distribute.split(1)))

    plan = flow.plan(tall, devices=4)
    (variable,) = plan.variables
    assert (variable.sbp, variable.bytes) == (("S(1)",), FLOAT * WIDE * 1024)
    (product,) = [op for op in plan.ops if op.flops]
    assert (product.sbp, product.shape, product.local_shape, product.flops) == (
        ("S(1)",),
        (8, 4096),
        (8, 1024),
        2 * 8 * WIDE * 1024,
    )
    (step,) = product.boxing
    assert (step.value, step.from_sbp, step.to_sbp, step.collective) == ("Input_0", ("S(0)",), ("B",), "all_gather")
    assert step.bytes == FLOAT * 6 * WIDE  # the rows of the other three


def test_a_job_that_lies_wholly_in_a_scope_has_the_devices_of_the_scope():
    @flow.global_function(type="predict")
    def spread(x: tp.Numpy.Placeholder((16, WIDE))) -> tp.Numpy:
        with flow.scope.placement("gpu", ["0:0-3", "1:0-3"], (2, 4)):
            return flow.math.relu(x)

    plan = flow.plan(spread)
    assert (plan.device_type, plan.devices, plan.axes) == ("gpu", 8, (2, 4))
    assert (plan.ops[0].placement, plan.ops[0].sbp) == ("gpu[0-1:0-3]", ("S(0)", "S(0)"))


def pipeline(micro_batches):
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(micro_batches)

    @flow.global_function(type="train", function_config=config)
    def staged(x: tp.Numpy.Placeholder((64, WIDE))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:0-1"):
            hidden = flow.math.relu(flow.matmul(x, weight("first", (WIDE, WIDE))))
        with flow.scope.placement("cpu", "0:2-3"):
            loss = flow.matmul(hidden, weight("second", (WIDE, NARROW)))
        minimize(loss)
        return loss

    return staged


def test_stages_send_their_parts_ahead_and_the_gradients_back():
    plan = flow.plan(pipeline(4))
    assert [(rank.ranks, rank.stage) for rank in plan.ranks] == [("0-1", 0), ("2-3", 1)]
    assert [rank.communicated["send"] for rank in plan.ranks] == [Traffic(4, 4 * FLOAT * 32 * WIDE)] * 2
    (ahead,) = [step for op in plan.ops for step in op.boxing if step.collective == "send" and op.part == "forward"]
    assert (ahead.value, ahead.from_placement, ahead.to_placement) == ("Relu_0", "cpu[0:0-1]", "cpu[0:2-3]")
    assert ahead.bytes == 4 * FLOAT * 32 * WIDE
    assert {op.placement for op in plan.ops if op.part == "update"} == {"cpu[0:0-1]", "cpu[0:2-3]"}


def test_an_earlier_stage_holds_more_micro_batches():
    """Two stages: the first is ahead by one micro-batch, so four of them need no more than two."""
    two = flow.plan(pipeline(2))
    flow.clear_default_session()
    four = flow.plan(pipeline(4))
    fed = FLOAT * 32 * WIDE
    sent = FLOAT * 32 * WIDE  # stays until the step ends
    assert four.ranks[0].peak_memory - two.ranks[0].peak_memory == 2 * (fed + sent)


def test_scopes_stay_when_devices_are_asked_for_and_the_plan_says_so():
    plan = flow.plan(pipeline(2), devices=8)
    assert (plan.devices, [rank.ranks for rank in plan.ranks]) == (8, ["0-1", "2-3"])
    *scopes, bubble, idle = plan.notes
    assert "2 stages: each works m/(m+p-1) = " in bubble
    assert idle == "4 of 8 devices have no part in the job"
    assert [note.split(" on are placed on ")[1] for note in scopes] == [
        f"cpu[0:{which}] by flow.scope.placement and stay there; take the scope out to plan them for cpu[0:0-7]"
        for which in ("0-1", "2-3")
    ]


def test_a_scope_on_devices_that_were_not_asked_for_is_refused():
    with pytest.raises(
        ArgumentError,
        match=r"planned for cpu\[0:0-2\], and this op is placed on cpu\[0:2-3\] by a flow\.scope\.placement; plan for more",
    ):
        flow.plan(pipeline(2), devices=3)


def measure_every_rank(monkeypatch):
    monkeypatch.setattr(
        import_module("oneflow.engine.plan.make"), "alike", lambda assigned: [[rank] for rank in assigned.ranks]
    )


@pytest.mark.parametrize("rows, devices", [(7, 3), (13, "2x3"), (70, "2x3")])
def test_ranks_of_one_row_each_cost_that(monkeypatch, rows, devices):
    job = train_job(rows)
    plan = flow.plan(job, devices=devices)
    measure_every_rank(monkeypatch)
    assert flow.plan(job, devices=devices) == plan


@pytest.mark.parametrize(
    "batch, sends",
    [
        (12, [("0-3", Traffic(1, FLOAT * 3 * WIDE)), ("4-5", None)]),
        (
            3,
            [("0-1", Traffic(1, FLOAT * 3 * WIDE)), ("2-3", None), ("4-5", None)],
        ),  # all have it whole, two of them send it
    ],
)
def test_ranks_that_send_to_fewer_others_are_told_apart(monkeypatch, batch, sends):
    @flow.global_function(type="predict")
    def narrowing(x: tp.Numpy.Placeholder((batch, WIDE))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:0-3"):
            hidden = flow.math.relu(x)
        with flow.scope.placement("cpu", "0:4-5"):
            return flow.matmul(hidden, weight("last", (WIDE, NARROW)))

    plan = flow.plan(narrowing)
    assert [(rank.ranks, rank.communicated.get("send")) for rank in plan.ranks] == sends
    measure_every_rank(monkeypatch)
    assert flow.plan(narrowing) == plan


def test_an_op_without_a_rule_runs_whole_and_the_plan_says_so(monkeypatch):
    monkeypatch.delitem(RULES, torch.ops.aten.relu.default)

    @flow.global_function(type="predict")
    def odd(x: tp.Numpy.Placeholder((8, WIDE))) -> tp.Numpy:
        return flow.math.relu(x, name="odd_one")

    plan = flow.plan(odd, devices=4)
    (note,) = plan.notes
    assert note.startswith(
        "aten.relu.default has no SBP rule: its inputs are made whole and every device computes all of it (1 op, first "
        "'odd_one' at "
    )
    (op,) = [op for op in plan.ops if op.name == "odd_one"]
    assert (op.has_rule, op.local_shape, op.boxing[0].collective) == (False, (8, WIDE), "all_gather")


def test_in_the_mirrored_view_every_device_has_a_batch_of_its_own():
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(type="train", function_config=config)
    def copied(x: tp.ListNumpy.Placeholder((2, WIDE))) -> tp.ListNumpy:
        loss = flow.matmul(x, weight("first", (WIDE, NARROW)))
        minimize(loss)
        return loss

    plan = flow.plan(copied, devices=4)
    (rank,) = plan.ranks
    assert rank.flops == 2 * 2 * 2 * WIDE * NARROW
    assert [note.split(":")[0] for note in plan.notes] == ["mirrored view"]
    assert dict(rank.communicated) == {"all_reduce": Traffic(1, FLOAT * WIDE * NARROW)}


# ------------------------------------------------------------------ memory


def test_peak_memory_is_what_lives_at_once():
    @flow.global_function(type="predict")
    def chain(x: tp.Numpy.Placeholder((16, 16))) -> tp.Numpy:
        scale = weight("scale", (16, 1))
        first = x * scale  # three tensors that are the size of x, no more than two of them at once
        second = flow.math.sigmoid(flow.transpose(first, (1, 0)))  # a view needs nothing
        return flow.math.sigmoid(second)

    (rank,) = flow.plan(chain).ranks
    assert (rank.variables, rank.peak_memory) == (FLOAT * 16, FLOAT * (16 + 3 * 256))


def test_a_bucket_has_memory_of_its_own():
    one = flow.plan(train_job(2**16)).ranks[0].peak_memory
    flow.clear_default_session()
    two = flow.plan(train_job(2**17), devices=2).ranks[0].peak_memory
    assert two - one == VARIABLES


# ------------------------------------------------------------------ what collectives count


@pytest.mark.parametrize(
    "target, args, kind, moved, shape",
    [
        (collective.all_reduce, ((4, 6), "sum", (0, 1, 2)), "all_reduce", 24, (4, 6)),
        (collective.all_gather, ((4, 6), (0, 1, 2)), "all_gather", 48, (3, 4, 6)),
        (collective.gather_parts, ((4, 6), 0, (4, 3, 3), (0, 1, 2)), "all_gather", 36, (10, 6)),
        (collective.reduce_parts, ((10, 6), 0, (4, 3, 3), (0, 1, 2)), "reduce_scatter", 36, (4, 6)),
        (collective.exchange_parts, ((4, 6), 0, 1, (4, 3, 3), (2, 2, 2), (0, 1, 2)), "all_to_all", 16, (10, 2)),
        (collective.part_of, ((10, 6), 0, (4, 3, 3), 0), "slice", 0, (4, 6)),
        (collective.as_partial, ((4, 6), False), "none", 0, (4, 6)),
        (collective.part_as_partial, ((4, 6), 0, (4, 3, 3), 0), "none", 0, (10, 6)),
    ],
)
def test_the_bytes_of_a_collective_are_its_payload(target, args, kind, moved, shape):
    made = exchange_on(0, target, (fresh(args[0], torch.float32), *args[1:]), {})
    assert (made.kind, made.bytes, made.value.shape) == (kind, FLOAT * moved, shape)


def test_a_rank_sends_blocks_to_others_and_none_to_itself():
    outgoing = (Piece(0, (0, 0), (2, 6)), Piece(1, (2, 0), (2, 6)))
    incoming = (Piece(0, (0, 0), (2, 6)), Piece(2, (2, 0), (1, 6)))
    made = exchange_on(
        0, collective.exchange, (fresh((4, 6), torch.float32), (3, 6), torch.float32, outgoing, incoming, 1, "cpu"), {}
    )
    assert (made.kind, made.calls, made.bytes, made.received, made.value.shape) == (
        "send",
        1,
        FLOAT * 12,
        FLOAT * 6,
        (3, 6),
    )


@pytest.mark.parametrize(
    "devices, text",
    [
        ([(0, 0)], "gpu[0:0]"),
        ([(0, d) for d in range(1024)], "gpu[0:0-1023]"),
        ([(m, d) for m in range(8) for d in range(128)], "gpu[0-7:0-127]"),
        ([(0, 0), (0, 1), (1, 3)], "gpu[0:0-1, 1:3]"),
    ],
)
def test_devices_are_written_in_short(devices, text):
    assert devices_text("gpu", devices) == text


# ------------------------------------------------------------------ the session


def test_a_planned_job_runs_and_can_be_planned_again():
    learn = train_job(4)
    before = flow.plan(learn, devices=1024)
    session = default_session()
    assert session.backend is None and not session.store.has_values
    assert learn(np.zeros((4, WIDE), np.float32)).shape == (4, NARROW)
    assert flow.plan(learn, devices=1024) == before
    assert prod(flow.plan(learn).axes) == 1
    assert learn(np.zeros((4, WIDE), np.float32)).shape == (4, NARROW)
