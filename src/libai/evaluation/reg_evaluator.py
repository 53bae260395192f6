"""How predictions go along with the true values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from libai.evaluation.evaluator import DatasetEvaluator


class RegEvaluator(DatasetEvaluator):
    """``pearson``, ``spearman`` and their mean, ``corr``, of what the model predicts and the "labels": the highest of
    its "prediction_scores", or the score itself where there is one column."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._predicted: list[np.ndarray] = []
        self._true: list[np.ndarray] = []

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        scores: torch.Tensor = outputs["prediction_scores"]
        predicted = scores.reshape(-1) if scores.shape[-1] == 1 else scores.argmax(dim=-1)
        self._predicted.append(predicted.detach().double().cpu().numpy())
        self._true.append(inputs["labels"].reshape(-1).double().cpu().numpy())

    def evaluate(self) -> dict[str, float]:
        predicted, true = np.concatenate(self._predicted), np.concatenate(self._true)
        pearson, spearman = _pearson(predicted, true), _pearson(_ranks(predicted), _ranks(true))
        return {"pearson": pearson, "spearman": spearman, "corr": (pearson + spearman) / 2}


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation; not a number where either does not vary."""
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """The places in rising order; equal values share the mean of their places."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]
