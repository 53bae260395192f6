"""The path ``oneflow.nn.graph``: graphs of modules, and the kinds that modules of a graph are asked for by ``.to``."""

from oneflow.graph.config import GraphConfig
from oneflow.graph.graph import Graph
from oneflow.graph.proxy import GraphModule, GraphTensor, ProxyModule

__all__ = ["Graph", "GraphConfig", "GraphModule", "GraphTensor", "ProxyModule"]
