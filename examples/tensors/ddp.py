"""Data parallel with local tensors: every rank has a copy of the network and reads its share of the data; after each
backward pass the gradients are the means over the ranks. For networks without batch norm the losses are those of one
process on the whole batch.

    python ddp.py                                                                      alone
    python -m oneflow.distributed.launch --nproc_per_node 2 ddp.py                     two ranks, the same losses
"""

import argparse

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist
from oneflow.utils.data import DataLoader, TensorDataset
from oneflow.utils.data.distributed import DistributedSampler

BATCH = 64


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    rank, size = flow.env.get_rank(), flow.env.get_world_size()
    mnist = read_mnist(find_mnist())
    images = flow.tensor(mnist.train_images, dtype=flow.float32) / 255
    labels = flow.tensor(mnist.train_labels, dtype=flow.int64)
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(
        data, num_replicas=size, rank=rank, seed=0
    )  # every rank others of the same shuffled samples
    loader = DataLoader(data, batch_size=BATCH // size, sampler=sampler, drop_last=True)

    flow.manual_seed(rank)  # whatever the ranks begin with, they train with rank 0's
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()

    step = 0
    while step < args.steps:
        sampler.set_epoch(step // len(loader))
        for x, y in loader:
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                mean = loss.detach() / size
                flow.comm.all_reduce(mean)  # each rank has the loss of its samples
                if rank == 0:
                    print(f"step {step}  loss {mean.item():.5f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
