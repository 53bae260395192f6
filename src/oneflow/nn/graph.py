"""The path ``oneflow.nn.graph``: graphs of modules, and the kinds that modules of a graph are asked for by ``.to``."""

from oneflow.engine.graph.config import GraphConfig
from oneflow.engine.graph.graph import Graph
from oneflow.engine.graph.proxy import GraphModule, GraphTensor, ProxyModule

__all__ = ["Graph", "GraphConfig", "GraphModule", "GraphTensor", "ProxyModule"]
