"""Every rank compiles the same graph for itself. Before the first step the ranks compare what they have compiled, and
hear of ranks that failed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, fx

import oneflow.engine.collective as collective
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.core.errors import GraphError
from oneflow.engine.program.notes import joint_note, tensors
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

_T = TypeVar("_T")
_FAILED, _MADE = 0, 1


def common_seed(seed: int) -> int:
    """Rank 0's seed; all ranks of the world come here. Seeds of their own would give each rank other masks."""
    world = join()
    if world.size == 1:
        return seed
    with meet("seed of a graph", world.ranks):
        return int(collective.all_gather(torch.tensor([seed]), world.ranks)[0])


def agreed(name: str, make: Callable[[], tuple[_T, Callable[[], str]]]) -> _T:
    """What ``make`` gives, together with a text of it. All ranks of the world come here: where one of them fails, or
    has another text, all raise."""
    world = join()
    if world.size == 1:
        return make()[0]
    try:
        made, text = make()
        told = text()
    except Exception as error:
        with meet(f"compile {name}", world.ranks):
            _exchange(_FAILED, f"{type(error).__name__}: {error}", world.ranks)
        raise
    with meet(f"compile {name}", world.ranks):
        everyone = _exchange(_MADE, told, world.ranks)
    failed = [(rank, said) for rank, (state, said) in enumerate(everyone) if state == _FAILED]
    if failed:
        raise GraphError(f"{name}: rank {failed[0][0]} could not build the graph: {failed[0][1]}")
    other = next((rank for rank, (_, said) in enumerate(everyone) if said != everyone[0][1]), None)
    if other is not None:
        raise GraphError(_differing(name, everyone[0][1], everyone[other][1], other))
    return made


def _exchange(state: int, text: str, ranks: tuple[int, ...]) -> list[tuple[int, str]]:
    """What every rank has to say. Texts go over only where they differ or a rank has failed; otherwise all have this
    one."""
    mine = text.encode()
    digest = [int.from_bytes(hashlib.sha256(mine).digest()[i : i + 7], "big") for i in (0, 7, 14, 21)]
    heads = collective.all_gather(torch.tensor([state, len(mine), *digest]), ranks).tolist()
    if all(head == heads[0] for head in heads) and state == _MADE:
        return [(state, text)] * len(ranks)
    room = torch.zeros(max(head[1] for head in heads), dtype=torch.uint8)
    room[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    texts = collective.all_gather(room, ranks)
    return [(head[0], bytes(own[: head[1]].tolist()).decode()) for head, own in zip(heads, texts)]


def _differing(name: str, first: str, second: str, rank: int) -> str:
    one, two = first.splitlines(), second.splitlines()
    number = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
    lines = [text[number] if number < len(text) else "(nothing)" for text in (one, two)]
    return (
        f"{name} is not the same graph on every rank. The first line of graph and plan that differs is line "
        f"{number + 1}: rank 0 has {lines[0]!r}, "
        f"rank {rank} has {lines[1]!r}; all ranks must build it from the same code, settings and shapes"
    )


# ------------------------------------------------------------------ graph and plan as text


def told_plan(assigned: Assigned, constants: dict[str, Tensor]) -> str:
    """Everything that ranks must have in common, line by line."""
    return "\n".join(
        [*_settings(assigned), *_constants(constants), *map(_node, assigned.graph.nodes), *_outputs(assigned)]
    )


def _settings(assigned: Assigned) -> Iterator[str]:
    decl = assigned.decl
    for name, variable in decl.decls.items():
        yield f"variable {name}: {variable.spec} as {assigned.layouts[name]}"
    for feed in decl.feeds:
        yield f"{feed.name} as {feed.layout}"
    if decl.training is not None:
        training = decl.training
        yield f"{training.micro_batches} micro-batches, {training.loss_scale}, states split from {training.split_states_from}, {decl.buckets}"
    for group in assigned.groups:
        row, numbers = group.optimizer.update(group.weight_decay)
        yield f"{group.optimizer.title}: {row.name} of {', '.join(group.names)} with {sorted(numbers.items())}, clipping {group.optimizer.grad_clipping}"


def _constants(constants: dict[str, Tensor]) -> Iterator[str]:
    for name, tensor in constants.items():
        values = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        yield f"{name}: {tensor.dtype} {tuple(tensor.shape)} of digest {hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]}"


def _node(node: fx.Node) -> str:
    note = joint_note(node)
    made = " ".join(f"{str(one.dtype).removeprefix('torch.')}{tuple(one.shape)}" for one in tensors(node))
    way = ", ".join(f"{' '.join(map(str, s.inputs))} -> {' '.join(map(str, s.outputs))}" for s in note.signatures)
    come = "" if note.origin is None else f" in {note.origin.name!r}"
    return (
        f"{node.name}: {made} = {node.target}{node.args}{node.kwargs or ''}{come}, {note.part} on {note.placed}: {way}"
    )


def _outputs(assigned: Assigned) -> Iterator[str]:
    yield f"results {assigned.outputs.results}"
    yield f"gradients {sorted(assigned.outputs.gradients.items())}"
