"""Programs drawn at random: chains of twenty ops in layouts drawn at random, on one and two axes, of shapes that split
unevenly or leave ranks with nothing.

What a program gives, and the gradients of what it is given, are those of plain torch: with eager global tensors, and in
a graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from global_rank import layouts, meshes, near, spread
from torch import nn

import oneflow as flow

OPS = 20
SHAPES = [(7, 6), (8, 4), (3, 6), (5, 2), (1, 8)]
SEEDS = range(4)

Step = Callable[[Any, Any, Any], Any]


def heads(x: Any) -> Any:
    return x.reshape(x.shape[0], 2, -1).transpose(0, 1)


def whole_again(x: Any, like: Any) -> Any:
    return x.transpose(0, 1).reshape(like.shape)


def pooled(a: Any, b: Any) -> Any:
    x = F.max_pool2d(a.reshape(1, 1, *a.shape), (1, 2), stride=1, padding=(0, 1))[..., : a.shape[1]]
    return x.reshape(a.shape) * 0.5 + F.avg_pool1d(b.unsqueeze(1), 2, 2).repeat_interleave(2, 2).squeeze(1)


def convolved(a: Any, w: Any) -> Any:
    return F.conv1d(a.unsqueeze(1), w[:2, :2].unsqueeze(1), padding=1)[:, :, : a.shape[1]].sum(1) * 0.3


def normed(a: Any) -> Any:
    return F.group_norm(a.reshape(a.shape[0], 2, -1), 2).reshape(a.shape)


def one_hot_rows(a: Any, b: Any) -> Any:
    return flow.nn.functional.one_hot(b.detach().argmax(1), b.shape[1]).to(a.dtype) * a


STEPS: list[Step] = [
    lambda a, b, w: torch.relu(a) + b.t().t(),
    lambda a, b, w: torch.tanh(a) * b,
    lambda a, b, w: torch.sigmoid(a) - b * 0.5,
    lambda a, b, w: a / (b * b + 1.0),
    lambda a, b, w: F.gelu(a.reshape(-1)).reshape(a.shape),
    lambda a, b, w: (torch.tanh(a.t()) + b.t()).t(),
    lambda a, b, w: torch.tanh(a @ w),
    lambda a, b, w: F.linear(a, w, w[0]) * 0.3,
    lambda a, b, w: torch.addmm(b, a, w, beta=0.5, alpha=0.2),
    lambda a, b, w: a - b.mean(0, keepdim=True),
    lambda a, b, w: a - b.mean(),
    lambda a, b, w: a * 0.5 + b.sum(1, keepdim=True) * 0.1,
    lambda a, b, w: torch.cat([a[:, :1], torch.relu(b[:, 1:])], 1),
    lambda a, b, w: torch.cat([a[-1:], b[:-1]], 0),
    lambda a, b, w: torch.cat([a, b], 0)[1 : 1 + len(a)],
    lambda a, b, w: torch.softmax(a, 1) + b * 0.5,
    lambda a, b, w: torch.log_softmax(a, 0) * 0.2 + b,
    lambda a, b, w: F.layer_norm(a, (a.shape[1],), w[0], w[1]),
    lambda a, b, w: torch.where(a > b, a, b * 0.5),
    lambda a, b, w: a.unsqueeze(1).expand(-1, 3, -1).mean(1) + a.sum() * 0.01,
    lambda a, b, w: torch.stack([a, b * 0.7 + 0.01]).amax(0),
    lambda a, b, w: a.roll(2, 0) * b.flip(1),
    lambda a, b, w: a.roll((1, -1), (0, 1)) + b.narrow(1, 0, 1),
    lambda a, b, w: torch.einsum("ij,kj->ik", a, b).tanh() @ b * 0.2,
    lambda a, b, w: a.clone().add_(b).mul_(0.5),
    lambda a, b, w: a.index_select(0, torch.argmax(b.detach(), 0)).mean() + a,
    lambda a, b, w: a.gather(1, torch.argsort(b.detach(), 1)),
    lambda a, b, w: a.detach().cumsum(1) * 0.1 + b,
    lambda a, b, w: a.sort(1).values + b,
    lambda a, b, w: a.topk(1, 1).values + b * 0.5,
    lambda a, b, w: whole_again(torch.bmm(heads(a), heads(b).transpose(1, 2)).softmax(-1) @ heads(b), a),
    lambda a, b, w: whole_again(F.scaled_dot_product_attention(heads(a)[None], heads(b)[None], heads(a)[None])[0], a),
    lambda a, b, w: pooled(a, b),
    lambda a, b, w: convolved(a, w) + b,
    lambda a, b, w: normed(a) + b,
    lambda a, b, w: one_hot_rows(a, b) + b,
    lambda a, b, w: F.pad(a, (1, 0))[:, :-1] * b,
    lambda a, b, w: a * b.var(1, unbiased=False, keepdim=True).add(1.0).rsqrt(),
    lambda a, b, w: a + torch.logsumexp(b, 0) * 0.1,
    lambda a, b, w: F.embedding(b.detach().argmax(1), w) * 0.5 + a,
    lambda a, b, w: a.masked_fill(b > 0.5, 0.1) + b.clamp(-1, 1),
    lambda a, b, w: torch.cat([*a.chunk(2, 1)][::-1], 1) + b,
    lambda a, b, w: torch.cat([p * (i + 1) * 0.4 for i, p in enumerate(a.split(1, 0))], 0) + b,
    lambda a, b, w: a.reshape(a.shape[1], a.shape[0]).t() * 0.5 + b,
    lambda a, b, w: a[:, ::2].repeat(1, 2)[:, : a.shape[1]] + b,
    lambda a, b, w: a.scatter_add(1, torch.zeros_like(b, dtype=torch.int64), b * 0.1),
    lambda a, b, w: a.tril() + b.triu() * 0.5,
    lambda a, b, w: a + F.cross_entropy(a, b.detach().argmax(1)) * 0.1,
    lambda a, b, w: a + F.mse_loss(a, b) * 0.1,
    lambda a, b, w: a.norm() * 0.1 + b,
    lambda a, b, w: torch.maximum(a, b * 0.9 + 0.013) - torch.minimum(a, b * 0.8 - 0.017) * 0.5,
]


class Program:
    """Which ops on which of the values so far, and which of them are brought into another layout."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = random.Random(seed)
        self.place = dice.choice(meshes())
        self.rows, self.columns = dice.choice(SHAPES)
        self.picks = [
            (dice.randrange(len(STEPS)), dice.randrange(max(0, i - 4), i + 1), dice.randrange(i + 1))
            for i in range(OPS)
        ]
        self.moves = {i: self.layout(2) for i in dice.sample(range(OPS), 5)}
        self.start = [self.layout(2), self.layout(2)]
        values = torch.Generator().manual_seed(seed)
        self.x = torch.randn(self.rows, self.columns, generator=values)
        self.w = torch.randn(self.columns, self.columns, generator=values) * 0.4

    def layout(self, dims: int) -> Any:
        return self.dice.choice(layouts(dims, len(self.place.hierarchy)))

    def run(self, x: Any, w: Any, moves: dict[int, Any]) -> tuple[Any, Any]:
        """A loss, and one of the values."""
        values = [x]
        for number, (kind, first, second) in enumerate(self.picks):
            made = STEPS[kind](values[first], values[second], w)
            values.append(made.to_global(sbp=moves[number]) if number in moves else made)
        return sum((value * value).mean() for value in values[-3:]), values[-1]

    def told(self) -> str:
        return f"{self.rows} x {self.columns} on {self.place} as {self.start}, ops {self.picks}, moves {self.moves}"


def eagerly(program: Program) -> None:
    plain = [value.clone().requires_grad_() for value in (program.x, program.w)]
    ours = [
        spread(value, program.place, sbp).requires_grad_() for value, sbp in zip((program.x, program.w), program.start)
    ]
    expected, found = program.run(*plain, {}), program.run(*ours, program.moves)
    near(found, expected, 1e-3)
    expected[0].backward()
    found[0].backward()
    for leaf, other in zip(plain, ours):
        assert (other.grad is None) == (leaf.grad is None)
        if leaf.grad is not None:
            assert other.grad.sbp == other.sbp
            near(other.grad, leaf.grad, 1e-3)


class Weight(nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)


class Compiled(flow.nn.Graph):
    def __init__(self, program: Program, model: nn.Module) -> None:
        super().__init__()
        self.model, self.program = model, program
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

    def build(self, x: Any) -> tuple[Any, Any]:
        loss, value = self.program.run(x, self.model.weight, self.program.moves)
        loss.backward()
        return loss, value


def compiled(program: Program) -> None:
    """The step of an SGD of rate one is the gradient."""
    weight = program.w.clone().requires_grad_()
    expected = program.run(program.x, weight, {})
    expected[0].backward() if expected[0].requires_grad else None
    if weight.grad is None:
        return  # nothing to train
    model = Weight(spread(program.w, program.place, program.start[1]))
    found = Compiled(program, model)(spread(program.x, program.place, program.start[0]))
    near(found, expected, 1e-3)
    near(model.weight.detach(), program.w - weight.grad, 1e-3)


def checked(run: Callable[[Program], None], seeds: Any) -> None:
    for seed in seeds:
        program = Program(seed)
        try:
            run(program)
        except Exception as error:
            raise AssertionError(f"program {seed}: {program.told()}") from error


def law_random_programs_of_eager_tensors_are_what_plain_torch_makes() -> None:
    checked(eagerly, SEEDS)


def law_random_programs_in_graphs_are_what_plain_torch_makes() -> None:
    checked(compiled, SEEDS)
