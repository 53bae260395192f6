"""``flow.nn``: connectionist temporal classification."""

from __future__ import annotations

from oneflow.engine.core.number import flag, whole
from oneflow.engine.ir.blob import Blob, emit, emit_many
from oneflow.engine.ops import sequence as rows


def ctc_loss(
    log_probs: Blob,
    targets: Blob,
    input_lengths: Blob,
    target_lengths: Blob,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    name: str | None = None,
) -> Blob:
    """-log of the probability that ``log_probs`` (time, batch, classes) give each sample's targets, (batch, length) or
    all in one row.

    ``reduction`` "none" gives one loss a sample, "sum" their sum, "mean" the mean of the losses, each divided by the
    length of its target. A target that its input is too short for has an infinite loss, or 0 with ``zero_infinity``.
    """
    number, zeroes = whole("ctc_loss's blank", blank, 0), flag("zero_infinity", zero_infinity)
    return emit(
        rows.ctc_loss,
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank=number,
        reduction=reduction,
        zero_infinity=zeroes,
        name=name,
    )


def ctc_greedy_decoder(
    log_probs: Blob, input_lengths: Blob, merge_repeated: bool = True, name: str | None = None
) -> tuple[Blob, Blob]:
    """The best class of each time step up to a sample's length, repeats merged if asked, without blanks (class 0):
    (batch, time), filled up with 0; and the negated sum of the best scores, (batch, 1)."""
    decoded, score = emit_many(
        rows.ctc_greedy_decoder,
        log_probs,
        input_lengths,
        merge_repeated=flag("merge_repeated", merge_repeated),
        name=name,
    )
    return decoded, score
