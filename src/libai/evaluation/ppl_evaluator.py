"""Perplexity."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from libai.evaluation.evaluator import DatasetEvaluator

_LARGEST = 20.0  # e ** 20: what is larger says nothing more


class PPLEvaluator(DatasetEvaluator):
    """``<name>_PPL`` for every output of the model, a loss: the mean over batches of e ** min(20, loss)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        for name, value in outputs.items():
            self._values[name].append(math.exp(min(_LARGEST, float(value))))

    def evaluate(self) -> dict[str, float]:
        return {f"{name}_PPL": sum(values) / len(values) for name, values in self._values.items()}
