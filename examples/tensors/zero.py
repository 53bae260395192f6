"""ZeRO: data parallel training in which the ranks share out what each would keep whole. Stages 1 and 2 share the
optimizer's state and the gradients it takes, stage 3 the parameters too; a rank gathers a layer's when it needs it. The
losses are those of one process.

    python zero.py                                                                     alone: nobody to share with
    python -m oneflow.distributed.launch --nproc_per_node 2 zero.py --stage 3          each rank keeps half of parameters and of Adam's state
"""

import argparse

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer, stage):
        super().__init__()
        self.model, self.loss_fn = model, nn.CrossEntropyLoss()
        self.config.enable_zero(True, stage=stage, shard_min_size=1024)  # smaller parameters stay whole
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)
        loss.backward()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--stage", type=int, default=2, choices=[1, 2, 3])
    args = parser.parse_args()

    everyone, rank, size = flow.placement.all("cpu"), flow.env.get_rank(), flow.env.get_world_size()
    flow.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    model.to_global(everyone, flow.sbp.broadcast)
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.002)
    train = TrainGraph(model, optimizer, args.stage)

    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    for step in range(args.steps):
        chosen = flow.randint(0, len(images), (64,), generator=flow.Generator().manual_seed(step)).chunk(size)[
            rank
        ]  # this rank's samples
        loss = train(*(part[chosen].to_global(everyone, flow.sbp.split(0)) for part in (images, labels)))
        if (step + 1) % 20 == 0:
            loss = loss.item()  # all ranks ask, one prints
            if rank == 0:
                print(f"step {step + 1}  loss {loss:.5f}")
    if rank == 0:
        states = [state for kept in optimizer.state.values() for state in kept.values()]
        kept = [
            f"{sum(t.to_local().numel() for t in every)} of {sum(t.numel() for t in every)}"
            for every in (list(model.parameters()), states)
        ]
        print(f"rank 0 keeps {kept[0]} numbers of parameters and {kept[1]} of the optimizer's state")


if __name__ == "__main__":
    main()
