"""What is noted on the nodes of the two graphs of the compiler: the joint graph that all ranks share, and the graph of
one rank.

The value of a node, without data, is where torch's tracing puts it: ``meta["val"]``. In the graph of a rank it is that
of the whole: what has its size and strides has those of the rank's part there.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from oneflow.engine.core.placement import Placement
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops.updates.rows import Linear
from oneflow.engine.program.program import Key
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp
from oneflow.engine.sharding.rules.rule import Signature

if TYPE_CHECKING:
    from oneflow.engine.sharding.rules.local import (
        RankLocal,  # with it come the rules of every op, which one rank does not need
    )

Value = tuple[fx.Node, int]  # an output of a node of the joint graph

_JOINT, _LOCAL, _ARGUMENT, _VAL = "joint", "local", "argument", "val"


# ------------------------------------------------------------------ values


def val(node: fx.Node) -> Any:
    """What a node gives, without data: a tensor, or a tuple or list of them for an op with several outputs."""
    return node.meta[_VAL]


def tensor(node: fx.Node) -> torch.Tensor | None:
    """What a node gives, if that is one tensor and known."""
    found = node.meta.get(_VAL)
    return found if isinstance(found, torch.Tensor) else None


def tensors(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that a node gives; none where that is not known."""
    found = node.meta.get(_VAL)
    return [one for one in (found if isinstance(found, (tuple, list)) else [found]) if isinstance(one, torch.Tensor)]


def set_val(node: fx.Node, made: Any) -> None:
    """Notes what a node gives."""
    node.meta[_VAL] = made


def forget_val(node: fx.Node) -> None:
    """Says that it is not known how what a node gives lies."""
    node.meta.pop(_VAL, None)


# ------------------------------------------------------------------ the joint graph


@dataclass(frozen=True)
class Origin:
    """What a user would say a node came from: an op of a job, or a module of a graph and the function it called.
    ``kind`` is the op's row, or the module's class. Without a ``placement`` it runs where the step does."""

    name: str
    kind: str
    line: str
    placement: Placement | None = None


@dataclass(frozen=True)
class JointNote:
    """A node of a joint graph: what it came from, if that is known, and whether it is of the "forward" or the
    "backward" part.

    An argument ``is_stored`` if it is a variable, and is ``everywhere`` if every rank has it whole anyway, such as the
    number of the step. From ``place`` on it has a ``mesh``; from ``infer`` on one signature per axis of it, and the
    ``share`` of its work that each rank does. An item of an op with several outputs has no signatures of its own. What
    belongs to one ``region`` is made again for the backward pass.
    """

    origin: Origin | None = None
    part: str = "forward"
    is_stored: bool = False
    everywhere: bool = False
    mesh: Mesh | None = None
    signatures: tuple[Signature, ...] = ()
    share: float = 1.0
    has_rule: bool = True
    region: int | None = None

    @property
    def placed(self) -> Mesh:
        """The mesh it runs on."""
        assert self.mesh is not None, "no mesh was chosen for this node yet"
        return self.mesh

    @cached_property
    def chosen(self) -> tuple[Signature, ...]:
        """One signature for each axis of its mesh."""
        return self.signatures[: len(self.placed.axes)]

    @cached_property
    def outputs(self) -> tuple[NdSbp, ...]:
        """How each output lies, once that is inferred."""
        return tuple(
            tuple(signature.outputs[i] for signature in self.chosen) for i in range(len(self.signatures[0].outputs))
        )


def joint_note(node: fx.Node) -> JointNote:
    """The note of a node of a joint graph."""
    return node.meta[_JOINT]


def set_joint_note(node: fx.Node, note: JointNote) -> None:
    """Gives a node of a joint graph its note."""
    node.meta[_JOINT] = note


def change_joint_note(node: fx.Node, **changes: Any) -> None:
    """Gives a node of a joint graph a note with some fields changed."""
    node.meta[_JOINT] = replace(joint_note(node), **changes)


def value_of(node: fx.Node) -> Value:
    """The output that a node's value is: an item of an op with several outputs is that op's."""
    if node.target is operator.getitem:
        return argument(node, 0), argument(node, 1)
    return node, 0


def layout_of(node: fx.Node) -> Layout:
    """How a node's value lies, once it is inferred."""
    producer, index = value_of(node)
    note = joint_note(producer)
    return Layout(note.placed, note.outputs[index])


# ------------------------------------------------------------------ the graph of a rank


@dataclass(frozen=True)
class ArgumentNote:
    """An argument of a rank's program: its key, and the shape and dtype of this rank's part where it is a tensor."""

    key: Key
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class BoxingNote:
    """A change of layout of the value of a joint node, from ``source`` to ``target``."""

    node: fx.Node
    source: Layout
    target: Layout


@dataclass(frozen=True)
class UpdateNote:
    """An update of variables: its optimizer, their names, their sizes in bytes, and how it may be done in pieces; the
    factors of a ``linear`` one. ``is_fused``: it is one pass over memory."""

    optimizer: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    may_be_cut: bool
    may_be_by_rows: bool
    linear: Linear | None = None
    is_fused: bool = False

    def of(self, places: list[int]) -> UpdateNote:
        """That of some of the variables."""
        return replace(self, names=tuple(self.names[i] for i in places), sizes=tuple(self.sizes[i] for i in places))


@dataclass(frozen=True)
class LocalNote:
    """A call of a rank's program: the ``section`` of the step it belongs to, and why it is there.

    ``node`` is the joint node that it runs, and ``local`` how that is split here; or it is a ``boxing``, for the joint
    node ``consumer`` or for the ``gradient`` of a variable; or an ``update``. A bucket has the notes of its
    ``members``. ``what`` is how errors name a call that came from another process.
    """

    section: str = "forward"
    node: fx.Node | None = None
    local: RankLocal | None = None
    boxing: BoxingNote | None = None
    consumer: fx.Node | None = None
    gradient: str | None = None
    update: UpdateNote | None = None
    members: tuple[LocalNote, ...] = ()
    what: str | None = None


def local_note(node: fx.Node) -> LocalNote:
    """The note of a call of a rank's program."""
    return node.meta[_LOCAL]


def set_local_note(node: fx.Node, note: LocalNote) -> None:
    """Gives a call of a rank's program its note."""
    node.meta[_LOCAL] = note


def change_local_note(node: fx.Node, **changes: Any) -> None:
    """Gives a call of a rank's program a note with some fields changed."""
    node.meta[_LOCAL] = replace(local_note(node), **changes)


def boxing_note(node: fx.Node) -> BoxingNote:
    """Which change of layout a call of a rank's program is."""
    note = local_note(node).boxing
    assert note is not None, f"{node} is no boxing"
    return note


def update_note(node: fx.Node) -> UpdateNote | None:
    """What a node of a rank's program updates; None if it is no update."""
    note: LocalNote | None = node.meta.get(_LOCAL)
    return None if note is None else note.update


def argument_note(node: fx.Node) -> ArgumentNote | None:
    """The note of an argument of a rank's program; None for a value that a section makes for another."""
    return node.meta.get(_ARGUMENT)


def set_argument_note(node: fx.Node, note: ArgumentNote) -> None:
    """Gives an argument of a rank's program its note."""
    node.meta[_ARGUMENT] = note


def copy_notes(node: fx.Node, source: fx.Node) -> None:
    """Has a node say of itself what another says."""
    node.meta = dict(source.meta)
