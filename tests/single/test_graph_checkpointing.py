"""Activation checkpointing in a graph: what a module makes is made again in the backward pass. Numbers stay, memory
goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graph_models import GPT, MODELS, TrainGraph, eager_losses, same_state, seeded, sgd

import oneflow as flow
import oneflow.nn as nn
from oneflow.nn.graph import GraphModule

DRAW = torch.Generator().manual_seed(3)
BATCHES = [(torch.randn(6, 8, generator=DRAW), torch.randint(4, (6,), generator=DRAW)) for _ in range(3)]


def checkpointing(*paths: str):
    def settings(graph):
        for path in paths:
            graph.model.get_submodule(path).to(GraphModule).activation_checkpointing = True

    return settings


def equal_to_one_that_keeps(make, paths, batches=BATCHES, tolerance=0.0) -> TrainGraph:
    """Trains two graphs; they agree. Gives the one that makes values again."""
    plain, model = seeded(make), seeded(make)
    one, two = TrainGraph(plain, sgd(plain)), TrainGraph(model, sgd(model), settings=checkpointing(*paths))
    for x, y in batches:
        torch.testing.assert_close(one(x, y), two(x, y), rtol=tolerance, atol=tolerance)
    same_state(plain, model, tolerance)
    assert calls(two) > calls(one), "nothing was made again"
    return two


def equal_to_eager(make, paths) -> None:
    """For modules of which little or nothing can be made again."""
    plain, model = seeded(make), seeded(make)
    losses = eager_losses(plain, sgd(plain), iter(BATCHES))
    graph = TrainGraph(model, sgd(model), settings=checkpointing(*paths))
    torch.testing.assert_close([graph(x, y).item() for x, y in BATCHES], losses, rtol=1e-6, atol=1e-6)
    same_state(plain, model, 1e-6)


def calls(graph) -> int:
    (step,) = graph._compiled.values()
    return sum(node.op == "call_function" for node in step.captured.traced.joint.graph.nodes)


def block(p: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(p), nn.Linear(8, 8), nn.Sigmoid())


def net(*blocks: nn.Module) -> nn.Sequential:
    return nn.Sequential(*blocks, nn.Linear(8, 4))


def test_numbers_are_equal_bit_by_bit():
    equal_to_one_that_keeps(lambda: net(block(), block()), ["0", "1"])


def test_with_dropout_the_same_masks_are_drawn_again():
    equal_to_one_that_keeps(lambda: net(block(0.5), block(0.3)), ["0", "1"])


def test_batch_norm_counts_a_batch_once():
    graph = equal_to_one_that_keeps(
        lambda: net(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8))), ["0"]
    )
    assert int(graph._graph.modules["model"][0][1].num_batches_tracked) == len(BATCHES)


def test_a_buffer_that_forward_replaces_is_replaced_once():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("mean", flow.zeros(8))
            self.register_buffer("count", flow.zeros(()))

        def forward(self, x):
            out = flow.tanh(self.linear(x)).square()
            self.mean = self.mean * 0.9 + out.detach().mean(0)
            self.count += 1
            return flow.sin(out) * self.count

    graph = equal_to_one_that_keeps(lambda: net(Counting()), ["0"])
    assert graph._graph.modules["model"][0].count.item() == len(BATCHES)


def test_a_block_in_a_block_is_made_again_once():
    equal_to_one_that_keeps(lambda: net(nn.Sequential(block(0.2), block(0.2)), block()), ["0", "0.0", "0.1.0"])


def test_a_module_that_is_called_twice_is_made_again_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = block(0.2), nn.Linear(8, 4)

        def forward(self, x):
            return self.head(self.inner(x) + self.inner(x.cos()))

    equal_to_one_that_keeps(Twice, ["inner"])


def test_ops_in_place_inside_are_made_again():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.relu = nn.Linear(8, 8), nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.relu(self.linear(x))
            out = out * 2
            out.mul_(0.5).add_(1)
            out[:, 0] = 3.0
            return out.tanh()

    equal_to_one_that_keeps(lambda: net(InPlace(), InPlace()), ["0", "1"])


def test_a_module_that_writes_over_its_input_stays_right():
    class Over(nn.Module):
        def forward(self, x):
            return x.add_(1).tanh().sin()

    equal_to_eager(lambda: net(nn.Linear(8, 8), Over()), ["1"])


class Reads(nn.Module):
    """Values that are made of its input before that is changed."""

    def forward(self, x):
        return (x + 1).sin().cos()


def test_an_input_that_is_written_over_after_the_module_stays_right():
    class Later(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.reads, self.head = nn.Linear(8, 8), Reads(), nn.Linear(8, 4)

        def forward(self, x):
            hidden = self.linear(x)
            made = self.reads(hidden)
            hidden.mul_(3)
            return self.head(made + hidden)

    equal_to_eager(Later, ["reads"])


def test_a_result_that_is_written_over_after_the_module_stays_right():
    class Giving(nn.Module):
        def forward(self, x):
            half = x * 0.5
            return half, (half + 1).sin().cos()

    class Later(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.giving, self.head = nn.Linear(8, 8), Giving(), nn.Linear(8, 4)

        def forward(self, x):
            half, made = self.giving(self.linear(x))
            half.mul_(3)
            return self.head(made + half)

    equal_to_eager(Later, ["giving"])


def test_a_buffer_that_is_read_and_then_changed_stays_right():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("shift", flow.zeros(8))

        def forward(self, x):
            out = (self.linear(x) + self.shift).sin().cos()
            self.shift += 1
            self.shift[0] += 1
            return out

    equal_to_eager(lambda: net(Shifted()), ["0"])


def test_blocks_of_a_gpt_are_made_again():
    equal_to_one_that_keeps(lambda: GPT(p=0.1), ["blocks.0", "blocks.1"], list(MODELS["GPT"].batches(2)), 1e-6)


def test_with_accumulation_and_a_loss_scale_numbers_are_equal():
    def settings(paths):
        def apply(graph):
            checkpointing(*paths)(graph)
            graph.config.set_gradient_accumulation_steps(2)
            graph.set_grad_scaler(flow.amp.GradScaler(init_scale=16.0))

        return apply

    plain, model = (seeded(lambda: net(block(0.2), block())) for _ in range(2))
    one, two = (
        TrainGraph(plain, sgd(plain), settings=settings([])),
        TrainGraph(model, sgd(model), settings=settings(["0", "1"])),
    )
    for x, y in BATCHES:
        assert torch.equal(one(x, y), two(x, y))
    same_state(plain, model)


def test_a_setting_counts_in_its_graph_alone():
    model = seeded(lambda: net(block()))
    one, two = TrainGraph(model, sgd(model), settings=checkpointing("0")), TrainGraph(model, sgd(model))
    assert one.model[0].to(GraphModule).activation_checkpointing is True
    assert two.model[0].to(GraphModule).activation_checkpointing is False


def test_a_setting_is_true_or_false():
    model = seeded(lambda: net(block()))
    with pytest.raises((AssertionError, TypeError), match="activation_checkpointing"):
        TrainGraph(model, sgd(model)).model.to(GraphModule).activation_checkpointing = "yes"


def test_a_plan_shows_fewer_bytes_and_more_operations():
    """16 layers of 64 KiB each, in 4 blocks: without checkpointing their 16 results are kept, with it 4 and the 4 of
    one block."""

    def planned(*paths):
        blocks = [
            nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]) for _ in range(4)
        ]
        model = nn.Sequential(*blocks, nn.Linear(16, 4))
        graph = TrainGraph(model, sgd(model), settings=checkpointing(*paths))
        cost = flow.plan(graph, torch.ones(1024, 16), torch.zeros(1024, dtype=torch.int64)).ranks[0]
        return cost.peak_memory / 65536, cost.flops

    (kept, once), (again, twice) = planned(), planned("0", "1", "2", "3")
    assert 16 <= kept < 24 and 7 <= again < 13 and 1.2 * once < twice < 1.4 * once


PEAK = """
import sys
import torch
from graph_models import TrainGraph, sgd
from test_graph_checkpointing import checkpointing
import oneflow.nn as nn

def rss():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

blocks = [nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())]) for _ in range(8)]
model = nn.Sequential(*blocks, nn.Linear(64, 4))
graph = TrainGraph(model, sgd(model), settings=checkpointing(*sys.argv[1].split(",")) if len(sys.argv) > 1 else lambda graph: None)
x, y = torch.randn(8192, 64), torch.zeros(8192, dtype=torch.int64)
graph.build_graph(x, y)
before = rss()
for _ in range(3):
    graph(x, y)
print(rss() - before)
"""


def peak(*paths: str) -> int:
    """KiB that a step of 64 layers with 2 MiB of activations each takes."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(flow.__file__).parents[1]), str(Path(__file__).parent)]),
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # glibc gives freed tensors back, so that the peak is what is alive
    }
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *([",".join(paths)] if paths else [])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_fewer_activations_are_kept():
    """64 results of tanh are 128 MiB; 8 blocks that are made again keep 8 and the 8 of one block."""
    kept, again = peak(), peak(*map(str, range(8)))
    assert kept > 128 * 1024 > 64 * 1024 > again, (kept, again)
