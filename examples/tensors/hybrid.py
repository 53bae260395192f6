"""Data parallel times tensor parallel, and times a pipeline: ranks lie on a grid of (data, tensor), each stage on a
grid of its own. One SBP says what happens along each axis of the grid.

    python hybrid.py                                                                   alone
    python -m oneflow.distributed.launch --nproc_per_node 4 hybrid.py                  2 x 2: data x tensor; the same losses
    python -m oneflow.distributed.launch --nproc_per_node 4 hybrid.py --stages 2       1 x 2 twice: tensor x pipeline; with 8 ranks all three
"""

import argparse

import numpy as np

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist
from oneflow.nn.graph import GraphModule

S, B = flow.sbp.split, flow.sbp.broadcast


class Pair(nn.Module):
    """Two layers, the first split by outputs and the second by inputs along the second axis of the grid."""

    def __init__(self, width, hidden, out, grid):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, out)
        self.to_global(grid, [B, B])
        for layer, name, dim in ((self.up, "weight", 0), (self.up, "bias", 0), (self.down, "weight", 1)):
            setattr(layer, name, nn.Parameter(getattr(layer, name).data.to_global(sbp=[B, S(dim)])))

    def forward(self, x):
        return self.down(self.up(x.flatten(1)).relu())


class TrainGraph(nn.Graph):
    def __init__(self, model, grids, optimizer):
        super().__init__()
        self.model, self.loss_fn = model, nn.CrossEntropyLoss()
        for number, (stage, grid) in enumerate(zip(self.model, grids)):
            stage.to(GraphModule).set_stage(number, grid)
        self.config.set_gradient_accumulation_steps(4)
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)
        loss.backward()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--stages", type=int, default=1, choices=[1, 2])
    args = parser.parse_args()

    ranks = np.arange(flow.env.get_world_size()).reshape(
        args.stages, -1, min(2, flow.env.get_world_size() // args.stages)
    )
    grids = [flow.placement("cpu", ranks[number % args.stages]) for number in range(2)]
    flow.manual_seed(0)
    model = nn.Sequential(Pair(784, 256, 64, grids[0]), Pair(64, 128, 10, grids[1]))
    train = TrainGraph(model, grids, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    for step in range(args.steps):
        chosen = flow.randint(0, len(images), (64,), generator=flow.Generator().manual_seed(step))
        x, y = (
            whole[chosen].to_global(grid, [B, B]).to_global(sbp=[S(0), B])
            for whole, grid in ((images, grids[0]), (labels, grids[1]))
        )
        loss = train(x, y)
        if (step + 1) % 20 == 0:
            loss = loss.numpy().mean()  # of every micro-batch one; all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {loss:.5f}")


if __name__ == "__main__":
    main()
