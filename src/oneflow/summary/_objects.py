"""What ``flow.summary`` has as objects: hyperparameters with their ranges, the graphs of jobs, and embeddings to be
looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.ir.graph import Graph as LogicalGraph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.job.function import default_session
from oneflow.summary._writer import require_tensorboard


@dataclass(frozen=True)
class IntegerRange:
    """Whole numbers from ``min_value`` to ``max_value``."""

    min_value: int
    max_value: int

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, (int, np.integer)) and bool(self.min_value <= value <= self.max_value)


@dataclass(frozen=True)
class RealRange:
    """Numbers from ``min_value`` to ``max_value``."""

    min_value: float
    max_value: float

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, (int, float, np.number)) and bool(self.min_value <= value <= self.max_value)


class ValueSet:
    """A few values, of ``dtype`` if one is given."""

    def __init__(self, values: Sequence[Any], dtype: type | None = None) -> None:
        self.values, self.dtype = tuple(values), dtype
        if dtype is not None and not all(isinstance(value, dtype) for value in self.values):
            raise ArgumentError(f"flow.summary.ValueSet: all values are of {dtype.__name__}, got {values!r}")

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __repr__(self) -> str:
        return f"ValueSet({list(self.values)})"


@dataclass(frozen=True)
class Hparam:
    """A hyperparameter: its name and, as ``dtype``, what it may be: a type, an ``IntegerRange``, a ``RealRange`` or a
    ``ValueSet``."""

    name: str
    dtype: Any = None

    def check(self, value: Any) -> None:
        """Refuses a value outside of what it may be."""
        if self.dtype is None:
            return
        if not (isinstance(value, self.dtype) if isinstance(self.dtype, type) else value in self.dtype):
            raise ArgumentError(f"flow.summary.hparams: {self.name} is of {self.dtype!r}, got {value!r}")


HParam = Hparam


@dataclass(frozen=True)
class Metric:
    """A result that hyperparameters led to, by name."""

    name: str
    dtype: Any = None


class Graph:
    """Writes the graphs of jobs into event files of ``logdir``, for TensorBoard's page of graphs."""

    def __init__(self, logdir: str | Path | None = None) -> None:
        if logdir is None:
            raise ArgumentError("flow.summary.Graph(logdir) takes the folder to write to")
        self.logdir = Path(logdir)

    def write_structure_graph(self) -> None:
        """The ops of all jobs, each under the job's name with its type, inputs and shape."""
        require_tensorboard()
        from tensorboard.compat.proto.graph_pb2 import GraphDef
        from torch.utils.tensorboard import SummaryWriter

        session = default_session()
        session.require_jobs("flow.summary.Graph.write_structure_graph")
        made = GraphDef()
        for job in session.jobs.values():
            if job.graph is not None:
                _add_nodes(made, job.graph)
        with SummaryWriter(str(self.logdir)) as writer:
            writer.file_writer.event_writer.add_event(_event(made))


def _event(graph: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(graph_def=graph.SerializeToString())


def _add_nodes(made: Any, graph: LogicalGraph) -> None:
    names = {
        node: f"{graph.job}/{op_note(node).name}"
        for node in graph.body.nodes
        if node.op in ("placeholder", "call_function")
    }
    for node, name in names.items():
        spec = op_note(node).spec
        kind = (
            "Variable"
            if node in graph.variables.values()
            else "Input"
            if node.op == "placeholder"
            else str(node.target)
        )
        entry = made.node.add(name=name, op=kind, input=[names[source] for source in node.all_input_nodes])
        entry.attr["shape"].s = ", ".join(map(str, tree_leaves(spec))).encode()


class Projector:
    """Writes embeddings into ``logdir``, for TensorBoard's projector."""

    def __init__(self, logdir: str | Path | None = None) -> None:
        if logdir is None:
            raise ArgumentError("flow.summary.Projector(logdir) takes the folder to write to")
        self.logdir = Path(logdir)

    def create_embedding_projector(self) -> None:
        """Nothing is to be made before the first embedding."""

    def embedding_projector(
        self, value: Any, label: Any = None, tag: str = "embedding", step: int = 0, **_: Any
    ) -> None:
        """Writes the rows of ``value``, each with its ``label``, as what they are at ``step``."""
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        rows = np.asarray(value)
        labels = None if label is None else [str(one) for one in np.asarray(label).reshape(-1)]
        if rows.ndim != 2 or (labels is not None and len(labels) != len(rows)):
            found = "no" if labels is None else len(labels)
            raise ArgumentError(
                f"flow.summary.Projector: an embedding has shape (rows, features) and a label a row, got {rows.shape} "
                f"and {found} labels"
            )
        with SummaryWriter(str(self.logdir)) as writer:
            writer.add_embedding(rows, metadata=labels, tag=tag, global_step=step)
