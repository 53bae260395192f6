"""The ops of a plan: every node of the joint graph, then the update, each with the boxing of its inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import Any

from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.assignment.update_groups import UpdateGroup
from oneflow.engine.core.region import local_shape
from oneflow.engine.plan.measure import Measured, Sent
from oneflow.engine.plan.report import ranks_text
from oneflow.engine.plan.values import Boxing, PlanOp
from oneflow.engine.program.notes import LocalNote, joint_note, val, value_of
from oneflow.engine.sharding.call import nbytes
from oneflow.engine.sharding.mesh import Mesh

_OF_ALL_RANKS = {
    collective.norm_over: "the norm of all gradients",
    collective.finite_over: "whether all gradients are finite",
}


def devices_text(device_type: str, devices: Iterable[tuple[int, int]]) -> str:
    """Devices in short: "gpu[0:0-3]", "gpu[0-7:0-127]" for the same ones of several machines, "gpu[0:0-3, 1:0]"
    else."""
    by_machine = {
        m: ranks_text(d for _, d in of_machine) for m, of_machine in groupby(sorted(devices), lambda pair: pair[0])
    }
    alike: dict[str, list[int]] = defaultdict(list)
    for machine, of_machine in by_machine.items():
        alike[of_machine].append(machine)
    return f"{device_type}[{', '.join(f'{ranks_text(machines)}:{which}' for which, machines in alike.items())}]"


class Listing:
    """Writes down the ops of a job. What an op costs is that of the first rank of its mesh; ``rows`` has the costs of
    each class of ranks."""

    def __init__(
        self,
        assigned: Assigned,
        device_type: str,
        devices: Mapping[int, tuple[int, int]],
        rows: Sequence[tuple[list[int], Measured]],
    ) -> None:
        self.assigned = assigned
        self._device_type = device_type
        self._devices = devices
        self._measured = {rank: measured for members, measured in rows for rank in members}
        self._names = {node: key[1] for key, node in assigned.arguments.items() if key[0] == "variable"}
        self._places: dict[Mesh, str] = {}
        self._of_node: dict[fx.Node, list[Boxing]] = defaultdict(list)
        self._of_gradient: dict[str, list[Boxing]] = defaultdict(list)
        self._late: list[tuple[Mesh, Sent]] = []
        self._buckets = 0
        self._note_boxing()

    def where(self, mesh: Mesh) -> str:
        """A mesh as its devices."""
        if mesh not in self._places:
            self._places[mesh] = devices_text(self._device_type, [self._devices[rank] for rank in mesh.ranks])
        return self._places[mesh]

    def ops(self) -> tuple[PlanOp, ...]:
        """Forward and backward in the order they run, then the update."""
        nodes = [
            node for node in self.assigned.graph.nodes if node.op == "call_function" and joint_note(node).signatures
        ]
        found = [self._op(node) for node in nodes]
        found += [self._number_op(mesh, sent) for mesh, sent in self._late if sent.exchange.kind == "all_reduce"]
        found += [op for group in self.assigned.groups for op in self._updates(group)]
        found += [self._gather_op(mesh, sent) for mesh, sent in self._late if sent.exchange.kind == "all_gather"]
        parts = {"forward": 0, "backward": 1, "update": 2}
        found.sort(key=lambda fields: parts[fields["part"]])
        return tuple(PlanOp(index=index, **fields) for index, fields in enumerate(found))

    # -------------------------------------------------------------- ops

    def _op(self, node: fx.Node) -> dict[str, Any]:
        note, value = joint_note(node), val(node)
        origin, mesh = note.origin, note.placed
        outputs = value if isinstance(value, (tuple, list)) else [value]
        first, sbp = next((v, sbp) for v, sbp in zip(outputs, note.outputs) if v is not None)
        shape = tuple(first.shape)
        return {
            "name": origin.name if origin is not None else self.assigned.decl.job,
            "op": origin.kind if origin is not None else "",
            "aten": str(node.target),
            "part": note.part,
            "line": origin.line if origin is not None else self._loss_line(),
            "shape": shape,
            "dtype": str(first.dtype).removeprefix("torch."),
            "sbp": tuple(map(str, sbp)),
            "placement": self.where(mesh),
            "local_shape": local_shape(shape, sbp, mesh.axes, 0),
            "flops": self._measured[mesh.ranks[0]].flops_of[node],
            "has_rule": note.has_rule,
            "boxing": tuple(self._of_node[node]),
        }

    def _updates(self, group: UpdateGroup) -> Iterator[dict[str, Any]]:
        """The update call of a group, on each mesh that has variables of it."""
        training, decls = self.assigned.decl.require_training(), self.assigned.decl.decls
        layouts = {name: update_layout(training, decls[name].spec, self.assigned.layouts[name]) for name in group.names}
        for mesh in dict.fromkeys(layout.mesh for layout in layouts.values()):
            names = [name for name in group.names if layouts[name].mesh == mesh]
            here = [prod(local_shape(decls[name].spec.shape, layouts[name].sbp, mesh.axes, 0)) for name in names]
            yield self._in_update(
                mesh,
                op=f"optimizer.{group.optimizer.title}",
                aten=group.optimizer.row.name,
                shape=(sum(decls[name].spec.elements for name in names),),
                dtype=decls[names[0]].spec.dtype.name,
                sbp=tuple(map(str, layouts[names[0]].sbp)),
                local_shape=(sum(here),),
                boxing=tuple(sorted((step for name in names for step in self._of_gradient[name]), key=_bucket)),
            )

    def _number_op(self, mesh: Mesh, sent: Sent) -> dict[str, Any]:
        """A number that the update needs of all ranks."""
        value, where = _OF_ALL_RANKS.get(sent.target, "norms of variables"), self.where(mesh)
        partial, whole = ("P",) * len(mesh.axes), ("B",) * len(mesh.axes)
        step = Boxing(value, partial, whole, where, where, "all_reduce", sent.exchange.bytes * sent.times)
        fields = {"aten": sent.target.__name__, "shape": (), "dtype": "float32", "sbp": whole, "local_shape": ()}
        return self._in_update(mesh, op=value, boxing=(step,), **fields)

    def _gather_op(self, mesh: Mesh, sent: Sent) -> dict[str, Any]:
        """Variables that the ranks have updated in parts, made whole again."""
        training, decls, layouts = (
            self.assigned.decl.require_training(),
            self.assigned.decl.decls,
            self.assigned.layouts,
        )
        parts = {
            name: update_layout(training, decls[name].spec, layouts[name])
            for group in self.assigned.groups
            for name in group.names
        }
        names = [name for name, part in parts.items() if part != layouts[name] and part.mesh == mesh]
        before, after = (tuple(map(str, of[names[0]].sbp)) for of in (parts, layouts))
        where, elements = self.where(mesh), (sum(decls[name].spec.elements for name in names),)
        step = Boxing(
            f"{len(names)} variables", before, after, where, where, "all_gather", sent.exchange.bytes * sent.times
        )
        fields = {
            "aten": sent.target.__name__,
            "shape": elements,
            "dtype": "float32",
            "sbp": after,
            "local_shape": elements,
        }
        return self._in_update(mesh, op="variables updated in parts", boxing=(step,), **fields)

    def _in_update(self, mesh: Mesh, **fields: Any) -> dict[str, Any]:
        return {
            "name": "optimizer",
            "part": "update",
            "line": self._loss_line(),
            "placement": self.where(mesh),
            **fields,
        }

    def _loss_line(self) -> str:
        return self.assigned.decl.loss_line

    # -------------------------------------------------------------- boxing

    def _note_boxing(self) -> None:
        """Each boxing is told once: by the first rank of the mesh it happens on."""
        first: dict[int, Mesh] = {}
        for node in self.assigned.graph.nodes:
            first.setdefault(joint_note(node).placed.ranks[0], joint_note(node).placed)
        for rank, mesh in sorted(first.items()):
            for sent in self._measured[rank].sent:
                self._note(mesh, sent)

    def _note(self, mesh: Mesh, sent: Sent) -> None:
        note = sent.note
        if note.members:
            for member in note.members:
                assert member.boxing is not None and member.gradient is not None
                size = nbytes(val(member.boxing.node))
                self._of_gradient[member.gradient].append(self._boxing(member, "all_reduce", size, self._buckets))
            self._buckets += 1
        elif sent.target is collective.bucket_wait:
            return
        elif note.boxing is not None:
            self._note_boxed(mesh, sent)
        elif note.node is not None and sent.exchange.calls:
            self._of_node[note.node].append(self._inside(note.node, sent))
        elif sent.exchange.calls and (sent.target not in _OF_ALL_RANKS or mesh.ranks[0] == self.assigned.ranks[0]):
            self._late.append((mesh, sent))

    def _note_boxed(self, mesh: Mesh, sent: Sent) -> None:
        note = sent.note
        assert note.boxing is not None
        is_send = sent.exchange.kind == "send"
        happens = (note.boxing.target if is_send else note.boxing.source).mesh
        if happens.ranks[0] != mesh.ranks[0]:
            return
        size = sent.exchange.received if is_send else sent.exchange.bytes
        step = self._boxing(note, sent.exchange.kind, size * sent.times)
        if note.gradient is not None:
            self._of_gradient[note.gradient].append(step)
        elif note.consumer is not None:
            self._of_node[note.consumer].append(step)

    def _boxing(self, note: LocalNote, kind: str, size: int, bucket: int | None = None) -> Boxing:
        assert note.boxing is not None
        source, target = note.boxing.source, note.boxing.target
        value = note.gradient or self._name(note.boxing.node)
        ends = (
            tuple(map(str, source.sbp)),
            tuple(map(str, target.sbp)),
            self.where(source.mesh),
            self.where(target.mesh),
        )
        return Boxing(value, *ends, kind, size, bucket)

    def _inside(self, node: fx.Node, sent: Sent) -> Boxing:
        """A collective that an op makes itself, because it was split in a way that its parts must be put together."""
        note = joint_note(node)
        mesh = note.placed
        split = tuple("P" if s.lower is not None else "B" for s in note.chosen)
        value, where = f"{self._name(node)} (inside)", self.where(mesh)
        return Boxing(
            value, split, ("B",) * len(mesh.axes), where, where, sent.exchange.kind, sent.exchange.bytes * sent.times
        )

    def _name(self, node: fx.Node) -> str:
        """A value as the user knows it: a variable or an input by name, else the op that makes it."""
        if node in self._names:
            return self._names[node]
        producer, index = value_of(node)
        origin = joint_note(producer).origin
        name = origin.name if origin is not None else self._fed(producer)
        return f"{name}:{index}" if index else name

    def _fed(self, node: fx.Node) -> str:
        key = next((key for key, argument in self.assigned.arguments.items() if argument is node), None)
        if key is not None and key[0] == "feed":
            return self.assigned.decl.feeds[key[1]].name
        return self.assigned.decl.job


def _bucket(step: Boxing) -> int:
    return -1 if step.bucket is None else step.bucket
