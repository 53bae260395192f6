"""What a plan is made of: the costs of ranks, ops with their boxing, variables; plain values, as they stand in its
JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

FORMAT = "oneflow plan 1"


@dataclass(frozen=True)
class Traffic:
    """What one kind of collective does in a step: how often a rank takes part, and its payload in all, which
    ``plan.held`` defines."""

    calls: int
    bytes: int


@dataclass(frozen=True)
class RankCost:
    """One step of ranks that all cost the same; ``ranks`` is such as "0-511,768-1023" and ``count`` says how many they
    are. Of the bytes of ``variables`` those of ``states`` are the optimizer's."""

    ranks: str
    count: int
    flops: int
    communicated: Mapping[str, Traffic]
    peak_memory: int
    variables: int
    stage: int | None = None
    states: int = 0

    @property
    def sent(self) -> int:
        """Bytes of all collectives together."""
        return sum(traffic.bytes for traffic in self.communicated.values())


@dataclass(frozen=True)
class Boxing:
    """A value brought into another SBP or to another placement for the op that reads it.

    ``collective`` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send", "slice" where a rank keeps a
    part of what it has, or "none"; ``bytes`` is its payload for one rank and one step, of a "send" what the rank is
    sent that reads the value. Gradients of one ``bucket`` go in one call.
    """

    value: str
    from_sbp: tuple[str, ...]
    to_sbp: tuple[str, ...]
    from_placement: str
    to_placement: str
    collective: str
    bytes: int
    bucket: int | None = None


@dataclass(frozen=True)
class PlanOp:
    """One op of the program. Shape, dtype and SBP are those of its first output, ``boxing`` is what its inputs need
    before it runs.

    ``name`` and ``line`` are the user's, ``op`` is the row and ``aten`` the op it has become; ``part`` is "forward",
    "backward" or "update"; ``sbp`` has one layout per axis. Shapes are of one micro-batch, ``flops`` of all of a step:
    what the first rank of the placement computes in matrix products, convolutions and attention.
    """

    index: int
    name: str
    op: str
    aten: str
    part: str
    line: str
    shape: tuple[int, ...]
    dtype: str
    sbp: tuple[str, ...]
    placement: str
    local_shape: tuple[int, ...]
    flops: int = 0
    has_rule: bool = True
    boxing: tuple[Boxing, ...] = ()


@dataclass(frozen=True)
class PlanVariable:
    """A variable and where its parts are; ``bytes`` is what one rank keeps of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sbp: tuple[str, ...]
    placement: str
    bytes: int


@dataclass(frozen=True)
class Figures:
    """All that is known of a job on its devices, without a form to show it in."""

    job: str
    kind: str
    device_type: str
    devices: int
    axes: tuple[int, ...]
    micro_batches: int
    ranks: tuple[RankCost, ...]
    ops: tuple[PlanOp, ...]
    notes: tuple[str, ...] = ()
    variables: tuple[PlanVariable, ...] = ()
    stages: int = 1

    @property
    def busy(self) -> float:
        """The share of a step in which a stage of the pipeline works, if all take the same time: m/(m+p-1) for m
        micro-batches and p stages."""
        return self.micro_batches / (self.micro_batches + self.stages - 1)

    def to_json(self) -> str:
        """One line of JSON with the fields of these classes; ``Plan.from_json`` reads it."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, ensure_ascii=False, separators=(",", ":"))
