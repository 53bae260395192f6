"""What models share: the graph that trains or evaluates one."""

from libai.models.utils.graph_base import GraphBase

__all__ = ["GraphBase"]
