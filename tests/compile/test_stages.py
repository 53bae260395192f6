"""Every stage of the compiler leaves what it says: looked at between the stages, for networks on every layout; and the
look itself can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from distributed import compiled_for
from nets import LAYOUTS, NETS, ONE, Spread, batch_normed, dropped_out, lenet, mlp

import oneflow as flow
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.ir.nodes import argument
from oneflow.engine.passes.pipeline import PASSES, Setting, compile_rank
from oneflow.engine.passes.verify import verify
from oneflow.engine.program.digest import digest
from oneflow.engine.program.notes import (
    ArgumentNote,
    JointNote,
    LocalNote,
    UpdateNote,
    change_joint_note,
    joint_note,
    set_argument_note,
    set_joint_note,
    set_local_note,
    update_note,
)
from oneflow.engine.program.program import Program

TRAINING_PASSES = [each.name for each in PASSES if each.when(Setting(folds=False, fuses=True, is_common=True))]
MORE = {
    "one": ONE,
    "auto": Spread(2, ("auto",)),
    "two stages of two": Spread(4, stages=("0:0-1", "0:2-3")),
    "a stage of one, a stage of two": Spread(3, stages=("0:0", "0:1-2")),
    "states shared out, weights split": Spread(4, ("B", "S(0)"), hierarchy=(2, 2), shares_states=True),
}


def job_of(net: Callable[..., Any], how: Spread, train: bool = True) -> Callable[..., Any]:
    def job(x=flow.FixedTensorDef((how.batch, 1, 12, 12)), y=flow.FixedTensorDef((how.batch,), dtype=flow.int32)):  # type: ignore[no-untyped-def]
        logits = net(how, x)
        if not train:
            return logits
        with how.stage(1):
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.9).minimize(loss)
        return loss

    return job


def verified(net: Callable[..., Any], how: Spread, train: bool = True) -> list[str]:
    """Compiles a job for all ranks with a look after every stage; the stages that there were."""
    seen: list[str] = []

    def after(stage: str, left: Any) -> None:
        verify(stage, left)
        seen.append(stage)

    assigned = compiled_for(job_of(net, how, train), how.devices, train, how.config(), after)
    for rank in assigned.ranks:
        compile_rank(assigned, rank, after=after)
    return seen


@pytest.mark.parametrize("layout", [*LAYOUTS, *MORE])
@pytest.mark.parametrize("net", NETS)
def test_every_stage_leaves_what_it_says(net: str, layout: str) -> None:
    how = {**LAYOUTS, **MORE}[layout]
    last = "free strides" if how.devices == 1 else "without writes"
    assert verified(NETS[net], how) == [
        "joint",
        "clean",
        last,
        "recompute",
        "assigned",
        *["lowered", *TRAINING_PASSES] * how.devices,
    ]


@pytest.mark.parametrize("layout", ["one", "dp2", "pp2", "zero", "two stages of two"])
def test_stages_of_jobs_in_micro_batches(layout: str) -> None:
    verified(dropped_out, replace({**LAYOUTS, **MORE}[layout], micro_batches=4))


@pytest.mark.parametrize("layout", ["one", "dp2", "tp2", "dp x tp", "pp2"])
def test_stages_of_predict_jobs(layout: str) -> None:
    verified(lenet, {**LAYOUTS, **MORE}[layout], train=False)


# ------------------------------------------------------------------ layouts are inferred once


@pytest.mark.parametrize("net", [mlp, lenet, batch_normed])
@pytest.mark.parametrize(
    "how",
    [Spread(2, ("auto",)), Spread(4, ("auto",)), Spread(2, ("auto",), micro_batches=2)],
    ids=["2", "4", "micro-batches"],
)
def test_layouts_that_the_compiler_chose_are_those_it_would_compile_for(net: Callable[..., Any], how: Spread) -> None:
    """A second search, for what the first has chosen, gives the same programs: so one is enough."""
    job = job_of(net, how)
    once = compiled_for(job, how.devices, True, how.config())
    again = compiled_for(job, how.devices, True, how.config(), layouts=once.layouts)
    assert all(sbp.kind in ("S", "B") for layout in once.layouts.values() for sbp in layout.sbp)
    for rank in range(how.devices):
        assert digest(compile_rank(once, rank)) == digest(compile_rank(again, rank))


def test_a_variable_that_is_updated_by_rows_is_chosen_to_be_split_by_rows_or_not_at_all() -> None:
    def job(x=flow.FixedTensorDef((8,), dtype=flow.int32)):  # type: ignore[no-untyped-def]
        table = flow.get_variable(
            "table", (64, 4096), initializer=flow.ones_initializer(), distribute=flow.distribute.auto()
        )
        loss = flow.math.reduce_sum(flow.math.square(flow.gather(table, x)), axis=[1])
        flow.optimizer.LazyAdam(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    config = flow.function_config()
    config.indexed_slices_optimizer_conf({"include_op_names": {"op_name": ["table"]}})
    layout = compiled_for(job, 2, True, config).layouts["table"]
    assert layout.sbp[0].dim in (None, 0)


# ------------------------------------------------------------------ the look can fail


def assigned_net() -> Assigned:
    return compiled_for(job_of(mlp, LAYOUTS["dp2"]), 2)


def first_call(graph: torch.fx.Graph) -> torch.fx.Node:
    return next(node for node in graph.nodes if node.op == "call_function")


def test_a_node_without_a_mesh_is_found() -> None:
    assigned = assigned_net()
    set_joint_note(first_call(assigned.graph), JointNote())
    with pytest.raises(AssertionError, match="stage 'place' left .*: has no mesh"):
        verify("place", assigned)


def test_a_signature_that_does_not_fit_is_found() -> None:
    assigned = assigned_net()
    node = first_call(assigned.graph)
    signature = joint_note(node).signatures[0]
    change_joint_note(node, signatures=(replace(signature, inputs=(*signature.inputs, signature.inputs[0])),))
    with pytest.raises(AssertionError, match="has [0-9]+ inputs and a signature of [0-9]+"):
        verify("infer", assigned)


def test_an_idle_node_is_found() -> None:
    def after(stage: str, left: Any) -> None:
        if stage == "without writes":
            source = first_call(left)
            with left.inserting_after(source):
                idle = left.call_function(torch.ops.aten.relu.default, (source,))
            idle.meta = dict(source.meta)
            verify(stage, left)

    with pytest.raises(AssertionError, match="stage 'without writes' left relu.*: is read by nobody"):
        compiled_for(job_of(mlp, LAYOUTS["dp2"]), 2, after=after)


def program() -> Program:
    return compile_rank(assigned_net(), 0)


def test_a_variable_that_is_updated_twice_is_found() -> None:
    made = program()
    graph = made.sections["step"].graph
    (names,) = [note.names for node in graph.nodes if (note := update_note(node)) is not None]
    set_local_note(first_call(graph), LocalNote(update=UpdateNote("SGD", names, (1,) * len(names), True, True)))
    with pytest.raises(AssertionError, match="updates a variable twice"):
        verify("update", made)


def test_arguments_out_of_order_are_found() -> None:
    made = program()
    section = made.sections["step"]
    turned = replace(made, sections={"step": replace(section, inputs=section.inputs[::-1])})
    with pytest.raises(AssertionError, match="stage 'cut' left step: has arguments out of order"):
        verify("cut", turned)


def test_a_result_that_no_section_makes_is_found() -> None:
    with pytest.raises(AssertionError, match="is to give .*, which no section makes"):
        verify("cut", replace(program(), results=(("value", 10**6),)))


def test_an_argument_that_is_noted_as_another_is_found() -> None:
    made = program()
    node = next(iter(made.sections["step"].graph.nodes))
    set_argument_note(node, ArgumentNote(("variable", "another")))
    with pytest.raises(AssertionError, match="is argument .* and noted as"):
        verify("cut", made)


def test_something_that_is_no_plain_value_is_found() -> None:
    made = program()
    node = next(node for node in made.sections["step"].graph.nodes if node.op == "call_function" and node.args)
    node.kwargs = {**node.kwargs, "buffer": torch.ones(2)}
    assert argument(node, 0) is not None
    with pytest.raises(Exception, match="a program holds tensor"):
        verify("lower", made)
