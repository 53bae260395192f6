"""Random ops in a graph draw by counter: a function of the seed, the step and the number of the op, wherever the graph
runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from warm_python import WARM

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow.engine.capture.counter_draws import Draws
from oneflow.engine.core.errors import ArgumentError, GraphError


class Drawing(nn.Graph):
    def __init__(self, build):
        super().__init__()
        self.function = build

    def build(self, *args):
        return self.function(*args)


def masks(build=lambda x: F.dropout(x, 0.5), steps: int = 3, size: int = 64) -> list[list[bool]]:
    graph = Drawing(build)
    return [(graph(torch.ones(size)) == 0).tolist() for _ in range(steps)]


def test_masks_differ_by_step_and_by_op():
    graph = Drawing(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5)))
    drawn = [tuple((part == 0).tolist()) for _ in range(3) for part in graph(torch.ones(64))]
    assert len(set(drawn)) == 6


def test_the_seed_decides():
    flow.manual_seed(1)
    first = masks()
    torch.rand(5)
    assert masks() == first, "neither earlier draws nor the number of the graph count"
    flow.manual_seed(2)
    assert masks() != first


def test_the_generator_of_torch_is_left_alone():
    before = torch.get_rng_state()
    Drawing(lambda x: F.dropout(x, 0.5) + torch.rand(64) + torch.randn_like(x))(torch.ones(64))
    assert torch.equal(torch.get_rng_state(), before)


PRINTED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import oneflow as flow
from test_graph_random import masks
flow.manual_seed(7)
print(json.dumps(masks()))
"""


def test_two_processes_draw_the_same():
    flow.manual_seed(7)
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(flow.__file__).parents[1]), str(Path(__file__).parent), str(Path(__file__).parents[1])]
        ),
    }
    done = subprocess.run(
        [*WARM.command(), "-c", PRINTED, str(Path(__file__).parent)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == masks()


@pytest.mark.parametrize(
    "build",
    [
        lambda x: F.dropout(x, 0.3),
        lambda x: F.dropout(x, 0.3, generator=flow.Generator()),
        lambda x: torch.nn.functional.dropout(x, 0.3),
        lambda x: torch.dropout(x, 0.3, True),
        lambda x: nn.Dropout(0.3)(x),
        lambda x: torch.nn.Dropout(0.3, inplace=True)(x * 1),
        lambda x: F.dropout2d(x.view(1, -1, 1, 1), 0.3).flatten(),
        lambda x: torch.nn.functional.alpha_dropout(x, 0.3, True).lt(0) * -1.0 + 1,
    ],
)
def test_every_kind_of_dropout_draws_by_counter(build):
    flow.manual_seed(3)
    before = torch.get_rng_state()
    first = masks(build, size=4096)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert masks(build, size=4096) == first and len({tuple(mask) for mask in first}) == 3
    for mask in first:
        assert sum(mask) / 4096 == pytest.approx(0.3, abs=0.05)


def test_what_is_kept_is_scaled_and_so_is_its_gradient():
    made = Drawing(lambda x: F.dropout(x, 0.2))(torch.full((1000,), 2.0))
    assert set(made.tolist()) == {0.0, 2.5}
    model = nn.Linear(1, 64, bias=False)

    class Training(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

        def build(self, x):
            out = F.dropout(self.model(x), 0.5)
            out.sum().backward()
            return out

    before = model.weight.detach().clone()
    out = Training()(torch.ones(1, 1))
    torch.testing.assert_close(before - model.weight.detach(), (out.t() != 0) * 2.0)


@pytest.mark.parametrize("p, left", [(0.0, 64), (1.0, 0)])
def test_all_or_nothing(p, left):
    assert int((Drawing(lambda x: F.dropout(x, p))(torch.ones(64)) != 0).sum()) == left


def test_in_evaluation_nothing_is_dropped():
    assert torch.equal(Drawing(lambda x: F.dropout(x, 0.5, training=False))(torch.ones(64)), torch.ones(64))


def test_a_probability_lies_between_0_and_1():
    with pytest.raises((ArgumentError, ValueError), match="1.5"):
        Drawing(lambda x: torch.nn.functional.dropout(x, 1.5))(torch.ones(4))


# ------------------------------------------------------------------ every random op of the table

N = 20000
aten = torch.ops.aten
X = torch.zeros(N)
HALF = torch.full((N,), 0.25)


def moments(mean: float, std: float):
    def check(made):
        assert made.double().mean().item() == pytest.approx(mean, abs=5 * std / N**0.5)
        assert made.double().std().item() == pytest.approx(std, rel=0.05)

    return check


UNIFORM, NORMAL, COIN = moments(0.5, 12**-0.5), moments(0.0, 1.0), moments(0.25, (0.25 * 0.75) ** 0.5)


def within(check, low: float, high: float):
    def both(made):
        check(made)
        assert low <= made.min() and made.max() < high

    return both


def whole(low: int, high: int):
    def check(made):
        counts = torch.bincount(made.long() - low, minlength=high - low)
        assert len(counts) == high - low and (counts - N / (high - low)).abs().max() < 6 * (N / (high - low)) ** 0.5

    return check


def permuted(made):
    assert (
        made.dtype == torch.int64
        and torch.equal(made.sort().values, torch.arange(N))
        and (made - torch.arange(N)).abs().double().mean() > N / 4
    )


def by_weight(made):
    assert made.dtype == torch.int64
    moments(0.75, (0.75 * 0.25) ** 0.5)(made.flatten())


def both_once(made):
    assert torch.equal(made.sort(1).values, torch.tensor([[0, 1]]).expand(N, 2))
    assert made[:, 0].double().mean().item() == pytest.approx(0.75, abs=0.02)


def cauchy(made):
    """It has no mean: a half of it lies within its scale of its median."""
    assert made.median().item() == pytest.approx(2.0, abs=0.1)
    assert ((made - 2).abs() < 3).double().mean().item() == pytest.approx(0.5, abs=0.02)


def geometric(made):
    moments(4.0, 12**0.5)(made)
    assert made.min() == 1 and (made == 1).double().mean().item() == pytest.approx(0.25, abs=0.02)


DRAWN = flow.Generator()
WEIGHTS = torch.tensor([1.0, 3.0]).expand(N, 2)
LAWS = {
    aten.bernoulli.default: (lambda: torch.bernoulli(HALF), COIN),
    aten.bernoulli.p: (lambda: torch.bernoulli(X, 0.25), COIN),
    aten.bernoulli_.float: (lambda: torch.empty(N).bernoulli_(0.25), COIN),
    aten.bernoulli_.Tensor: (lambda: torch.empty(N).bernoulli_(HALF), COIN),
    aten.native_dropout.default: (lambda: aten.native_dropout(torch.ones(N), 0.75, True)[0] / 4, COIN),
    aten.rand.default: (lambda: torch.rand(N), within(UNIFORM, 0, 1)),
    aten.rand_like.default: (lambda: torch.rand_like(X), within(UNIFORM, 0, 1)),
    aten.randn.default: (lambda: torch.randn(N), NORMAL),
    aten.randn_like.default: (lambda: torch.randn_like(X), NORMAL),
    aten.randint.default: (lambda: torch.randint(5, (N,)), whole(0, 5)),
    aten.randint.low: (lambda: torch.randint(-3, 4, (N,)), whole(-3, 4)),
    aten.randint_like.default: (lambda: torch.randint_like(X, 5), whole(0, 5)),
    aten.randint_like.low_dtype: (lambda: torch.randint_like(X, -3, 4), whole(-3, 4)),
    aten.randperm.default: (lambda: torch.randperm(N), permuted),
    aten.uniform_.default: (lambda: torch.empty(N).uniform_(-1, 3), within(moments(1.0, 4 * 12**-0.5), -1, 3)),
    aten.normal_.default: (lambda: torch.empty(N).normal_(2, 3), moments(2, 3)),
    aten.normal.Tensor_Tensor: (lambda: torch.normal(X + 2, X + 3), moments(2, 3)),
    aten.normal.Tensor_float: (lambda: torch.normal(X + 2, 3.0), moments(2, 3)),
    aten.normal.float_Tensor: (lambda: torch.normal(2.0, X + 3), moments(2, 3)),
    aten.exponential_.default: (lambda: torch.empty(N).exponential_(2.0), within(moments(0.5, 0.5), 0, 20)),
    aten.normal.float_float: (lambda: torch.normal(2.0, 3.0, (N,)), moments(2, 3)),
    aten.log_normal_.default: (lambda: torch.empty(N).log_normal_(0.0, 0.25), moments(1.0317, 0.2620)),
    aten.cauchy_.default: (lambda: torch.empty(N).cauchy_(2.0, 3.0), cauchy),
    aten.geometric_.default: (lambda: torch.empty(N).geometric_(0.25), geometric),
    aten.random_.to: (lambda: torch.empty(N).random_(5), whole(0, 5)),
    getattr(aten.random_, "from"): (lambda: torch.empty(N).random_(-3, 4), whole(-3, 4)),
    aten.rrelu_with_noise.default: (
        lambda: -torch.rrelu(X - 1, 0.25, 0.75, True),
        within(moments(0.5, 0.5 * 12**-0.5), 0.25, 0.75),
    ),
    aten.rand.generator: (lambda: torch.rand(N, generator=DRAWN), within(UNIFORM, 0, 1)),
    aten.rand_like.generator: (lambda: torch.rand_like(X, generator=DRAWN), within(UNIFORM, 0, 1)),
    aten.randn.generator: (lambda: torch.randn(N, generator=DRAWN), NORMAL),
    aten.randn_like.generator: (lambda: torch.randn_like(X, generator=DRAWN), NORMAL),
    aten.randint.generator: (lambda: torch.randint(5, (N,), generator=DRAWN), whole(0, 5)),
    aten.randint.low_generator: (lambda: torch.randint(-3, 4, (N,), generator=DRAWN), whole(-3, 4)),
    aten.randint_like.generator: (lambda: torch.randint_like(X, 5, generator=DRAWN), whole(0, 5)),
    aten.randint_like.low_generator_dtype: (lambda: torch.randint_like(X, -3, 4, generator=DRAWN), whole(-3, 4)),
    aten.randperm.generator: (lambda: torch.randperm(N, generator=DRAWN), permuted),
    aten.multinomial.default: (lambda: torch.multinomial(WEIGHTS, 1, replacement=True), by_weight),
}


def test_every_random_op_has_a_law():
    assert LAWS.keys() == Draws(0).table.keys()


@pytest.mark.parametrize("op", LAWS, ids=str)
def test_a_random_op_follows_its_law_and_the_step(op):
    draw, check = LAWS[op]
    flow.manual_seed(0)
    before = torch.get_rng_state()
    graph, again = Drawing(draw), Drawing(draw)
    first, second = graph(), graph()
    check(first)
    check(second)
    assert not torch.equal(first, second) and torch.equal(again(), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert DRAWN.get_state().equal(flow.Generator().get_state()), "a generator has no part in a graph"


def test_draws_without_replacement_are_each_once():
    both_once(Drawing(lambda: torch.multinomial(WEIGHTS, 2))())


def test_dtypes_are_those_asked_for():
    def build():
        return (
            torch.rand(3, dtype=torch.float64),
            torch.randint(3, (3,), dtype=torch.int32),
            torch.randn(3, dtype=torch.bfloat16),
            torch.randperm(3, dtype=torch.int32),
        )

    assert [made.dtype for made in Drawing(build)()] == [torch.float64, torch.int32, torch.bfloat16, torch.int32]


def test_the_slopes_of_rrelu_are_those_of_its_gradient():
    model = nn.Linear(1, 64, bias=False)

    class Training(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

        def build(self, x):
            out = torch.rrelu(self.model(x), 0.25, 0.75, True)
            out.sum().backward()
            return out

    before = model.weight.detach().clone()
    out = Training()(torch.ones(1, 1))
    torch.testing.assert_close(before - model.weight.detach(), out.t() / before)


@pytest.mark.parametrize(
    "draw", [lambda x: torch.poisson(x), lambda x: torch.empty(3).random_(), lambda x: torch._standard_gamma(x)]
)
def test_what_could_not_be_repeated_is_refused(draw):
    with pytest.raises(
        GraphError,
        match=r"test_graph_random.py:\d+: Drawing_\d+: aten\.\w+\.default in 'Drawing_\d+' \(Graph\) draws from torch's generator, .*; make its values of flow.rand or flow.randn",
    ):
        Drawing(draw)(torch.ones(3))


def test_whole_numbers_come_from_a_range_of_32_bits():
    assert Drawing(lambda: torch.randint(-(2**31), 2**31, (100,)))().unique().numel() > 95
    with pytest.raises(
        ArgumentError,
        match=r"a graph draws whole numbers of a range of 1 to 2\*\*32, got those from 0 to 1099511627776",
    ):
        Drawing(lambda: torch.randint(2**40, (3,)))()


def test_attention_without_dropout_draws_nothing():
    x = torch.randn(1, 2, 3, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    torch.testing.assert_close(
        Drawing(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x))(x), expected
    )


@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(8, 8, 2, dropout=0.5), lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5)]
)
def test_dropout_inside_modules_of_torch_draws_by_counter(make):
    module, x = make(), torch.randn(3, 2, 8)

    class Running(nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module

        def build(self, x):
            made = self.module(x)
            return made[0] if isinstance(made, tuple) else made

    before = torch.get_rng_state()
    one, two = Running(), Running()
    first, second = one(x), one(x)
    assert not torch.equal(first, second) and torch.equal(two(x), first) and torch.equal(torch.get_rng_state(), before)
