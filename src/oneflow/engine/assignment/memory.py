"""What an assignment has each rank hold at once: an estimate from layouts alone, without lowering it.

It counts variables and what their updates keep, what is fed, and every value in every layout it is read in, until its
last use. The plan of a step (``plan/measure.py``) walks the programs themselves and knows more; a search asks too often
for that.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Mapping
from math import prod

import torch
from torch import fx

from oneflow.engine.assignment.place import stages_of
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.capture.joint import Outputs
from oneflow.engine.core.region import local_shape
from oneflow.engine.program.calls import tensor_arguments
from oneflow.engine.program.notes import Value, joint_note, layout_of, val, value_of
from oneflow.engine.program.program import Key
from oneflow.engine.program.step_decl import StepDecl
from oneflow.engine.sharding.mesh import Layout, Mesh
from oneflow.engine.sharding.writes import shares_memory


def peak_memory(decl: StepDecl, graph: fx.Graph, arguments: Mapping[Key, fx.Node], outputs: Outputs) -> int:
    """The bytes that a rank holds at most, of the mesh whose ranks hold most. Relies on an assignment: every node has
    its layouts."""
    kept = _kept(decl, arguments, outputs)
    walk = _Walk(graph, outputs)
    count = decl.training.micro_batches if decl.training is not None else 1
    stages = stages_of(graph) or []
    for number, mesh in enumerate(
        stages
    ):  # 1F1B: so many micro-batches are between their forward and their backward pass
        kept[mesh] += walk.forward[mesh] * (min(count, len(stages) - number) - 1)
    return max(kept[mesh] + walk.peak[mesh] for mesh in {*kept, *walk.peak})


def _kept(decl: StepDecl, arguments: Mapping[Key, fx.Node], outputs: Outputs) -> Counter[Mesh]:
    """What lasts for the whole step: variables with their states, what is fed, and sums of gradients over
    micro-batches."""
    found: Counter[Mesh] = Counter()
    count = decl.training.micro_batches if decl.training is not None else 1
    for key, node in arguments.items():
        layout, tensor = layout_of(node), val(node)
        if key[0] == "variable":
            found[layout.mesh] += part_bytes(tensor, layout)
            if key[1] in outputs.gradients:
                found[layout.mesh] += _states(decl, key[1]) * part_bytes(
                    tensor, update_layout(decl.require_training(), decl.decls[key[1]].spec, layout)
                )
        elif key[0] == "feed":
            found[layout.mesh] += part_bytes(tensor, layout) * count
    for node in outputs.gradients.values() if count > 1 else ():
        found[layout_of(node).mesh] += part_bytes(val(node), layout_of(node))
    return found


def _states(decl: StepDecl, name: str) -> int:
    """How many states of a variable's own shape its update keeps."""
    return sum(state.shape is None for state in decl.require_training().optimizer.owner(name).row.states)


def copies_of(decl: StepDecl, name: str) -> int:
    """How many tensors of its shape a variable stands for: itself and the states of its update."""
    training = decl.training
    return 1 if training is None or not training.optimizer.selects(name) else 1 + _states(decl, name)


def part_bytes(tensor: torch.Tensor, layout: Layout) -> int:
    """The bytes of the largest part of a tensor."""
    return prod(local_shape(tuple(tensor.shape), layout.sbp, layout.mesh.axes, 0)) * tensor.dtype.itemsize


class _Walk:
    """The values of a step in the order they are made: what lives at once on each mesh, and what at the end of the
    forward pass."""

    def __init__(self, graph: fx.Graph, outputs: Outputs) -> None:
        self.peak: Counter[Mesh] = Counter()
        self.forward: Counter[Mesh] = Counter()
        self._live: Counter[Mesh] = Counter()
        self._held: dict[Value, set[Layout]] = {}
        self._taken: defaultdict[Value, Counter[Mesh]] = defaultdict(Counter)
        self._roots: dict[Value, Value] = {}
        nodes = [node for node in graph.nodes if node.target is not operator.getitem]
        dies = self._last_uses(nodes, outputs)
        for number, node in enumerate(nodes):
            if joint_note(node).part == "forward":
                self.forward = Counter(self._live)
            self._visit(node)
            for value in dies[number]:
                self._live.subtract(self._taken.pop(value, {}))

    def _visit(self, node: fx.Node) -> None:
        note = joint_note(node)
        for i, read in enumerate(tensor_arguments(node)):
            layout = Layout(note.placed, tuple(signature.inputs[i] for signature in note.chosen))
            value = value_of(read)
            if layout not in self._held[value] and not joint_note(value[0]).everywhere:
                self._held[value].add(layout)
                self._take(value, layout, val(read))
        made = val(node) if isinstance(val(node), (tuple, list)) else [val(node)]
        for index, sbp in enumerate(note.outputs):
            layout = Layout(note.placed, sbp)
            self._held[node, index] = {layout}
            if node.op == "call_function" and isinstance(made[index], torch.Tensor) and not shares_memory(node.target):
                self._take((node, index), layout, made[index])

    def _take(self, value: Value, layout: Layout, tensor: torch.Tensor) -> None:
        size = part_bytes(tensor, layout)
        self._taken[value][layout.mesh] += size
        self._live[layout.mesh] += size
        self.peak[layout.mesh] = max(self.peak[layout.mesh], self._live[layout.mesh])

    def _last_uses(self, nodes: list[fx.Node], outputs: Outputs) -> list[list[Value]]:
        """Of each node the values that are read by it for the last time. A view is a use of what it looks at; results
        and gradients stay."""
        last: dict[Value, int] = {}
        for number, node in enumerate(nodes):
            reads = [value_of(read) for read in tensor_arguments(node)]
            if node.op == "call_function" and reads and shares_memory(node.target):
                self._roots[node, 0] = self._roots.get(reads[0], reads[0])
            for value in (*reads, *((node, i) for i in range(len(joint_note(node).outputs)))):
                last[value] = last[self._roots.get(value, value)] = number
        for node in (*outputs.results, *outputs.gradients.values()):
            value = value_of(node)
            last[value] = last[self._roots.get(value, value)] = len(nodes) - 1
        dies: list[list[Value]] = [[] for _ in nodes]
        for value, number in last.items():
            dies[number].append(value)
        return dies
