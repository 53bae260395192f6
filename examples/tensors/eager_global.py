"""Eager global tensors: a training loop as PyTorch programs have it, op by op, on tensors that lie over ranks. Change
the SBP of the weights, and the same loop trains data parallel or tensor parallel; its numbers are those of one process.

    python eager_global.py                                                                      alone
    python -m oneflow.distributed.launch --nproc_per_node 2 eager_global.py                     batches are split
    python -m oneflow.distributed.launch --nproc_per_node 2 eager_global.py --weights split     weights are split
"""

import argparse

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F
from oneflow.data.mnist import find_mnist, read_mnist

S, B = flow.sbp.split, flow.sbp.broadcast


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--weights", default="whole", choices=["whole", "split"])
    args = parser.parse_args()

    everyone = flow.placement.all("cpu")
    flow.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to_global(everyone, B)
    if args.weights == "split":
        for p in model.parameters():
            p.data = p.data.to_global(sbp=S(0))
    optimizer = flow.optim.Adam(model.parameters(), lr=0.002)

    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    for step in range(args.steps):
        chosen = flow.randint(0, len(images), (64,), generator=flow.Generator().manual_seed(step))
        x, y = (
            whole[chosen].to_global(everyone, B) for whole in (images, labels)
        )  # every rank has the batch, as rank 0 drew it
        if args.weights == "whole":
            x, y = x.to_global(sbp=S(0)), y.to_global(sbp=S(0))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # gradients come in the layout of their parameters
        optimizer.step()
        if (step + 1) % 20 == 0:
            value = loss.item()  # gathers: all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {value:.5f}  it lies as {loss.sbp[0]}")


if __name__ == "__main__":
    main()
