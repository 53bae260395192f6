"""The text form of a plan: tables that a terminal of 140 columns shows whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from oneflow.engine.plan.units import bytes_text, flops_text
from oneflow.engine.plan.values import Boxing, Figures, PlanOp

WIDTH = 140
_HEADING = ("op", "computes", "SBP", "shape -> of a rank", "FLOP", "line")
_WIDEST = (26, 26, 12, 42, 7, 16)  # of the columns of ops: with indent and gaps no more than WIDTH
_VALUE = 34


def plan_text(plan: Figures) -> str:
    """Totals, ranks, variables, notes, then every op with the boxing of its inputs below it."""
    parts = [_head(plan), _ranks(plan), _variables(plan), _notes(plan), *_ops(plan)]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def overview_text(plan: Figures) -> str:
    """Totals, ranks and notes alone."""
    return "\n\n".join("\n".join(lines) for lines in (_head(plan), _ranks(plan), _notes(plan)) if lines)


def _head(plan: Figures) -> list[str]:
    axes = f" ({' x '.join(map(str, plan.axes))})" if len(plan.axes) > 1 else ""
    micro = f", {_count(plan.micro_batches, 'micro-batch', 'micro-batches')} a step" if plan.micro_batches > 1 else ""
    devices = _count(plan.devices, f"{plan.device_type} device", f"{plan.device_type} devices")
    if plan.stages > 1:
        micro += f" through {plan.stages} stages, each of them busy {100 * plan.busy:.1f} % of the time"
    return [f"{plan.kind} job {_plain(plan.job)} on {devices}{axes}{micro}"]


def _ranks(plan: Figures) -> list[str]:
    has_stages = any(rank.stage is not None for rank in plan.ranks)
    rows = [["ranks", *(["stage"] if has_stages else []), "operations", "variables", "peak memory", "communicated"]]
    for rank in plan.ranks:
        stage = [] if not has_stages else ["-" if rank.stage is None else str(rank.stage)]
        costs = [
            flops_text(rank.flops),
            bytes_text(rank.variables),
            bytes_text(rank.peak_memory),
            bytes_text(rank.sent),
        ]
        rows.append([_cut(rank.ranks, 40), *stage, *costs])
        traffic = [(name, t) for name, t in rank.communicated.items() if t.calls]
        rows += [
            ["", *[""] * (len(stage) + 3), f"  {name} {bytes_text(t.bytes)}, {_count(t.calls, 'call', 'calls')}"]
            for name, t in traffic
        ]
    return ["a step, each rank", *_table(rows)] if plan.ranks else []


def _variables(plan: Figures) -> list[str]:
    if not plan.variables:
        return []
    rows = [["name", "shape", "SBP", "placement", "a rank"]]
    for v in plan.variables:
        rows.append(
            [_cut(v.name, 44), f"{v.dtype} {_shape(v.shape)}", _sbp(v.sbp), _cut(v.placement, 24), bytes_text(v.bytes)]
        )
    return [_count(len(plan.variables), "variable", "variables"), *_table(rows)]


def _notes(plan: Figures) -> list[str]:
    return ["notes", *(f"  {_plain(note)}" for note in plan.notes)] if plan.notes else []


def _ops(plan: Figures) -> Iterator[list[str]]:
    """One table a part, all with the same columns; a placement is told where it changes."""
    named = [
        (op, place == 0)
        for _, same in groupby(plan.ops, lambda op: (op.part, op.name))
        for place, op in enumerate(same)
    ]
    rows = {op.index: _cells(op, is_first) for op, is_first in named}
    widths = [min(widest, max(map(len, column))) for widest, column in zip(_WIDEST, zip(_HEADING, *rows.values()))]
    placement = ""
    for part, of_part in groupby(plan.ops, lambda op: op.part):
        ops = list(of_part)
        lines = [
            f"{part}: {_count(len(ops), 'op', 'ops')}, {flops_text(sum(op.flops for op in ops))}",
            _row(_HEADING, widths),
        ]
        for op in ops:
            if op.placement != placement:
                placement = op.placement
                lines.append(f"  on {_plain(placement)}")
            lines += [_row(rows[op.index], widths), *_below(op)]
        yield lines


def _cells(op: PlanOp, is_first: bool) -> tuple[str, ...]:
    """The columns of an op; the name stands at the first of the ops that a user's op has become."""
    shape = f"{op.dtype} {_shape(op.shape)}"
    if op.local_shape != op.shape:
        shape += f" -> {_shape(op.local_shape)}"
    flops = flops_text(op.flops).removesuffix("FLOP") if op.flops else ""
    aten = op.aten.removeprefix("aten.").removesuffix(".default")
    return op.name if is_first else "", aten, _sbp(op.sbp), shape, flops, op.line


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *named, flops, line = cells
    cut = [_cut(cell, width).ljust(width) for cell, width in zip(named, widths)]
    return f"  {'  '.join(cut)}  {flops:>{widths[4]}}  {_end(line, widths[5])}".rstrip()


def _below(op: PlanOp) -> Iterator[str]:
    if not op.has_rule:
        yield "      ! no SBP rule: runs whole on every rank"
    yield from (f"      <- {line}" for line in _boxings(op.boxing))


def _boxings(boxing: Sequence[Boxing]) -> Iterator[str]:
    """A line a value; the gradients of a bucket are one line, for they are one call."""
    for bucket, of_bucket in groupby(boxing, lambda step: step.bucket):
        steps = list(of_bucket)
        if bucket is None:
            yield from (
                f"{_cut(step.value, _VALUE)}  {_change(step)}  {_cost(step.collective, step.bytes)}" for step in steps
            )
        else:
            names = f"bucket {bucket}: {_count(len(steps), 'gradient', 'gradients')}"
            yield f"{names}  {_change(steps[0])}  {_cost(steps[0].collective, sum(step.bytes for step in steps))}"


def _change(step: Boxing) -> str:
    change = f"{_sbp(step.from_sbp)} -> {_sbp(step.to_sbp)}"
    if step.from_placement == step.to_placement:
        return change
    return f"{change}  {_cut(step.from_placement, 24)} -> {_cut(step.to_placement, 24)}"


def _cost(collective: str, count: int) -> str:
    return f"{collective} {bytes_text(count)}" if count else collective


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _sbp(sbp: Iterable[str]) -> str:
    return " ".join(sbp)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _cut(text: str, width: int) -> str:
    """At most ``width`` characters; beginning and end tell names apart, so the middle goes."""
    text = _plain(text)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _end(text: str, width: int) -> str:
    """At most ``width`` characters of a path; its end is what tells."""
    text = _plain(text)
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def _plain(text: str) -> str:
    """Names are the user's: what would move the cursor or colour the terminal is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
