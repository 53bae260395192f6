"""A rank's program, optimized to run, updates every variable once, after all that reads it and before all that sends it
on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from distributed import calls, compiled, programs
from nets import batch_normed, lenet
from test_infer import image_job, minimize, weight
from torch import fx

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.ops.updates import gradients
from oneflow.engine.passes import early
from oneflow.engine.passes.gather_views import gather_then_transpose
from oneflow.engine.passes.pipeline import optimized
from oneflow.engine.program import large_products
from oneflow.engine.program.aliases import memories
from oneflow.engine.program.notes import update_note
from oneflow.engine.program.program import Program

aten = torch.ops.aten


def zero() -> Any:
    config = flow.function_config()
    config.optimizer_placement_optimization_mode("distributed_split")
    config.optimizer_placement_optimization_threshold(1)
    return config


def updated(program: Program) -> list[str]:
    return sorted(name for node in calls(program) if update_note(node) for name in update_note(node).names)


@pytest.mark.parametrize("config", [None, zero], ids=["whole", "split state"])
@pytest.mark.parametrize("net", [lenet, batch_normed])
def test_the_same_variables_are_updated_and_only_then_sent_on(net, config, monkeypatch) -> None:
    monkeypatch.setattr(early, "BYTES", 1)
    assigned = compiled(image_job(net, 16), 2, config=config and config())
    for before, program in zip(programs(assigned), map(optimized, programs(assigned))):
        assert updated(program) == updated(before) != []
        nodes = calls(program)
        updates = [i for i, node in enumerate(nodes) if update_note(node)]
        sent = [i for i, node in enumerate(nodes) if node.target is collective.gather_into]
        assert bool(sent) == bool(config)
        assert all(update_place < place for update_place in updates for place in sent)


def a_wide_layer(x=flow.FixedTensorDef((4, 64))):  # type: ignore[no-untyped-def]
    hidden = flow.math.tanh(flow.matmul(x, weight("wide", 4096, 64), transpose_b=True))
    return minimize(flow.math.reduce_mean(hidden, axis=[1]))


def assigned_wide_layer(x=flow.FixedTensorDef((4, 64))):  # type: ignore[no-untyped-def]
    flow.assign(weight("wide", 4096, 64), flow.math.tanh(weight("other", 4096, 64)))
    return a_wide_layer(x)


def test_of_a_gradient_that_every_rank_could_make_each_makes_some_rows(monkeypatch) -> None:
    monkeypatch.setattr(large_products, "ROWS_BYTES", 1 << 16)
    program = optimized(programs(compiled(a_wide_layer, 2))[0])
    targets = [node.target for node in calls(program)]
    assert (
        collective.bucket_start not in targets
        and gradients.by_rows not in targets
        and targets[-1] is collective.rows_wait
    )
    (made,) = [node for node in calls(program) if node.target is collective.update_rows]
    one_copy, begun, (variable,), _, _, (momentum,), _ = made.args
    assert one_copy == collective.OneCopy((0, 1)) and update_note(made).names == ("wide",)
    assert begun.target is collective.read_last and begun.args == (one_copy, [variable, momentum])
    memory = memories(program.sections["step"].graph)
    read = [
        node
        for node in calls(program)
        if node not in (begun, made) and memory[variable] in map(memory.get, node.all_input_nodes)
    ]
    assert read and max(read) < begun < made


@pytest.mark.parametrize(
    "job, is_common",
    [(a_wide_layer, False), (assigned_wide_layer, True)],
    ids=["ranks differ", "something else writes it"],
)
def test_otherwise_every_rank_makes_it_and_uses_it_by_rows(job, is_common: bool, monkeypatch) -> None:
    monkeypatch.setattr(large_products, "ROWS_BYTES", 1 << 16)
    program = optimized(replace(programs(compiled(job, 2))[0], is_common=is_common))
    targets = [node.target for node in calls(program)]
    assert gradients.by_rows in targets and not {
        collective.bucket_start,
        collective.update_rows,
        collective.rows_wait,
    } & {*targets}


def square(x: Any) -> Any:
    return flow.math.reduce_mean(
        flow.math.tanh(flow.matmul(x, weight("square", 1024, 1024), transpose_b=True)), axis=[1]
    )


def a_large_batch(x=flow.FixedTensorDef((128, 1024))):  # type: ignore[no-untyped-def]
    return minimize(square(x))


def clipped_large_batch(x=flow.FixedTensorDef((128, 1024))):  # type: ignore[no-untyped-def]
    clip = flow.optimizer.grad_clipping.by_global_norm(1.0)
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), grad_clipping=clip).minimize(square(x))


@pytest.mark.parametrize(
    "job, rows, most, is_shared",
    [
        (a_large_batch, 1 << 16, 2, True),
        (a_large_batch, 1 << 16, 1, False),
        (a_large_batch, 1 << 22, 2, False),
        (clipped_large_batch, 1 << 16, 2, False),
    ],
    ids=["one host", "more ranks than share memory", "a small variable", "clipped"],
)
def test_a_gradient_over_a_large_batch_is_added_up_unless_ranks_can_share_its_rows(
    job, rows: int, most: int, is_shared: bool, monkeypatch
) -> None:
    """To make all of it on each of them would be too much work."""
    monkeypatch.setattr(large_products, "ROWS_BYTES", rows)
    monkeypatch.setattr(collective, "MOST_RANKS", most)
    targets = [node.target for node in calls(optimized(programs(compiled(job, 2))[0]))]
    assert (collective.update_rows in targets, collective.bucket_start in targets) == (is_shared, not is_shared)


def two_wide_layers(x=flow.FixedTensorDef((4, 64))):  # type: ignore[no-untyped-def]
    for name, wide, narrow in (("first", 4096, 64), ("second", 64, 4096)):
        x = flow.math.tanh(flow.matmul(x, weight(name, wide, narrow), transpose_b=True))
    return minimize(flow.math.reduce_mean(x, axis=[1]))


def test_no_rank_waits_for_others_before_its_backward_pass_is_done(monkeypatch) -> None:
    monkeypatch.setattr(large_products, "ROWS_BYTES", 1 << 16)
    for program in map(optimized, programs(compiled(two_wide_layers, 2))):
        targets = [node.target for node in calls(program)]
        assert targets.count(collective.gather_start) == targets.count(collective.gather_wait) == 4
        assert collective.gather_parts not in targets
        computed = max(i for i, target in enumerate(targets) if isinstance(target, torch._ops.OpOverload))
        assert computed < targets.index(collective.gather_wait) < targets.index(collective.update_rows)


def test_a_product_is_made_where_the_bucket_wants_it() -> None:
    for program in map(optimized, programs(compiled(image_job(lenet, 256), 2))):
        (start, *_) = [node for node in calls(program) if node.target is collective.bucket_start]
        bucket, values = start.args
        made = [value for value in values if value.target is collective.product_in]
        assert made and all(value.args[:2] == (bucket, values.index(value)) for value in made)


def test_a_bucket_keeps_a_value_where_it_was_made() -> None:
    a, b = torch.randn(3, 2), torch.randn(2, 4)
    bucket = collective.RunningBucket(collective.Bucket(0, (0,)))
    assert torch.equal(collective.product_in(bucket, 0, a, b), a @ b)  # before the bucket is laid out
    bucket._rooms = [torch.zeros(3, 4)]
    assert collective.product_in(bucket, 0, a, b) is bucket.room(0)
    torch.testing.assert_close(bucket.room(0), a @ b)


def test_a_rank_writes_over_what_one_device_would() -> None:
    for program in map(optimized, programs(compiled(image_job(lenet, 16), 2))):
        targets = [node.target for node in calls(program)]
        assert aten.relu_.default in targets and aten.relu.default not in targets
        assert aten.threshold_backward.grad_input in targets


def gathered(is_variable: bool) -> list[tuple[Any, int | None]]:
    """The calls of a graph that gathers the transpose of a value, with the dims of gathers, after the pass."""
    graph: fx.Graph = fx.Graph()
    given = graph.placeholder("w")
    value = given if is_variable else graph.call_function(aten.relu.default, (given,))
    turned = graph.call_function(aten.t.default, (value,))
    graph.output((graph.call_function(collective.gather_parts, (turned, 1, (2, 2), (0, 1))),))
    gather_then_transpose(graph)
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    return [(node.target, node.args[1] if node.target is collective.gather_parts else None) for node in nodes]


def test_a_variable_is_gathered_before_it_is_transposed() -> None:
    assert gathered(is_variable=True) == [(collective.gather_parts, 0), (aten.t.default, None)]


def test_what_is_gathered_for_a_gradient_stays_as_it_was() -> None:
    assert gathered(is_variable=False) == [
        (aten.relu.default, None),
        (aten.t.default, None),
        (collective.gather_parts, 1),
    ]
