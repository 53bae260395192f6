"""What a run tells: lines on the screen, summary.csv, TensorBoard, and at the end a picture of the loss."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

import oneflow as flow

TOP_K = 5
COLUMNS = ("epoch", "iter", "legend", "note", "value", "rank")


def say(text: str) -> None:
    """A line on stdout, above the progress bar where there is one."""
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


class RunLog:
    """Writes numbers to ``<log_dir>/summary.csv`` and ``<log_dir>/tensorboard``; a resumed run goes on in the same
    file.

    Of the rows that are there those from ``epoch`` and ``iteration`` on are dropped: their steps are made again.
    """

    def __init__(self, log_dir: str, note: str, epoch_size: int, epoch: int = 0, iteration: int = 0) -> None:
        os.makedirs(log_dir, exist_ok=True)
        self._log_dir, self._note, self._epoch_size = log_dir, note, epoch_size
        path = os.path.join(log_dir, "summary.csv")
        self.rows = (
            [row for row in _read(path) if (int(row[0]), int(row[1])) <= (epoch, iteration)]
            if epoch or iteration
            else []
        )
        self._file = open(path, "w", newline="", encoding="utf-8")
        self._csv = csv.writer(self._file)
        self._csv.writerows([COLUMNS, *self.rows])
        self._file.flush()
        flow.summary.create_summary_writer(os.path.join(log_dir, "tensorboard"))

    def add(self, kind: str, epoch: int, iteration: int, numbers: dict[str, float]) -> None:
        """Numbers by their legend, of the first ``iteration`` steps of ``epoch``."""
        for legend, value in numbers.items():
            row = (epoch, iteration, f"{kind}_{legend}", self._note, f"{value:.6f}", 0)
            self.rows.append([str(cell) for cell in row])
            self._csv.writerow(row)
            flow.summary.scalar(value, epoch * self._epoch_size + iteration, f"{kind}/{legend}")
        self._file.flush()
        flow.summary.flush_summary_writer()

    def close(self) -> None:
        self._file.close()
        flow.summary.close_summary_writer()

    def plot(self) -> None:
        """The loss of training over its steps, as ``<log_dir>/loss.png``."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            print("loss.png was not drawn: matplotlib is not installed", file=sys.stderr)
            return
        train = [row for row in self.rows if row[2] == "train_loss"]
        figure = Figure(figsize=(7, 4), layout="tight")  # made without pyplot it draws with Agg and needs no display
        axes = figure.subplots()
        axes.plot([int(row[0]) * self._epoch_size + int(row[1]) for row in train], [float(row[4]) for row in train])
        axes.set(xlabel="iteration", ylabel="loss", title=self._note)
        figure.savefig(os.path.join(self._log_dir, "loss.png"), dpi=120)


def _read(path: str) -> list[list[str]]:
    """The rows of an earlier run; a last line that was cut short is left out."""
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdigit()]


class Metric:
    """Counts hits over a window of batches, and prints a line and logs it when the window is full.

    The loss is that of the last batch. Samples per second are those since the line before.
    """

    def __init__(self, kind: str, epoch: int, window: int, log: RunLog | None = None) -> None:
        self._kind, self._epoch, self._window, self._log = kind, epoch, window, log
        self._since = time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._samples = self._top_1 = self._top_k = 0

    def callback(self, step: int) -> Callable[[dict[str, Any]], None]:
        """What takes the results of a job at one step of the epoch."""
        return lambda results: self.add(step, results)

    def add(self, step: int, results: dict[str, Any]) -> None:
        predictions, labels = np.asarray(results["predictions"]), np.asarray(results["labels"])
        self._samples += len(labels)
        self._top_1 += hits(predictions, labels, 1)
        self._top_k += hits(predictions, labels, TOP_K)
        if (step + 1) % self._window == 0:
            self._tell(step + 1, {"loss": float(results["loss"].mean())} if "loss" in results else {})

    def _tell(self, iteration: int, loss: dict[str, float]) -> None:
        now = time.perf_counter()
        numbers = loss | {"top_1": self._top_1 / self._samples, f"top_{TOP_K}": self._top_k / self._samples}
        rate = self._samples / (now - self._since)
        told = ", ".join(
            f"{name}: {value:.6f}" for name, value in zip(("loss", "top_1", "top_k")[-len(numbers) :], numbers.values())
        )
        say(f"{self._kind}: epoch {self._epoch}, iter {iteration}, {told}, samples/s: {rate:.3f}")
        if self._log is not None:
            self._log.add(self._kind, self._epoch, iteration, numbers | {"throughput": rate})
        self._since = now
        self._clear()


def hits(predictions: np.ndarray, labels: np.ndarray, k: int) -> int:
    """How many labels are among the ``k`` likeliest classes of their samples."""
    k = min(k, predictions.shape[1])
    likeliest = np.argpartition(predictions, -k, axis=1)[:, -k:]
    return int((likeliest == labels[:, None]).any(1).sum())
