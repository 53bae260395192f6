"""Pipeline parallel: the network is cut into stages, each on a rank of its own, and each batch into micro-batches,
which follow one another through the stages (1F1B: as soon as a stage can, it runs one backward pass for each forward
pass).

    python pipeline_parallel.py                                                        alone: all stages on one rank
    python -m oneflow.distributed.launch --nproc_per_node 2 pipeline_parallel.py       two stages, the same losses
"""

import argparse

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist
from oneflow.nn.graph import GraphModule

MICRO_BATCHES = 4
B = flow.sbp.broadcast


class TrainGraph(nn.Graph):
    def __init__(self, model, places, optimizer):
        super().__init__()
        self.model, self.loss_fn = model, nn.CrossEntropyLoss()
        for number, (stage, place) in enumerate(zip(self.model, places)):
            stage.to(GraphModule).set_stage(number, place)
        self.config.set_gradient_accumulation_steps(MICRO_BATCHES)
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)  # what a stage gives goes to the next one's rank by itself
        loss.backward()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    size = flow.env.get_world_size()
    flow.manual_seed(0)
    first = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
    last = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    model = nn.Sequential(first, last)
    places = [flow.placement("cpu", [number % size]) for number in range(len(model))]
    for stage, place in zip(model, places):
        stage.to_global(place, B)
    train = TrainGraph(model, places, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    for step in range(args.steps):
        chosen = flow.randint(0, len(images), (64,), generator=flow.Generator().manual_seed(step))
        loss = train(
            images[chosen].to_global(places[0], B), labels[chosen].to_global(places[-1], B)
        )  # labels go where the loss is
        if (step + 1) % 20 == 0:
            loss = loss.numpy().mean()  # of every micro-batch one; all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {loss:.5f}")


if __name__ == "__main__":
    main()
