"""Layouts are chosen by what the whole step costs, not op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import calls, compiled, exchanges, gradient_bytes, layouts, programs, reduced_bytes
from nets import Spread, batch_normed, lenet

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.program.notes import joint_note

aten = torch.ops.aten
SPLIT, WHOLE = flow.distribute.split, flow.distribute.broadcast


def weight(name: str, *shape: int, **more: Any) -> Any:
    return flow.get_variable(name, shape, initializer=flow.zeros_initializer(), **more)


def minimize(loss: Any) -> Any:
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss


def image_job(net: Callable[[Spread, Any], Any], batch: int, how: Spread | None = None) -> Callable[..., Any]:
    images, labels = flow.FixedTensorDef((batch, 1, 12, 12)), flow.FixedTensorDef((batch,), flow.int32)

    def job(x=images, y=labels):  # type: ignore[no-untyped-def]
        return minimize(flow.nn.sparse_softmax_cross_entropy_with_logits(y, net(how or Spread(), x)))

    return job


@pytest.mark.parametrize("devices", range(2, 9))
def test_a_network_without_hints_is_data_parallel(devices: int) -> None:
    assigned = compiled(image_job(lenet, 16), devices)
    for op in (aten.convolution.default, aten.relu.default, aten.mm.default, aten.addmm.default):
        forward = [node for node in assigned.graph.nodes if node.target is op and joint_note(node).part == "forward"]
        assert {str(joint_note(node).outputs[0][0]) for node in forward} <= {"S(0)"}
    for program in programs(assigned):
        assert exchanges(program) == {"bucket_start": 1}
        assert gradient_bytes(assigned) <= reduced_bytes(program) <= 1.01 * gradient_bytes(assigned)


def test_batch_norm_adds_two_small_collectives_a_layer() -> None:
    assigned = compiled(image_job(batch_normed, 16), 2)
    (program, _) = programs(assigned)
    found = exchanges(program)
    assert found["bucket_start"] == 1 and found["all_gather"] + found["all_reduce"] == 4 and sum(found.values()) == 5
    assert reduced_bytes(program) <= 1.01 * gradient_bytes(assigned)


def test_gradients_that_pass_a_transpose_are_summed_at_the_end_with_the_others() -> None:
    def job(x=flow.FixedTensorDef((8, 16))):  # type: ignore[no-untyped-def]
        h = flow.matmul(
            flow.math.tanh(flow.matmul(x, weight("a", 12, 16), transpose_b=True)), weight("b", 4, 12), transpose_b=True
        )
        return minimize(flow.nn.bias_add(h, weight("c", 4)))

    assert exchanges(programs(compiled(job, 2))[0]) == {"bucket_start": 1}


def two_layers(first: Any, second: Any) -> Callable[..., Any]:
    def job(x=flow.FixedTensorDef((64, 512), batch_axis=None)):  # type: ignore[no-untyped-def]
        h = flow.math.tanh(flow.matmul(x, weight("a", 512, 512, distribute=first)))
        return flow.matmul(h, weight("b", 512, 512, distribute=second))

    return job


def test_columns_then_rows_need_one_reduction() -> None:
    assigned = compiled(two_layers(SPLIT(1), SPLIT(0)), 2, train=False)
    assert layouts(assigned, aten.mm.default) == ["S(1)", "P"]
    assert sum(exchanges(programs(assigned)[0]).values()) == 0  # the driver adds the partial sums of a result


def test_columns_then_rows_in_training_reduce_once_forward_and_once_back() -> None:
    def job(x=flow.FixedTensorDef((64, 512), batch_axis=None)):  # type: ignore[no-untyped-def]
        x = flow.math.tanh(flow.matmul(x, weight("whole", 512, 512)))
        h = flow.math.tanh(flow.matmul(x, weight("a", 512, 512, distribute=SPLIT(1))))
        return minimize(flow.math.tanh(flow.matmul(h, weight("b", 512, 512, distribute=SPLIT(0)))))

    found = exchanges(programs(compiled(job, 2))[0])
    assert found["all_reduce"] + found["reduce_parts"] == 2, "forward behind b, backward before the whole layer"
    assert found["gather_parts"] <= found["reduce_parts"], (
        "a sum is perhaps taken in two halves, to share the work between them"
    )


def test_partial_sums_are_added_before_they_are_reduced() -> None:
    def job(x=flow.FixedTensorDef((64, 512), batch_axis=None), y=flow.FixedTensorDef((64, 512), batch_axis=None)):  # type: ignore[no-untyped-def]
        rows = {"distribute": SPLIT(0)}
        total = flow.matmul(x, weight("a", 512, 64, **rows)) + flow.matmul(y, weight("b", 512, 64, **rows))
        return flow.math.tanh(total), flow.math.sigmoid(total)

    assigned = compiled(job, 2, train=False)
    assert layouts(assigned, aten.add.Tensor) == ["P"]
    assert sum(exchanges(programs(assigned)[0]).values()) == 1


def test_a_value_that_two_ops_want_whole_is_made_whole_once() -> None:
    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        h = flow.math.tanh(x)
        return [flow.math.top_k(flow.transpose(h, (1, 0)), k=2), flow.sort(flow.transpose(h, (1, 0)))]

    assert sum(exchanges(programs(compiled(job, 2, train=False))[0]).values()) <= 2


def test_hints_are_obeyed() -> None:
    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        a = flow.math.tanh(x.with_distribute(SPLIT(1)))
        b = flow.math.sigmoid(flow.parallel_cast(a, WHOLE()))
        return flow.math.exp(flow.parallel_cast(b, SPLIT(0)))

    assigned = compiled(job, 2, train=False)
    assert [layouts(assigned, op) for op in (aten.tanh.default, aten.sigmoid.default, aten.exp.default)] == [
        ["S(1)"],
        ["B"],
        ["S(0)"],
    ]


def test_a_hint_for_the_gradient_is_obeyed() -> None:
    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        h = flow.parallel_cast(flow.math.tanh(flow.matmul(x, weight("a", 8, 8))), gradient_distribute=SPLIT(1))
        return minimize(flow.math.sigmoid(h))

    assert layouts(compiled(job, 2), aten.tanh_backward.default) == ["S(1)"]


def test_what_came_whole_may_be_split_if_the_user_says_so() -> None:
    def job(x=flow.FixedTensorDef((1, 8))):  # type: ignore[no-untyped-def]
        return flow.math.tanh(x.with_distribute(SPLIT(1)))

    assert layouts(compiled(job, 2, train=False), aten.tanh.default) == ["S(1)"]


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_value_crosses_to_another_placement_once_for_all_who_read_it(micro_batches: int) -> None:
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(micro_batches)

    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        with flow.scope.placement("cpu", "0:0"):
            h = flow.math.tanh(flow.matmul(x, weight("a", 8, 8)))
        with flow.scope.placement("cpu", "0:1"):
            return minimize(flow.matmul(h, weight("b", 8, 8)) * flow.math.sigmoid(h) + h)

    first, second = programs(compiled(job, 2, config=config))
    for program in (first, second):
        assert exchanges(program) == {"exchange": 2}, "the value ahead, the gradient back"


def test_ranks_of_one_step_call_the_same_collectives_in_the_same_order() -> None:
    how = Spread(4, ("B", "S(0)"), hierarchy=(2, 2))

    def on_mesh(how: Spread, x: Any) -> Any:
        return lenet(how, x)

    assigned = compiled(image_job(on_mesh, 8, how), 4)
    orders = [
        [(node.target.__name__) for node in calls(program) if node.target.__module__.startswith(collective.__name__)]
        for program in programs(assigned)
    ]
    assert all(order == orders[0] for order in orders)


def test_an_op_without_a_rule_runs_on_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    from oneflow.engine.sharding.rules.table import RULES

    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        return flow.math.tanh(flow.math.sigmoid(x))

    monkeypatch.delitem(RULES, aten.tanh.default)
    assigned = compiled(job, 2, train=False)
    assert layouts(assigned, aten.sigmoid.default) == ["S(0)"] and layouts(assigned, aten.tanh.default) == ["B"]
    assert exchanges(programs(assigned)[0]) == {"gather_parts": 1}


def test_a_hint_that_cannot_be_is_an_error_with_the_users_line() -> None:
    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        return flow.parallel_cast(x, SPLIT(3))

    with pytest.raises(
        ArgumentError, match=r"test_infer.py:\d+: op '\S+': a value of shape \(8, 8\) cannot be split along dim 3"
    ):
        compiled(job, 2, train=False)


def test_a_variable_that_an_op_changes_from_elsewhere_is_an_error_with_the_users_line() -> None:
    def job(x=flow.FixedTensorDef((8, 4))):  # type: ignore[no-untyped-def]
        with flow.scope.placement("cpu", "0:0"):
            flow.watch(flow.identity(weight("norm-moving_mean", 4, trainable=False)), print)
        return minimize(flow.layers.batch_normalization(x * weight("w", 4), axis=1, name="norm"))

    with pytest.raises(
        ArgumentError, match=r"test_infer.py:\d+: op 'norm': it changes a variable .* on the placement of the op"
    ):
        compiled(job, 2)


def test_what_every_rank_has_is_never_a_partial_sum() -> None:
    """The loss scale of a step comes to every rank: added up it would be as many times too large."""
    scale = flow.optimizer.loss_scale.dynamic_loss_scale(1024.0)

    def job(x=flow.FixedTensorDef((8, 8))):  # type: ignore[no-untyped-def]
        with flow.scope.placement("cpu", "0:1-2"):
            loss = flow.matmul(x, weight("w", 8, 8))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), loss_scale_policy=scale).minimize(loss)
        return loss

    assigned = compiled(job, 4)
    assert layouts(assigned, aten.div.Tensor) == ["B"] and assigned.ranks == (1, 2)


def test_layouts_left_to_the_compiler_are_settled() -> None:
    def job(x=flow.FixedTensorDef((8, 512))):  # type: ignore[no-untyped-def]
        h = flow.math.tanh(flow.matmul(x, weight("a", 512, 2048, distribute=flow.distribute.auto())))
        return minimize(flow.matmul(h, weight("b", 2048, 512, distribute=flow.distribute.auto())))

    assigned = compiled(job, 2)
    assert {str(layout.sbp[0]) for layout in assigned.layouts.values()} <= {"B", "S(0)", "S(1)"}
    whole_model = 2 * 512 * 2048 * 4
    assert reduced_bytes(programs(assigned)[0]) < 0.1 * whole_model, (
        "weights this large are split, activations this small are moved"
    )
