"""Trains a plain PyTorch module on as many ranks as there are: not a word about SBP, the layouts are found by cost.

python auto_parallel.py                                                                   alone
python -m oneflow.distributed.launch --nproc_per_node 4 auto_parallel.py                  four ranks, the same losses
python -m oneflow.distributed.launch --nproc_per_node 4 auto_parallel.py --limit 0.6      ... none of which may hold more than 0.6 MiB
"""

import argparse

import oneflow as flow
import oneflow.nn as nn

BATCH, WIDTH, HIDDEN, CLASSES = 32, 32, 2048, 8


class TrainGraph(nn.Graph):
    def __init__(self, model, limit):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.003))
        self.config.enable_auto_parallel(True)
        if limit is not None:
            self.config.set_auto_parallel_memory_limit(int(limit * 2**20))

    def build(self, x, labels):
        loss = nn.functional.cross_entropy(self.model(x), labels)
        loss.backward()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--limit", type=float, help="MiB that a rank may hold; data parallel needs 1.4")
    args = parser.parse_args()

    flow.manual_seed(0)
    teacher = flow.randn(WIDTH, CLASSES)
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, CLASSES))
    train = TrainGraph(model, args.limit)
    for step in range(args.steps):
        x = flow.randn(BATCH, WIDTH, generator=flow.Generator().manual_seed(step))  # the whole batch, on every rank
        loss = train(x, (x @ teacher).argmax(dim=1))
        if (step + 1) % 20 == 0:
            loss = loss.item()  # all ranks ask, one prints
            if flow.env.get_rank() == 0:
                print(f"step {step + 1}  loss {loss:.5f}")
    if flow.env.get_rank() == 0:
        print(train)  # with what was chosen, and the SBP of each parameter


if __name__ == "__main__":
    main()
