"""Draws the loss and the accuracy of a run: ``python plot_loss.py output/MNIST`` writes output/MNIST/loss.png from its metrics.json."""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt


def main() -> None:
    folder = Path(sys.argv[1])
    lines = [json.loads(line) for line in (folder / "metrics.json").read_text().splitlines()]
    figure, loss = plt.subplots()
    loss.plot([line["iteration"] for line in lines if "total_loss" in line], [line["total_loss"] for line in lines if "total_loss" in line])
    loss.set_xlabel("iteration")
    loss.set_ylabel("loss")
    evaluated = [(line["iteration"], line["Acc@1"]) for line in lines if "Acc@1" in line]
    accuracy = loss.twinx()
    accuracy.plot(*zip(*evaluated), "o-", color="tab:orange")
    accuracy.set_ylabel("Acc@1")
    figure.savefig(folder / "loss.png")
    print(f"accuracy {evaluated[-1][1]:.2f} % after {evaluated[-1][0]} iterations; the curves are in {folder / 'loss.png'}")


if __name__ == "__main__":
    main()
