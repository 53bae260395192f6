"""Which variables of a job its training updates, and the state that it keeps of them."""

from __future__ import annotations

from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.ir.graph import Graph
from oneflow.optimizer.optimizers import Optimizer


def trained_by(graph: Graph, optimizer: Optimizer) -> list[VariableDecl]:
    """The variables that an optimizer updates."""
    return [decl for decl in graph.trained_variables() if optimizer.selects(decl.name)]


def owners(graph: Graph, optimizer: Optimizer) -> list[tuple[VariableDecl, Optimizer]]:
    """The variables that an optimizer updates, each with the one of its members that does."""
    return [(decl, optimizer.owner(decl.name)) for decl in trained_by(graph, optimizer)]


def state_decls(graph: Graph, optimizer: Optimizer) -> list[VariableDecl]:
    """The state variables that training keeps for the variables it updates."""
    return [state for decl, owner in owners(graph, optimizer) for state in owner.state_decls(decl)]
