"""The SBP rules: every signature that a rule offers gives, on parts, what the op gives on whole tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import prod

import made_calls
import made_network_calls
import pytest
import torch
from families import FILES
from lockstep import check
from made_calls import flags, floats, ints, signed
from traced import Executed, distinct, executed, made

from oneflow.engine.core.sbp import BROADCAST, PARTIAL, split
from oneflow.engine.sharding.rules.rule import Rule, Signature, whole
from oneflow.engine.sharding.rules.table import RULES, rule_of

aten = torch.ops.aten
WORLDS = (2, 3, 4)
FAMILIES = made_calls.FAMILIES | made_network_calls.FAMILIES

NO_RULE = {
    torch.ops.oneflow.layout.default: "asks for the layouts that inference then takes for it",
}
BOOKKEEPING = {aten.detach.default, aten.alias.default, aten.ones_like.default}
NEVER_SPLIT = {
    "assign",  # gives what it writes
    "math.reduced_shape_elem_cnt",  # a number
    "reshape_like",  # its dims merge unevenly
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check_all(calls: Iterable[Executed], worlds: Iterable[int] = WORLDS) -> None:
    for one in calls:
        rule = rule_of(one.op)
        for parts in worlds if rule is not None else ():
            for signature in rule.signatures(one.call(parts)):
                checked(one, [signature], (parts,))


def checked(one: Executed, chosen: list[Signature], axes: tuple[int, ...]) -> None:
    try:
        check(one.call(prod(axes)), one.values, one.result, chosen, axes)
    except Exception as error:
        shapes = [tuple(value.shape) for value in one.values]
        layouts = [(signature.inputs, signature.outputs) for signature in chosen]
        raise AssertionError(f"{one.row}: {one.op} of {shapes} over {axes} as {layouts}") from error


@pytest.mark.parametrize("file", FILES)
def test_every_signature_of_a_sample_is_right(file: str) -> None:
    check_all(distinct(file))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_signature_of_a_made_call_is_right(family: str) -> None:
    check_all(made_once(family))


@lru_cache(maxsize=None)
def made_once(family: str) -> tuple[Executed, ...]:
    return tuple(FAMILIES[family]())


def test_every_op_of_a_joint_graph_has_a_rule_or_a_reason_for_none() -> None:
    where = {one.op: f"row {one.row}, tests/single/samples/{file}.py" for file in FILES for one in executed(file)}
    wrong = [
        f"aten op {op} ({where[op]}) has no SBP rule: add one in src/oneflow/engine/sharding/rules, or a reason in NO_RULE of "
        f"tests/compile/test_rules.py"
        for op in where
        if rule_of(op) is None and op not in NO_RULE
    ]
    wrong += [
        f"{op} is in NO_RULE of tests/compile/test_rules.py and has a rule: delete it there"
        for op in NO_RULE
        if rule_of(op) is not None
    ]
    wrong += [
        f"{op} is in NO_RULE of tests/compile/test_rules.py and in no sample's graph: delete it there"
        for op in NO_RULE
        if op not in where
    ]
    assert not wrong, "\n".join(wrong)


def test_every_rule_is_checked_on_a_call_that_it_splits() -> None:
    calls = [
        *(one for file in FILES for one in executed(file)),
        *(one for family in FAMILIES for one in made_once(family)),
    ]
    split_ops = {one.op for one in calls if splits(one)}
    unchecked = [
        f"the rule of {op} is checked on no call that it splits: add a call in tests/compile/made_calls.py "
        f"(made_network_calls.py for layers)"
        for op in RULES
        if op not in split_ops and op is not aten.scalar_tensor.default  # a number has no dim to split
    ]
    assert not unchecked, "\n".join(unchecked)
    assert aten.scalar_tensor.default not in split_ops


def test_the_rows_whose_samples_are_too_small_to_split_are_known() -> None:
    rows = {one.row for file in FILES for one in executed(file)}
    covered = {one.row for file in FILES for one in executed(file) if one.op not in BOOKKEEPING and splits(one)}
    wrong = [
        f"row {row} is never split: add a larger sample in tests/single/samples, or the row to NEVER_SPLIT of "
        f"tests/compile/test_rules.py"
        for row in sorted(rows - covered - NEVER_SPLIT)
    ]
    wrong += [
        f"row {row} is split: delete it in NEVER_SPLIT of tests/compile/test_rules.py"
        for row in sorted(NEVER_SPLIT - (rows - covered))
    ]
    assert not wrong, "\n".join(wrong)


def splits(one: Executed) -> bool:
    rule = rule_of(one.op)
    signatures = rule.signatures(one.call(2)) if rule is not None else ()
    return any(sbp.kind == "S" for signature in signatures for sbp in (*signature.inputs, *signature.outputs))


def offered(one: Executed, parts: int = 2) -> set[str]:
    """The signatures that a call's rule offers, as text: "S(0),B->S(0)"."""
    rule = rule_of(one.op)
    assert rule is not None
    return {
        ",".join(map(str, signature.inputs)) + "->" + ",".join(map(str, signature.outputs))
        for signature in rule.signatures(one.call(parts))
    }


X = signed(5, 6)
USEFUL = {
    "mm": (made(aten.mm.default, X, signed(6, 7)), "S(0),B->S(0) B,S(1)->S(1) S(1),S(0)->P P,B->P B,P->P"),
    "relu": (made(aten.relu.default, X), "S(0)->S(0) S(1)->S(1)"),
    "neg": (made(aten.neg.default, X), "S(0)->S(0) S(1)->S(1) P->P"),
    "bias": (made(aten.add.Tensor, X, signed(6)), "S(0),B->S(0) S(1),S(0)->S(1) P,P->P"),
    "mul": (made(aten.mul.Tensor, X, signed(5, 1)), "S(0),S(0)->S(0) S(1),B->S(1) P,B->P B,P->P"),
    "threshold": (made(aten.threshold_backward.default, X, floats(5, 6), 0), "S(0),S(0)->S(0) S(1),S(1)->S(1) P,B->P"),
    "where": (made(aten.where.self, flags(5, 6), X, X), "S(0),S(0),S(0)->S(0) S(1),S(1),S(1)->S(1) B,P,P->P"),
    "sum": (made(aten.sum.dim_IntList, X, [0]), "S(0)->P S(1)->S(0) P->P"),
    "mean": (made(aten.mean.default, X), "S(0)->P S(1)->P P->P"),
    "amax": (made(aten.amax.default, X, [1]), "S(0)->S(0) S(1)->B"),
    "flatten": (made(aten.view.default, signed(5, 4, 3), [5, 12]), "S(0)->S(0) S(1)->S(1) P->P"),
    "expand": (made(aten.expand.default, signed(5, 1), [5, 6]), "S(0)->S(0) B->S(1) P->P"),
    "transpose": (made(aten.t.default, X), "S(0)->S(1) S(1)->S(0) P->P"),
    "cat": (made(aten.cat.default, [X, X], 1), "S(0),S(0)->S(0) P,P->P"),
    "zeros": (made(aten.zeros.default, [5, 6]), "->S(0) ->S(1) ->P"),
    "seed": (made(aten.full_like.default, X, 1.0), "S(0)->S(0) S(1)->S(1) P->B"),
}


@pytest.mark.parametrize("case", USEFUL)
def test_the_signatures_that_parallelism_rests_on_are_offered(case: str) -> None:
    one, expected = USEFUL[case]
    assert offered(one) == set(expected.split())


NOT_LINEAR = {
    "relu": made(aten.relu.default, X),
    "add a number": made(aten.add.Tensor, X, 2.0),
    "integers": made(aten.neg.default, ints(5, 6)),
    "float to int": made(aten._to_copy.default, X, dtype=torch.int64),
    "pad with ones": made(aten.constant_pad_nd.default, X, [1, 1], 1.0),
    "fill with ones": made(aten.masked_fill.Scalar, X, flags(5, 6), 1.0),
    "divisor": made(aten.reciprocal.default, X),
}


@pytest.mark.parametrize("case", NOT_LINEAR)
def test_partial_sums_do_not_pass_what_is_not_linear(case: str) -> None:
    assert not any("P" in signature for signature in offered(NOT_LINEAR[case]))


def test_dims_that_merge_pass_even_splits_only() -> None:
    assert "S(0)->S(0)" in offered(made(aten.view.default, signed(4, 3), [12]))
    assert offered(made(aten.view.default, signed(3, 4), [12])) == {"P->P"}
    assert offered(made(aten.view.default, signed(3, 4, 1), [3, 4])) == {"S(0)->S(0)", "S(1)->S(1)", "P->P"}


def test_a_dim_smaller_than_the_ranks_is_not_split() -> None:
    assert offered(made(aten.relu.default, signed(3, 4)), 4) == {"S(1)->S(1)"}


WRONG = {
    "a sum of parts as the whole": (made(aten.sum.default, X), Signature((split(0),), (BROADCAST,))),
    "a relu of partial sums": (made(aten.relu.default, X), Signature((PARTIAL,), (PARTIAL,))),
    "a mean of means": (made(aten.mean.dim, X, [0]), Signature((split(0),), (PARTIAL,))),
    "a transposed split": (made(aten.t.default, X), Signature((split(0),), (split(0),))),
    "a flipped split": (made(aten.flip.default, X, [0]), Signature((split(0),), (split(0),))),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_signature_is_found_out(case: str) -> None:
    one, signature = WRONG[case]
    with pytest.raises(AssertionError):
        check(one.call(2), one.values, one.result, [signature], (2,))


def pairs(one: Executed, rule: Rule, axes: tuple[int, ...]) -> Iterable[list[Signature]]:
    """One signature per axis in all ways that the compiler may choose: no two lowerings of different kinds."""
    call = one.call(prod(axes))
    options = [whole(call), *rule.signatures(call)]
    for chosen in product(options, repeat=len(axes)):
        if len({signature.lower for signature in chosen} - {None}) <= 1:
            yield list(chosen)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "pointwise"])
def test_any_two_signatures_go_together_on_two_axes(family: str) -> None:
    for one in made_once(family):
        rule = RULES[one.op]
        for chosen in pairs(one, rule, (2, 2)):
            checked(one, chosen, (2, 2))


@pytest.mark.parametrize("file", ["loss", "matmul", "norm"])
def test_lowered_signatures_go_together_on_two_axes(file: str) -> None:
    for one in distinct(file):
        rule = rule_of(one.op)
        for chosen in pairs(one, rule, (2, 2)) if rule is not None else ():
            if any(signature.lower is not None for signature in chosen):
                checked(one, chosen, (2, 2))


def test_axes_of_different_extents_split_one_dim_after_the_other() -> None:
    for one in (
        made(aten.sum.default, signed(7, 6)),
        made(aten.mean.dim, signed(13), [0]),
        made(aten.view.default, signed(12, 2), [24]),
    ):
        for axes in ((2, 3), (3, 2)):
            for chosen in pairs(one, RULES[one.op], axes):
                checked(one, chosen, axes)
