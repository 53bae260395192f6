"""Tensor parallel: every rank holds a slice of each weight and sees the whole batch. The first layer shares out its
outputs, the second its inputs, so what the ranks exchange is one sum of a batch of scores, forward, and one of
gradients, back.

    python tensor_parallel.py                                                          alone
    python -m oneflow.distributed.launch --nproc_per_node 2 tensor_parallel.py         the same losses; each rank has half of the weights
"""

import argparse

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist

S, B = flow.sbp.split, flow.sbp.broadcast


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model, self.loss_fn = model, nn.CrossEntropyLoss()
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)
        loss.backward()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    everyone = flow.placement.all("cpu")
    flow.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    model.to_global(everyone, B)  # rank 0's values, whole on every rank; then each keeps its slice:
    first, last = model[1], model[3]
    first.weight = nn.Parameter(
        first.weight.data.to_global(sbp=S(0))
    )  # rows are outputs of the layer, and so are biases
    first.bias = nn.Parameter(first.bias.data.to_global(sbp=S(0)))
    last.weight = nn.Parameter(last.weight.data.to_global(sbp=S(1)))  # columns are inputs
    train = TrainGraph(model, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    for step in range(args.steps):
        chosen = flow.randint(0, len(images), (64,), generator=flow.Generator().manual_seed(step))
        loss = train(images[chosen].to_global(everyone, B), labels[chosen].to_global(everyone, B))
        if (step + 1) % 20 == 0:
            loss = loss.item()  # all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {loss:.5f}")
    if flow.env.get_rank() == 0:
        print(
            f"rank 0 holds {sum(p.to_local().numel() for p in model.parameters())} of "
            f"{sum(p.numel() for p in model.parameters())} parameters"
        )


if __name__ == "__main__":
    main()
