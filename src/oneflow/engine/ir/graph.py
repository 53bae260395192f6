"""The logical graph of one job: torch.fx nodes whose targets are op rows, and what the job declared around them.

Each node has an ``OpNote`` (``notes.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import fx

from oneflow.engine.core.placement import Placement
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.core.variable import VariableDecl
from oneflow.optimizer.training import Training


class Reader(Protocol):
    """Something with a position in its data: ``state`` is what ``load_state`` needs to go on from the present step
    (None: nothing)."""

    def state(self) -> dict[str, Any] | None: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


class Source(Reader, Protocol):
    """Something that makes input tensors on the host, once per step: a record reader, a random batch.

    ``start`` may begin work before the first step, ``close`` ends it; ``drop`` says that nothing reads the tensors.
    ``share`` makes it give the rows of one of several shares (``core.region.span``) of each batch, before it starts;
    ``specs`` stay those of the whole. Sources of one ``name`` share a state. A source that was not started can be
    pickled.
    """

    name: str
    specs: tuple[TensorSpec, ...]

    def share(self, number: int, shares: int) -> None: ...

    def start(self) -> None: ...

    def next(self) -> tuple[torch.Tensor, ...]: ...

    def drop(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Watch:
    """A blob (or its gradient) that is handed to ``handler`` as a numpy array after each step."""

    node: fx.Node
    handler: Callable[..., None]
    diff: bool
    line: str


@dataclass
class Graph:
    """One traced job."""

    job: str
    body: fx.Graph = field(default_factory=fx.Graph)
    inputs: list[fx.Node] = field(default_factory=list)
    sources: list[tuple[Source, tuple[fx.Node, ...]]] = field(default_factory=list)
    variables: dict[str, fx.Node] = field(default_factory=dict)
    decls: dict[str, VariableDecl] = field(default_factory=dict)
    step: fx.Node | None = None
    losses: list[fx.Node] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    results: Any = None
    is_train: bool = False
    training: Training | None = None
    placement: Placement | None = None
    is_mirrored: bool = False
    other_view: str | None = None  # the line of the first scope whose view is not the job's

    def require_training(self) -> Training:
        """How the variables of a train job are updated; no other job has such a thing."""
        assert self.training is not None, f"job {self.job!r} is no train job"
        return self.training

    def result_nodes(self) -> list[fx.Node]:
        """The nodes of ``results`` in the order a flattened structure gives."""
        return [] if self.results is None else tree_leaves(self.results)

    def feeds(self) -> list[fx.Node]:
        """The placeholders that are fed each step: inputs, then what sources give."""
        return [*self.inputs, *(node for _, nodes in self.sources for node in nodes)]

    def copy(self) -> Graph:
        """A graph of its own nodes, for a pass to change."""
        body: fx.Graph = fx.Graph()
        new: dict[fx.Node, fx.Node] = {}
        for node in self.body.nodes:
            new[node] = body.node_copy(node, lambda n: new[n])
            new[node].meta = dict(node.meta)
        return replace(
            self,
            body=body,
            inputs=[new[node] for node in self.inputs],
            sources=[(source, tuple(new[n] for n in nodes)) for source, nodes in self.sources],
            variables={name: new[node] for name, node in self.variables.items()},
            step=None if self.step is None else new[self.step],
            losses=[new[node] for node in self.losses],
            watches=[replace(watch, node=new[watch.node]) for watch in self.watches],
            results=None if self.results is None else tree_map(lambda node: new[node], self.results),
        )

    def named_nodes(self) -> set[fx.Node]:
        """Nodes that something outside the graph asks for by itself: results, losses, watched blobs."""
        return {*self.result_nodes(), *self.losses, *(watch.node for watch in self.watches)}

    def drop_unused_sources(self) -> None:
        """Takes out the sources that nothing reads, such as pictures that another op decodes together with its own
        work."""
        named = self.named_nodes()
        for source, nodes in list(self.sources):
            if not any(node.users or node in named for node in nodes):
                source.drop()
                self.sources.remove((source, nodes))
                for node in nodes:
                    self.body.erase_node(node)

    def readers(self) -> dict[str, Source]:
        """One source for each name: those of one name share what they read and so its position."""
        return {source.name: source for source, _ in self.sources}

    def close_sources(self) -> None:
        """Ends what the sources have in work."""
        for source, _ in self.sources:
            source.close()

    def reached_by(self, nodes: list[fx.Node]) -> set[fx.Node]:
        """Every node that the given ones depend on, themselves included."""
        seen: set[fx.Node] = set()
        todo = list(nodes)
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo.extend(node.all_input_nodes)
        return seen

    def trained_variables(self) -> list[VariableDecl]:
        """The trainable variables that a loss depends on, in the order they were declared."""
        reached = self.reached_by(self.losses)
        return [
            self.decls[name] for name, node in self.variables.items() if self.decls[name].trainable and node in reached
        ]
