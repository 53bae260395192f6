"""How often the right class is among the likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from libai.evaluation.evaluator import DatasetEvaluator
from oneflow.engine.core.errors import ArgumentError, nearest


def accuracy(output: torch.Tensor, target: torch.Tensor, topk: Sequence[int] = (1,)) -> list[torch.Tensor]:
    """The share, in percent, of rows of ``output`` (N, classes) whose ``target`` is among the k highest, for every
    k."""
    return [torch.tensor(100.0 * right / len(target)) for right in _right(output, target, topk)]


class ClsEvaluator(DatasetEvaluator):
    """``Acc@k`` in percent for every k of ``topk``. The model's output is called "prediction_scores", the field of the
    data set "labels"."""

    def __init__(self, topk: Sequence[int] = (1, 5)) -> None:
        self.topk = tuple(topk)
        self.reset()

    def reset(self) -> None:
        self._right = [0] * len(self.topk)
        self._samples = 0

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        scores, labels = (
            _found(outputs, "prediction_scores", "output of the model"),
            _found(inputs, "labels", "field of the data set"),
        )
        for i, right in enumerate(_right(scores, labels, self.topk)):
            self._right[i] += right
        self._samples += len(labels)

    def evaluate(self) -> dict[str, float]:
        if not self._samples:
            raise ArgumentError("ClsEvaluator has seen no samples; the test loader gave none")
        return {f"Acc@{k}": 100.0 * right / self._samples for k, right in zip(self.topk, self._right)}


def _right(output: torch.Tensor, target: torch.Tensor, topk: Sequence[int]) -> list[int]:
    classes = output.shape[-1]
    _, order = output.topk(min(max(topk), classes), dim=-1)
    hits = order == target.reshape(-1, 1)
    return [int(hits[:, : min(k, classes)].sum()) for k in topk]


def _found(values: dict[str, Any], name: str, what: str) -> Any:
    if name not in values:
        raise ArgumentError(f"ClsEvaluator needs the {what} {name!r}, there are {list(values)}.{nearest(name, values)}")
    return values[name]
