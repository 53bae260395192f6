"""Every op that a program can contain gives the same results on operands of any strides, as programs call it; and every
row of the table of kernels that ignore strides is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import made_calls
import made_network_calls
import made_pass_calls
import pytest
import torch
from families import FILES
from part_calls import part_calls
from strided_operands import (
    arranged,
    cases,
    failure,
    found_in_a_child,
    given,
    in_both_dtypes,
    is_near,
    operand_names,
)
from traced import Executed, distinct

from oneflow.engine.ops.dense_operands import (
    STRIDES_IGNORED,
    WRITTEN_AS_CONTIGUOUS,
    DenseOperands,
    safe_call,
    stride_safe,
)
from oneflow.engine.passes.inplace import OVER
from oneflow.engine.sharding.rules.rule import ANY_STRIDES
from oneflow.engine.sharding.rules.table import RULES

aten = torch.ops.aten
FAMILIES = made_calls.FAMILIES | made_network_calls.FAMILIES | made_pass_calls.FAMILIES
TABLE = "STRIDES_IGNORED of src/oneflow/engine/ops/dense_operands.py"
UNSPECIFIED = {aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default}  # memory nothing has written
UNSTABLE = {aten.sort.default}  # the order of equal elements is free
ROWS = [(op, name) for op, needs in STRIDES_IGNORED.items() for name in needs.names]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, and a forked process has none."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@lru_cache(maxsize=None)
def calls_of(family: str) -> tuple[Executed, ...]:
    """The calls of a family, and those of ranks that each hold one element of a dim."""
    calls = FAMILIES[family]()
    return (*calls, *part_calls(calls))


def misread(calls: Iterable[Executed]) -> str:
    """The calls that go wrong, one of each op."""
    wrong: dict[str, str] = {}
    for one in calls:
        function = ANY_STRIDES.get(one.op, stride_safe(one.op))
        for call in in_both_dtypes(one) if one.op not in UNSPECIFIED else ():
            for case in cases(call):
                if one.op in UNSTABLE and any(name.startswith("expanded") for name in case):
                    continue
                found = failure(call, case, function)
                if found is not None:
                    wrong.setdefault(str(one.op), f"{dict(zip(operand_names(call), case))}: {found}")
    return "; ".join(f"{op} of {case}" for op, case in wrong.items())


def check(calls: Sequence[Executed]) -> None:
    """In a process that may crash."""
    wrong = found_in_a_child(lambda: misread(calls))
    assert not wrong, f"kernels that misread operands, add a row in {TABLE}: {wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_made_calls_take_any_strides(family: str) -> None:
    check(calls_of(family))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_calls_of_samples_take_any_strides(file: str) -> None:
    check(distinct(file))


@pytest.mark.slow
def test_every_op_of_a_program_has_a_call() -> None:
    called = {one.op for family in FAMILIES for one in calls_of(family)}
    called |= {one.op for file in FILES for one in distinct(file)} | {over.target for over in OVER.values()}
    own = [name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("oneflow::")]
    wanted = {*RULES, *STRIDES_IGNORED, *(getattr(torch.ops.oneflow, name).default for name in own)}
    missing = sorted(map(str, wanted - called))
    assert not missing, f"no test calls these ops, add a call in tests/compile/made_pass_calls.py: {missing}"


@pytest.mark.slow
@pytest.mark.parametrize(("op", "name"), ROWS, ids=lambda value: str(value))
def test_every_operand_of_the_table_is_misread_by_torch(op: Any, name: str) -> None:
    """With all other operands dense; in a process that may crash."""
    function = safe_call(op, without(STRIDES_IGNORED[op], name))
    calls = [call for family in FAMILIES for one in calls_of(family) if one.op is op for call in in_both_dtypes(one)]

    def is_misread() -> str:
        return next(filter(None, (failure(call, case, function) for call in calls for case in cases(call))), "")

    assert found_in_a_child(is_misread), f"torch {torch.__version__} reads {name} of {op} right, delete it in {TABLE}"


def without(needs: DenseOperands, name: str) -> DenseOperands:
    kinds = ("contiguous", "one_format", "rows", "regular")
    return replace(needs, **{kind: tuple(n for n in getattr(needs, kind) if n != name) for kind in kinds})


@pytest.mark.slow
def test_group_norm_in_channels_last_memory_crashes_without_the_gradient_of_the_input() -> None:
    images, gradient = (torch.randn(4, 8, 3, 2).contiguous(memory_format=torch.channels_last) for _ in range(2))
    saved, sizes = torch.ones(4, 2), (4, 8, 6, 2)

    def backward() -> str:
        aten.native_group_norm_backward(gradient, images, saved, saved, torch.ones(8), *sizes, [False, True, True])
        return ""

    assert found_in_a_child(backward), (
        f"torch {torch.__version__} does not crash, delete _group_norm_backward in src/oneflow/engine/ops/dense_operands.py"
    )


def test_every_row_has_a_reason() -> None:
    assert all(needs.why and needs.names for needs in STRIDES_IGNORED.values())


@pytest.mark.parametrize("op", OVER, ids=str)
def test_ops_write_over_operands_of_any_strides(op: Any) -> None:
    wrong = written_wrong(op, stride_safe(OVER[op].target))
    assert not wrong, f"{OVER[op].target} over operands: {wrong}"


@pytest.mark.parametrize("op", WRITTEN_AS_CONTIGUOUS, ids=str)
def test_torch_still_writes_as_if_into_contiguous_memory(op: Any) -> None:
    assert written_wrong(WRITTEN_AS_CONTIGUOUS[op], op), f"torch {torch.__version__} writes right, delete {op}"


def written_wrong(op: Any, function: Any) -> list[Any]:
    """The cases in which a function that writes over an operand differs from the op that makes a new value."""
    over, wrong = OVER[op], []
    calls = [call for family in FAMILIES for one in FAMILIES[family]() if one.op is op for call in in_both_dtypes(one)]
    assert calls
    for one, place in product(calls, over.takes):
        if isinstance(one.args[place], torch.Tensor) and one.args[place].shape == one.result.shape:
            for case in [case for case in cases(one) if not any(name.startswith("expanded") for name in case)]:
                operands = [arranged(value, name) for value, name in zip(one.values, case)]
                args, kwargs = over.rewritten(*given(one, operands), place)
                if not is_near(function(*args, **kwargs), one.result):
                    wrong.append(case)
    return wrong


def test_dense_operands_are_not_copied() -> None:
    seen = []

    class Kernel:
        _schema = aten.native_group_norm_backward.default._schema

        @staticmethod
        def _op(*args: Any) -> None:
            seen.append(args)

    gradient, images = (
        torch.randn(2, 4, 3, 3).contiguous(memory_format=format) for format in (torch.channels_last,) * 2
    )
    vectors = torch.randn(2, 2), torch.randn(2, 2), torch.randn(4)
    needs = STRIDES_IGNORED[aten.native_group_norm_backward.default]
    safe_call(Kernel, needs)(gradient, images, *vectors, 2, 4, 9, 2, [True] * 3)
    assert all(found is operand for found, operand in zip(seen[0], (gradient, images, *vectors)))
