"""BLEU of texts that a model writes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from libai.evaluation.evaluator import DatasetEvaluator

_LONGEST = 4
Tokens = Sequence[Any]


class BLEUEvaluator(DatasetEvaluator):
    """``bleu_score`` of all texts together, from 0 to 1. A batch gives one text: the tokens in the output "candidate",
    a list of token lists to compare with in the input "reference"."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._candidates: list[Tokens] = []
        self._references: list[Sequence[Tokens]] = []

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self._candidates.append(_listed(outputs["candidate"]))
        self._references.append([_listed(reference) for reference in inputs["reference"]])

    def evaluate(self) -> dict[str, float]:
        return {"bleu_score": corpus_bleu(self._references, self._candidates)}


def corpus_bleu(references: Sequence[Sequence[Tokens]], candidates: Sequence[Tokens]) -> float:
    """The geometric mean of the shares of n-grams, n from 1 to 4, that occur in a reference, times the penalty for
    texts that are too short."""
    matched, possible = [0] * _LONGEST, [0] * _LONGEST
    length = expected = 0
    for texts, candidate in zip(references, candidates):
        length += len(candidate)
        expected += min((abs(len(text) - len(candidate)), len(text)) for text in texts)[1]
        for n in range(1, _LONGEST + 1):
            found, most = _ngrams(candidate, n), Counter[Any]()
            for text in texts:
                most |= _ngrams(text, n)
            matched[n - 1] += sum((found & most).values())
            possible[n - 1] += max(1, sum(found.values()))
    if not all(matched):
        return 0.0
    precision = math.exp(sum(math.log(m / p) for m, p in zip(matched, possible)) / _LONGEST)
    return precision * (1.0 if length > expected else math.exp(1 - expected / length))


def _ngrams(tokens: Tokens, n: int) -> Counter[Any]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _listed(tokens: Any) -> Tokens:
    return tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)
