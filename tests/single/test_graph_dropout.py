"""Dropout by a generator of one's own inside ``nn.Graph``: masks are a function of the step there, as without a
generator."""

from __future__ import annotations

import pytest
import torch

import oneflow as flow
from oneflow import nn

X = torch.arange(1.0, 4 * 6 * 5 * 5 + 1).reshape(4, 6, 5, 5)
P = 0.25


class Drops(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.weight = nn.Parameter(torch.ones_like(X))
        self.dropout = dropout

    def forward(self, x):
        return self.dropout(x * self.weight)


class Train(nn.Graph):
    """Gives what dropout makes of x; the rate 0 leaves the weights, and so the values, as they are."""

    def __init__(self, dropout):
        super().__init__()
        torch.manual_seed(17)  # the seed of a graph's draws is that of the program
        self.net = Drops(dropout)
        self.add_optimizer(flow.optim.SGD(self.net.parameters(), lr=0.0))

    def build(self, x):
        made = self.net(x)
        made.sum().backward()
        return made


def by_function(generator):
    return lambda x: nn.functional.dropout(x, P, True, generator, addend=torch.zeros(()))


KINDS = {
    "function": by_function,
    "Dropout": lambda generator: nn.Dropout(P, generator=generator),
    "Dropout2d": lambda generator: nn.Dropout2d(P, generator=generator),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_every_step_has_a_mask_of_its_own_that_the_generator_has_no_part_in(kind):
    used = generator(1)
    before = used.get_state()
    graph, other = Train(kind(used)), Train(kind(generator(2)))
    steps = [graph(X) for _ in range(3)]
    assert torch.equal(used.get_state(), before)
    assert not torch.equal(steps[0], steps[1]) and not torch.equal(steps[1], steps[2])
    assert all(torch.equal(other(X), step) for step in steps)


def test_what_is_kept_is_divided_by_the_share_that_is_kept(kind):
    graph = Train(kind(generator(1)))
    dropped = torch.stack([graph(X) for _ in range(20)])
    kept = dropped != 0
    torch.testing.assert_close(dropped, X.expand_as(dropped) * kept / (1 - P))
    assert abs(kept.float().mean().item() - (1 - P)) < 0.06


def test_two_dimensional_dropout_drops_whole_channels():
    kept = Train(KINDS["Dropout2d"](generator(1)))(X) != 0
    assert torch.equal(kept.all(-1).all(-1), kept.any(-1).any(-1)) and kept.any() and not kept.all()


def test_a_resumed_graph_draws_on_as_one_that_was_never_stopped(kind):
    whole, resumed = Train(kind(generator(1))), Train(kind(generator(1)))
    steps = [whole(X) for _ in range(2)]
    resumed.load_state_dict(whole.state_dict())
    steps = [whole(X) for _ in range(3)]
    assert all(torch.equal(resumed(X), step) for step in steps)


def test_the_gradient_goes_where_the_values_went(kind):
    class Learns(Train):
        def __init__(self, dropout):
            super().__init__(dropout)
            self._graph.added[0].optimizer.param_groups[0]["lr"] = 1.0

    graph = Learns(kind(generator(1)))
    made = graph(X)
    torch.testing.assert_close(graph.net.weight.detach(), 1.0 - X * (made != 0) / (1 - P))
