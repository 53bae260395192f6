"""Connectionist temporal classification: sequences of labels from scores at every time step."""

from __future__ import annotations

import torch
from torch import Tensor

from oneflow.engine.ops.row import Family, require

ROWS = Family()
_NEVER = -1e30  # the logarithm of the probability of what cannot be; infinity would have no gradient


@ROWS.op("ctc_loss")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> Tensor:
    """-log of the probability that ``log_probs`` (T, N, C) give the targets; "mean" divides each by the length of its
    target first."""
    require(
        log_probs.dim() == 3 and log_probs.dtype.is_floating_point,
        "log_probs are floats of shape (time, batch, classes)",
    )
    steps, batch, classes = log_probs.shape
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        fits = tuple(lengths.shape) == (batch,) and not lengths.dtype.is_floating_point
        require(fits, f"{name} are integers of shape ({batch},), got {tuple(lengths.shape)}")
    require(0 <= blank < classes, f"blank is a class from 0 to {classes - 1}, got {blank}")
    require(reduction in ("mean", "sum", "none"), f"reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    inputs, labels = input_lengths.long(), target_lengths.long()
    path = _path(_rows(targets.long(), labels, batch, steps), blank)
    end = _forward(log_probs, path, inputs, blank)
    last = torch.gather(end, 1, (2 * labels).unsqueeze(1))
    before = torch.gather(end, 1, (2 * labels - 1).clamp(min=0).unsqueeze(1))
    before = torch.where(labels.unsqueeze(1) > 0, before, torch.full_like(before, _NEVER))
    loss = -torch.logaddexp(last, before).squeeze(1)
    is_possible = loss < -_NEVER / 2
    loss = torch.where(is_possible, loss, torch.full_like(loss, 0.0 if zero_infinity else float("inf")))
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum().reshape(1)
    return (loss / labels.clamp(min=1).to(loss.dtype)).mean().reshape(1)


def _rows(targets: Tensor, lengths: Tensor, batch: int, steps: int) -> Tensor:
    """Targets (N, S), also from all of them one after the other; a target longer than the time has no probability, so S
    need not be more."""
    if targets.dim() == 2:
        require(targets.shape[0] == batch, f"targets have shape ({batch}, length), got {tuple(targets.shape)}")
        return targets
    require(
        targets.dim() == 1,
        f"targets have shape ({batch}, length), or one row with all of them; got rank {targets.dim()}",
    )
    starts = (torch.cumsum(lengths, 0) - lengths).unsqueeze(1)
    width = min(steps, targets.shape[0])
    places = (starts + torch.arange(width, device=targets.device)).clamp(max=targets.shape[0] - 1)
    return targets[places]


def _path(targets: Tensor, blank: int) -> Tensor:
    """(N, 2 S + 1): a blank before, between and after the labels."""
    blanks = torch.full_like(targets, blank)
    return torch.cat([torch.stack([blanks, targets], 2).reshape(targets.shape[0], -1), blanks[:, :1]], 1)


def _forward(log_probs: Tensor, path: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The log probability of having come to each place of the path by the end of the input."""
    steps = log_probs.shape[0]
    scores = torch.gather(log_probs, 2, path.unsqueeze(0).expand(steps, -1, -1))
    never = torch.full_like(scores[0], _NEVER)
    places = torch.arange(path.shape[1], device=path.device)
    now = torch.where(places < 2, scores[0], never)
    may_skip = torch.cat([torch.zeros_like(path[:, :2], dtype=torch.bool), path[:, 2:] != path[:, :-2]], 1) & (
        path != blank
    )
    for step in range(1, steps):
        from_before = torch.cat([never[:, :1], now[:, :-1]], 1)
        from_label = torch.where(may_skip, torch.cat([never[:, :2], now[:, :-2]], 1), never)
        moved = torch.logsumexp(torch.stack([now, from_before, from_label]), 0) + scores[step]
        now = torch.where((step < lengths).unsqueeze(1), moved, now)
    return now


@ROWS.op("nn.ctc_greedy_decoder")
def ctc_greedy_decoder(log_probs: Tensor, input_lengths: Tensor, *, merge_repeated: bool) -> tuple[Tensor, Tensor]:
    """The best class of every time step without blanks (class 0), (N, T) filled up with 0; and the negated sum of the
    best scores, (N, 1)."""
    require(
        log_probs.dim() == 3 and log_probs.dtype.is_floating_point,
        "log_probs are floats of shape (time, batch, classes)",
    )
    steps, batch, _ = log_probs.shape
    require(
        tuple(input_lengths.shape) == (batch,), f"input_lengths have shape ({batch},), got {tuple(input_lengths.shape)}"
    )
    best = log_probs.amax(2).transpose(0, 1)
    classes = log_probs.argmax(2).transpose(0, 1)
    inside = torch.arange(steps, device=log_probs.device) < input_lengths.long().unsqueeze(1)
    score = -torch.where(inside, best, torch.zeros_like(best)).sum(1, keepdim=True)
    kept = inside & (classes != 0)
    if merge_repeated:
        kept = kept & torch.cat([torch.ones_like(kept[:, :1]), classes[:, 1:] != classes[:, :-1]], 1)
    order = torch.sort(kept.to(torch.int8), dim=1, descending=True, stable=True).indices
    decoded = torch.gather(torch.where(kept, classes, torch.zeros_like(classes)), 1, order)
    return decoded, score
