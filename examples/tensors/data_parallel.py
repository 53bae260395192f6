"""Trains a small network with a graph of global tensors: every rank has the whole network and its part of each batch,
and all of them together train as one process does.

    python data_parallel.py                                                                   alone
    python -m oneflow.distributed.launch --nproc_per_node 2 data_parallel.py                  two ranks, the same losses
    python -m oneflow.distributed.launch --nproc_per_node 2 data_parallel.py --zero 3         each keeps half of the parameters and of Adam's state
"""

import argparse

import oneflow as flow
import oneflow.nn as nn

BATCH, WIDTH, CLASSES = 64, 32, 8


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer, zero):
        super().__init__()
        self.model = model
        self.loss_fn = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer)
        if zero:
            self.config.enable_zero(True, stage=zero, shard_min_size=256)

    def build(self, x, labels):
        loss = self.loss_fn(self.model(x), labels)
        loss.backward()
        return loss


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x).argmax(dim=1)


def own_part(step, teacher):
    """This rank's samples of a batch. Real programs read theirs from files, such as by a DistributedSampler."""
    draw = flow.Generator().manual_seed(step)
    x = flow.randn(BATCH, WIDTH, generator=draw)
    size = BATCH // flow.env.get_world_size()
    own = slice(flow.env.get_rank() * size, (flow.env.get_rank() + 1) * size)
    return x[own], (x @ teacher).argmax(dim=1)[own]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--zero", type=int, default=0, choices=[0, 1, 2, 3])
    args = parser.parse_args()

    everyone = flow.placement.all("cpu")
    flow.manual_seed(0)
    teacher = flow.randn(WIDTH, CLASSES)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES))
    model.to_global(everyone, flow.sbp.broadcast)  # rank 0's values, on every rank
    train = TrainGraph(model, flow.optim.AdamW(model.parameters(), lr=0.01), args.zero)
    evaluate = EvalGraph(model)

    for step in range(args.steps):
        x, labels = (part.to_global(everyone, flow.sbp.split(0)) for part in own_part(step, teacher))
        loss = train(x, labels)
        if (step + 1) % 20 == 0:
            loss = loss.item()  # all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {loss:.5f}")
    model.eval()
    x, labels = (part.to_global(everyone, flow.sbp.split(0)) for part in own_part(args.steps, teacher))
    right = (evaluate(x) == labels).sum().item()
    if flow.env.get_rank() == 0:
        print(f"accuracy {100 * right / BATCH:.1f} %")


if __name__ == "__main__":
    main()
