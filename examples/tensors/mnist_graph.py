"""Trains a small convolutional network on MNIST with two graphs that share one module: one trains, one evaluates. About
97 % of the test images are right on the subset that comes with the package.

    python mnist_graph.py --out run               all defaults; the state goes to run/model
    python mnist_graph.py --out run --resume      goes on from run/model, as if it had never stopped
    python mnist_graph.py --data folder           other idx files of the same format
"""

import argparse
from pathlib import Path

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist

MEAN, STD = 0.1307, 0.3081  # of the training set's pixels, scaled to 0..1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer, lr_scheduler):
        super().__init__()
        self.model = model
        self.loss_fn = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch=lr_scheduler)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)
        loss.backward()
        return loss


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, images):
        return flow.argmax(self.model(images), dim=1)


def pixels(images):
    return (flow.tensor(images, dtype=flow.float32).unsqueeze(1) / 255 - MEAN) / STD


def batch(images, labels, step, size):
    """The images of a step: every epoch in an order of its own, which does not depend on what ran before."""
    steps = len(images) // size
    order = flow.randperm(len(images), generator=flow.Generator().manual_seed(step // steps))
    chosen = order[step % steps * size : (step % steps + 1) * size]
    return images[chosen], labels[chosen]


def accuracy(model, graph, images, labels, size=500):
    model.eval()  # the mode counts at a graph's first call
    right = sum((graph(images[i : i + size]) == labels[i : i + size]).sum().item() for i in range(0, len(images), size))
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the four idx files; otherwise found or downloaded")
    parser.add_argument("--out", type=Path, default=Path("run"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    flow.manual_seed(0)
    mnist = read_mnist(find_mnist(args.data))
    device = flow.device("cuda" if flow.cuda.is_available() else "cpu")
    images, labels = pixels(mnist.train_images).to(device), flow.tensor(mnist.train_labels, dtype=flow.int64).to(device)
    model = Net().to(device)
    optimizer = flow.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    train = TrainGraph(model, optimizer, flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=1000, alpha=0.1))
    evaluate = EvalGraph(model)
    first = 0
    if args.resume:
        saved = flow.load(args.out / "model")
        train.load_state_dict(saved["graph"])  # the module, the optimizer, and the number of the step
        first = saved["step"]

    model.train()
    for step in range(first, first + args.steps):
        loss = train(*batch(images, labels, step, args.batch_size))
        if (step + 1) % 50 == 0 or step + 1 == first + args.steps:
            print(f"step {step + 1}  loss {loss.item():.6f}")
    test_images, test_labels = (
        pixels(mnist.test_images).to(device),
        flow.tensor(mnist.test_labels, dtype=flow.int64).to(device),
    )
    print(f"accuracy {100 * accuracy(model, evaluate, test_images, test_labels):.2f} %")
    flow.save({"graph": train.state_dict(), "step": first + args.steps}, args.out / "model")


if __name__ == "__main__":
    main()
