"""A program is a plain value: it can be compared, has one digest in every process, and is not changed by what is made
of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from distributed import compiled, programs
from nets import batch_normed, lenet
from test_infer import image_job, weight

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.passes.pipeline import optimized
from oneflow.engine.program.digest import digest
from oneflow.engine.program.program import Program
from oneflow.engine.program.serialize import pack, unpack
from oneflow.engine.step.codegen import generate

PRINTED = """
import json
from test_digest import jobs
from oneflow.engine.program.digest import digest
from oneflow.engine.passes.pipeline import optimized
from distributed import programs
print(json.dumps([digest(optimized(program)) for assigned in jobs() for program in programs(assigned)]))
"""


def many_results(a=flow.FixedTensorDef((4, 6)), b=flow.FixedTensorDef((4, 6)), c=flow.FixedTensorDef((4, 6))):  # type: ignore[no-untyped-def]
    """Results that are arguments: nothing computes them, so nothing but the program's own order tells which comes
    first."""
    return a, b, c, flow.math.add(a, b), c


def two_stages(x=flow.FixedTensorDef((8, 6))):  # type: ignore[no-untyped-def]
    with flow.scope.placement("cpu", "0:0-0"):
        x = flow.math.tanh(flow.matmul(x, weight("first", 6, 6)))
    with flow.scope.placement("cpu", "0:1-1"):
        loss = flow.math.reduce_mean(flow.matmul(x, weight("second", 6, 6)), axis=[1])
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss


def trained(momentum: float = 0.9, size: int = 16):  # type: ignore[no-untyped-def]
    def job(x=flow.FixedTensorDef((8, size))):  # type: ignore[no-untyped-def]
        loss = flow.math.reduce_mean(flow.math.tanh(flow.matmul(x, weight("w", size, 4))), axis=[1])
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=momentum).minimize(loss)
        return loss

    return job


def in_micro_batches():  # type: ignore[no-untyped-def]
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)
    return config


def jobs():  # type: ignore[no-untyped-def]
    """Jobs of every kind that ranks run: buckets, early gathers, stages, sections, plain results."""
    yield compiled(image_job(lenet, 256), 2)
    yield compiled(image_job(batch_normed, 16), 3)
    yield compiled(two_stages, 2)
    yield compiled(two_stages, 2, config=in_micro_batches())
    yield compiled(many_results, 2, train=False)


def in_another_process(seed: str) -> list[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_process_has_the_same_digests_and_every_program_its_own() -> None:
    here = [digest(optimized(program)) for assigned in jobs() for program in programs(assigned)]
    assert here == in_another_process("1") == in_another_process("2")
    assert len(set(here)) == len(here) == 11 and all(len(text) == 64 for text in here)


def first(job, devices: int = 2) -> Program:
    return programs(compiled(job, devices))[0]


def test_the_same_job_is_the_same_program() -> None:
    one, two = first(trained()), first(trained())
    assert digest(one) == digest(two) and pack(one, str) == pack(two, str)
    assert digest(unpack(pack(one, str))) == digest(one)


def test_what_errors_say_does_not_count() -> None:
    program = first(trained())
    assert digest(unpack(pack(program, lambda node: "op 'a' from a.py:1"))) == digest(
        unpack(pack(program, lambda node: "op 'b' from b.py:2"))
    )


@pytest.mark.parametrize("other", [trained(momentum=0.8), trained(size=18)], ids=["a constant", "a shape"])
def test_another_job_is_another_program(other) -> None:
    assert digest(first(other)) != digest(first(trained()))
    assert pack(first(other), lambda node: "") != pack(first(trained()), lambda node: "")


def test_a_program_for_more_ranks_is_another_program() -> None:
    assert digest(first(trained(), 2)) != digest(first(trained(), 3))


@pytest.mark.parametrize(
    "field, value",
    [
        ("rank", 1),
        ("schedule", (("forward", 1),)),
        ("results", (None,)),
        ("gradients", (("value", 3),)),
        ("finite", ("value", 4)),
        ("is_common", False),
    ],
)
def test_every_field_counts(field, value) -> None:
    program = first(trained())
    assert digest(replace(program, **{field: value})) != digest(program)


@pytest.mark.parametrize("change", [{"ranks": (1, 0)}, {"is_common": False}, {"number": 7}])
def test_every_number_of_a_bucket_counts(change) -> None:
    program = first(image_job(lenet, 256))
    before = digest(program)
    for node in program.sections["step"].graph.nodes:
        node.args = tuple(replace(arg, **change) if isinstance(arg, collective.Bucket) else arg for arg in node.args)
    assert digest(program) != before


def test_the_order_of_calls_counts() -> None:
    program = first(trained())
    before = digest(program)
    graph = program.sections["step"].graph
    with graph.inserting_before(next(node for node in graph.nodes if node.op == "call_function")):
        graph.call_function(collective.part_of, (next(iter(graph.nodes)), 0, (8, 8), 0))
    assert digest(program) != before


def test_what_is_no_plain_value_is_refused() -> None:
    program = first(trained())
    graph = program.sections["step"].graph
    with graph.inserting_before(next(iter(reversed(graph.nodes)))):
        graph.call_function(torch.neg, (object(),))
    with pytest.raises(
        ArgumentError, match="a program holds <object object .*> of type object; it may hold plain values only"
    ):
        digest(program)


def test_a_program_that_is_optimized_stays_as_it_is() -> None:
    for assigned in jobs():
        for program in programs(assigned):
            before = digest(program)
            once, twice = optimized(program), optimized(program)
            assert digest(once) == digest(twice)
            assert digest(program) == before


def test_executors_of_one_program_share_no_buffer() -> None:
    program = optimized(first(image_job(lenet, 256)))
    values = {
        arg
        for node in program.sections["step"].graph.nodes
        for arg in node.args
        if isinstance(arg, (collective.Bucket, collective.Gather))
    }
    one, two = collective.Bound(), collective.Bound()
    assert values and all(one(value) is one(replace(value)) is not two(value) for value in values)
    assert one(collective.exchange) is one(collective.exchange) is not two(collective.exchange)
    assert one(collective.all_reduce) is collective.all_reduce


def test_code_is_made_with_what_stands_behind_a_value() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    bucket = collective.Bucket(0, (0, 1))
    graph.output(graph.call_function(collective.product_in, (bucket, 0, x, x)))
    behind = collective.RunningBucket(bucket)
    behind._rooms = [torch.zeros(2, 2)]
    code = generate(graph, "job", lambda thing: behind if thing == bucket else thing)
    assert code.call(torch.eye(2)) is behind._rooms[0]
    assert torch.equal(behind._rooms[0], torch.eye(2))
