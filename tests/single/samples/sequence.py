"""Samples of ops/sequence.py. The loss is compared with torch's own, which is made for log probabilities of a softmax
and has its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sample import Sample, rand

from oneflow import nn
from oneflow.nn._sequence import ctc_loss

SCORES = rand(6, 2, 5)
TARGETS = np.array([[1, 2, 2], [4, 1, 0]], np.int32)
INPUTS = np.array([6, 4], np.int32)
LENGTHS = np.array([3, 2], np.int32)


def loss(reduction: str) -> Any:
    def expect(scores: Any, targets: Any, inputs: Any, lengths: Any) -> Any:
        found = F.ctc_loss(scores.log_softmax(2), targets.long(), inputs.long(), lengths.long(), reduction=reduction)
        return found if reduction == "none" else found.reshape(1)

    return expect


def decoded(merges: bool) -> Any:
    def expect(scores: Any, inputs: Any) -> tuple[Any, Any]:
        rows, totals = [], []
        for i, length in enumerate(inputs.tolist()):
            best = scores[:length, i].argmax(1).tolist()
            kept = [c for n, c in enumerate(best) if c and not (merges and n and best[n - 1] == c)]
            rows.append(kept + [0] * (scores.shape[0] - len(kept)))
            totals.append([-scores[:length, i].max(1).values.sum()])
        return torch.tensor(rows), torch.tensor(totals)

    return expect


FLAT = np.array([1, 2, 2, 4, 1], np.int32)
REPEATED = np.log(np.eye(4, dtype=np.float32)[[[1, 2], [1, 0], [0, 3], [1, 3], [2, 3], [2, 1]]] * 0.9 + 0.02)

SAMPLES = [
    Sample(
        "ctc_loss",
        lambda s, t, i, n: ctc_loss(nn.logsoftmax(s, 2), t, i, n),
        (SCORES, TARGETS, INPUTS, LENGTHS),
        loss("mean"),
        rtol=1e-4,
    ),
    Sample(
        "ctc_loss",
        lambda s, t, i, n: ctc_loss(nn.logsoftmax(s, 2), t, i, n, reduction="none"),
        (SCORES, TARGETS, INPUTS, LENGTHS),
        loss("none"),
        rtol=1e-4,
    ),
    Sample(
        "ctc_loss",
        lambda s, t, i, n: ctc_loss(nn.logsoftmax(s, 2), t, i, n, reduction="sum"),
        (SCORES, FLAT, INPUTS, LENGTHS),
        loss("sum"),
        rtol=1e-4,
    ),
    Sample(
        "ctc_loss",
        lambda s, t, i, n: ctc_loss(nn.logsoftmax(s, 2), t, i, n, reduction="none", zero_infinity=True),
        (SCORES, TARGETS, np.array([6, 1], np.int32), LENGTHS),
        lambda s, t, i, n: F.ctc_loss(
            s.log_softmax(2), t.long(), i.long(), n.long(), reduction="none", zero_infinity=True
        ),
        gradient=False,
        rtol=1e-4,
    ),
    Sample(
        "nn.ctc_greedy_decoder",
        lambda s, i: nn.ctc_greedy_decoder(s, i),
        (REPEATED, INPUTS),
        decoded(True),
        gradient=False,
    ),
    Sample(
        "nn.ctc_greedy_decoder",
        lambda s, i: nn.ctc_greedy_decoder(s, i, False),
        (REPEATED, INPUTS),
        decoded(False),
        gradient=False,
    ),
]
