"""Trains a small convolutional network on MNIST, tensor by tensor: no job, no graph. About 97 % of the test images are
right on the subset that comes with the package.

    python mnist_eager.py --out run               all defaults; the weights go to run/model
    python mnist_eager.py --out run --resume      goes on from run/model, as if it had never stopped
    python mnist_eager.py --data folder           other idx files of the same format
"""

import argparse
from pathlib import Path

import oneflow as flow
import oneflow.nn as nn
from oneflow.data.mnist import find_mnist, read_mnist
from oneflow.utils.data import DataLoader, TensorDataset

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


def dataset(images, labels):
    pixels = (flow.tensor(images, dtype=flow.float32).unsqueeze(1) / 255 - MEAN) / STD
    return TensorDataset(pixels, flow.tensor(labels, dtype=flow.int64))


def train(model, loader, loss_fn, optimizer, device):
    """One epoch; the mean loss of its images."""
    model.train()
    total = 0.0
    for images, labels in loader:
        loss = loss_fn(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


def accuracy(model, loader, device):
    model.eval()
    right = 0
    with flow.no_grad():
        for images, labels in loader:
            guesses = flow.argmax(model(images.to(device)), dim=1)
            right += (guesses == labels.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the four idx files; otherwise found or downloaded")
    parser.add_argument("--out", type=Path, default=Path("run"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    flow.manual_seed(0)
    mnist = read_mnist(find_mnist(args.data))
    train_loader = DataLoader(dataset(mnist.train_images, mnist.train_labels), args.batch_size, shuffle=True)
    test_loader = DataLoader(dataset(mnist.test_images, mnist.test_labels), batch_size=500)

    device = flow.device("cuda" if flow.cuda.is_available() else "cpu")
    model = Net().to(device)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = flow.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first = 0
    if args.resume:
        saved = flow.load(args.out / "model")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]

    for epoch in range(first, first + args.epochs):
        flow.manual_seed(
            epoch
        )  # order and dropout of an epoch are the same whether or not the program was stopped before it
        loss = train(model, train_loader, loss_fn, optimizer, device)
        print(f"epoch {epoch + 1}  loss {loss:.4f}  accuracy {100 * accuracy(model, test_loader, device):.2f} %")
    flow.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": first + args.epochs},
        args.out / "model",
    )


if __name__ == "__main__":
    main()
