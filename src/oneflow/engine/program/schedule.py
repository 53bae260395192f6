"""Pipeline schedules: in which order a rank runs the forward and backward passes of its micro-batches (1F1B)."""

from __future__ import annotations

Slot = tuple[str, int]
"""("forward" or "backward", or "micro_batch" for both; number of the micro-batch)"""


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
    """1F1B: a stage runs ahead by as many forward passes as there are stages from it to the end, then one backward for
    each forward.

    So a stage holds the values of at most ``stages - stage`` micro-batches, and the last stage of one.
    """
    ahead = min(micro_batches, stages - stage)
    slots: list[Slot] = [("forward", i) for i in range(ahead)]
    for done in range(micro_batches):
        slots.append(("backward", done))
        if ahead + done < micro_batches:
            slots.append(("forward", ahead + done))
    return tuple(slots)
