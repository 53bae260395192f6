"""Models from configs."""

from libai.models.build import build_graph, build_model

__all__ = ["build_graph", "build_model"]
